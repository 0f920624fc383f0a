"""`elision lab playback`: recorded runs behind a provider's API, for trying agents and gateways without a key."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated

import click

from elision.cli.declarations import Option
from elision.cli.options import Json, Paths, Quiet
from elision.errors import FormatError
from elision.trajectory.control_characters import escape_controls

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from elision.testing.exchange import ReceivedRequest
    from elision.trajectory.trajectory import Problem, Trajectory

#: Where it listens unless told otherwise: next to the gateway's port.
PORT = 8378


def playback(
    paths: Paths,
    host: Annotated[str, Option("--host", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, Option("--port", help="Port to listen on, 0 for a free one.", min=0, max=65_535)] = PORT,
    key: Annotated[str | None, Option("--key", help="The API key that clients must send; default: any.")] = None,
    window: Annotated[int | None, Option("--window", help="Context window of every model, in tokens.", min=1)] = None,
    listed: Annotated[bool, Option("--list", help="List the runs and exit.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Play recorded runs as a provider: OpenAI's chat and Responses, Anthropic's messages, streaming included.

    A request gets the recorded turn that follows its history, or the refusal that the provider would send. The model's
    name selects the run, or else the task does. Ctrl-C stops the server.
    """
    # Slow to import, and help needs none of it.
    from elision.cli.console import open_console, open_notes
    from elision.cli.outputs import print_json
    from elision.cli.reader_bugs import exit_on_reader_bug

    notes = open_notes(quiet)
    runs, problems = _load_runs(paths, notes)
    described = [{"model": f"run:{run.id}", "turns": len(run.turns), "recorded": run.model} for run in runs]
    if listed:
        if json:
            print_json("lab playback", {"runs": described})
        else:
            open_console().print(_build_runs_table(runs))
        exit_on_reader_bug(problems)
        return
    # An extra serves them, and the other commands must do without it.
    from elision.testing.playback import Playback
    from elision.testing.recorded_provider import Terms

    with Playback(runs, Terms(key=key, window=window, played=True), host=host, port=port) as server:
        if not quiet:
            server.provider.on_request = lambda received: _print_request(notes, received)
        if json:
            addresses = {"openai": f"{server.url}/v1", "anthropic": server.url}
            print_json("lab playback", {**addresses, "runs": described})
        else:
            click.echo(f"OpenAI clients:    {server.url}/v1\nAnthropic clients: {server.url}")
        notes.print(_build_runs_table(runs))
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            count = len(server.requests)
            refused = len(server.violations)
            notes.print(f"{count} requests, {refused} violations of the providers' rules", highlight=False)
    exit_on_reader_bug(problems)


def _load_runs(paths: Paths, notes: Console) -> tuple[list[Trajectory], list[Problem]]:
    from elision.formats.registry import read_runs
    from elision.trajectory.trajectory import Problem, Trajectory

    found = [each for path in paths for each in read_runs(path)]
    problems = [each for each in found if isinstance(each, Problem)]
    for problem in problems[:5]:
        notes.print(f"elision: {escape_controls(str(problem))}", markup=False, highlight=False, soft_wrap=True)
    runs = [each for each in found if isinstance(each, Trajectory)]
    if not runs:
        raise FormatError("no run in it could be read: " + "; ".join(map(str, problems[:3])))
    return runs, problems


def _build_runs_table(runs: list[Trajectory]) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, overflow="ellipsis", min_width=len("run:"))
    table.add_column(no_wrap=True, justify="right")
    table.add_column(overflow="fold")
    table.add_row(Text("model", style="bold"), Text("turns", style="bold"), Text("recorded as", style="bold"))
    for run in runs:
        recorded = ", ".join(filter(None, (run.model or "an unknown model", run.format)))
        table.add_row(Text(escape_controls(f"run:{run.id}")), str(len(run.turns)), Text(escape_controls(recorded)))
    return table


def _print_request(console: Console, received: ReceivedRequest) -> None:
    """One request in one line."""
    from rich.text import Text

    line = Text(f"{received.status} ", style="red" if received.status >= 400 else "green")
    what = f"run:{received.run} turn {received.turn}" if received.run else "nothing"
    line.append(escape_controls(f"{received.api} -> {what}"))
    if received.usage is not None:
        line.append(f"  {received.usage.prompt:,} tokens, {received.usage.cache_read:,} from cache", style="dim")
    for problem in received.problems:
        line.append(f"\n    {escape_controls(problem)}")
    console.print(line, highlight=False, soft_wrap=True)
