"""`elision lab playback`: recorded runs behind a provider's API, for trying agents and gateways without a key."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated

from elision.cli.declarations import Option
from elision.cli.options import Output, Paths
from elision.errors import FormatError
from elision.trajectory.foreign_text import escape_controls

if TYPE_CHECKING:
    from elision.lab.report.report import Table
    from elision.testing.exchange import ReceivedRequest
    from elision.trajectory.trajectory import Problem, Trajectory

#: Where it listens unless told otherwise: next to the gateway's port.
PORT = 8378


def playback(
    *,
    paths: Paths,
    host: Annotated[str, Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option("--port", help="Port to listen on, 0 for a free one.", min=0, max=65_535)] = PORT,
    key: Annotated[str | None, Option("--key", help="The API key that clients must send; default: any.")] = None,
    window: Annotated[int | None, Option("--window", help="Context window of every model, in tokens.", min=1)] = None,
    listed: Annotated[bool, Option("--list", help="List the runs and exit.")] = False,
    output: Output,
) -> None:
    """Play recorded runs as a provider: OpenAI's chat and Responses, Anthropic's messages, streaming included.

    A request gets the recorded turn that follows its history, or the refusal that the provider would send. The model's
    name selects the run, or else the task does. Ctrl-C stops the server.
    """
    # Slow to import, and help needs none of it.
    from elision.cli.outputs import exit_on_reader_bug
    from elision.lab.report.report import Sentence

    runs, problems = _load_runs(paths, output)
    table = _build_runs_table(runs)
    described = [{"model": f"run:{run.id}", "turns": len(run.turns), "recorded": run.model} for run in runs]
    if listed:
        output.answer("lab playback", {"runs": described}, table, problems=problems)
        return
    # An extra serves them, and the other commands must do without it.
    from elision.testing.playback import Playback
    from elision.testing.recorded_provider import Terms

    with Playback(runs, Terms(key=key, window=window, played=True), host=host, port=port) as server:
        if not output.quiet:
            server.provider.on_request = lambda received: _print_request(output, received)
        addresses = {"openai": f"{server.url}/v1", "anthropic": server.url, "runs": described}
        openai = Sentence(f"OpenAI clients:    {server.url}/v1", whole=True)
        anthropic = Sentence(f"Anthropic clients: {server.url}", whole=True)
        output.answer("lab playback", addresses, openai, anthropic, *([] if output.quiet else [table]))
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            refused = len(server.violations)
            output.note(f"{len(server.requests)} requests, {refused} violations of the providers' rules")
    exit_on_reader_bug(problems)


def _load_runs(paths: Paths, output: Output) -> tuple[list[Trajectory], list[Problem]]:
    from elision.formats.registry import read_runs
    from elision.lab.report.figures import neutralize_text
    from elision.trajectory.trajectory import Problem, Trajectory

    found = [each for path in paths for each in read_runs(path)]
    problems = [each for each in found if isinstance(each, Problem)]
    for problem in problems[:5]:
        output.note(f"elision: {neutralize_text(str(problem))}")
    runs = [each for each in found if isinstance(each, Trajectory)]
    if not runs:
        raise FormatError("no run in it could be read: " + "; ".join(map(str, problems[:3])))
    return runs, problems


def _build_runs_table(runs: list[Trajectory]) -> Table:
    from elision.lab.report.report import Column, Table, TableRow

    columns = [Column("model"), Column("turns", 2), Column("recorded as", 1, "wrap")]
    rows = [
        TableRow(
            [
                f"run:{run.id}",
                str(len(run.turns)),
                ", ".join(filter(None, (run.model or "an unknown model", run.format))),
            ]
        )
        for run in runs
    ]
    return Table(columns, rows, least=len("run:"))


def _print_request(output: Output, received: ReceivedRequest) -> None:
    """One request in one line."""
    what = f"run:{received.run} turn {received.turn}" if received.run else "nothing"
    line = f"{received.status} {escape_controls(f'{received.api} -> {what}')}"
    if received.usage is not None:
        line += f"  {received.usage.prompt:,} tokens, {received.usage.cache_read:,} from cache"
    problems = [f"    {escape_controls(problem)}" for problem in received.problems]
    output.note("\n".join([line, *problems]), "red" if received.status >= 400 else "")
