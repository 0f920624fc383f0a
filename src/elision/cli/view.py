"""`elision view`: exactly what the model would be sent at a call of a recorded run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from elision.cli.declarations import Argument, Option
from elision.cli.options import HtmlFile, Output, Pricing, Tokens, parse_call_number
from elision.errors import FormatError, SpecError
from elision.trajectory.foreign_text import escape_controls

if TYPE_CHECKING:
    from elision.lab.views import ViewAt, ViewBills
    from elision.trajectory.trajectory import Problem, Trajectory

#: Problems of a file that are told one by one.
SHOWN_PROBLEMS = 5


def view(
    *,
    file: Annotated[Path, Argument(help="A recorded run.")],
    call: Annotated[str, Option("--call", help="Which call: 1, 2, ... or last.")] = "last",
    strategy: Annotated[str, Option("--strategy", "-s", help="For example hybrid.")] = "masking",
    diff: Annotated[bool, Option("--diff", help="Show only what changed since the previous call.")] = False,
    all: Annotated[bool, Option("--all", help="With --json: every call.")] = False,
    delta: Annotated[bool, Option("--delta", help="With --json: every call, with only what is new in it.")] = False,
    dialect: Annotated[
        str,
        Option("--dialect", help="Shape of the messages: openai, openai-responses, anthropic or gemini.", rare=True),
    ] = "openai",
    trajectory: Annotated[
        str | None, Option("--trajectory", help="Which run, if the file has several; default: the longest.")
    ] = None,
    full: Annotated[bool, Option("--full", help="Show long texts in full.")] = False,
    html_file: HtmlFile = None,
    pricing: Pricing,
    tokens: Tokens = "o200k",
    output: Output,
) -> None:
    """Show exactly what the model would be sent at a call of a recorded run, and what is masked or summarized in it.

    `elision view FILE --all --json` has one object per call: {"call", "epoch", "messages"}.
    """
    # Slow to import, and help needs none of it.
    from elision.cli.outputs import check_outputs, exit_on_reader_bug, make_provenance
    from elision.lab.run_as_recorded import add_recorded_head, size_run, sizer
    from elision.lab.run_loading import describe_prices_of, find_recorded_prices, list_model_uses
    from elision.lab.views import bill_views, list_views
    from elision.providers.provider_table import find_provider
    from elision.strategies.spec import parse_strategy

    if all or delta:
        _check_every_call("--delta" if delta else "--all", html_file, output)
    wanted = parse_strategy(strategy)
    given = pricing.choose()
    rendered = find_provider(dialect).make_renderer()
    files = {"html": html_file}
    check_outputs(files, [file])
    chosen, problems = _choose_run(file, trajectory, output)
    rates = given or find_recorded_prices(chosen)
    counting = size_run(chosen, rates, sizer(dialect, tokens))
    run = add_recorded_head(chosen, counting)
    every = list_views(run, wanted, rates, counting, rendered)
    bills = bill_views(run, wanted, rates, counting)
    if all or delta:
        if call != "last":
            raise SpecError(f"{'--delta' if delta else '--all'} writes every call; leave out --call {call}")
        encode = _view_json_with_changes if delta else _view_json
        _print_calls(_encode(encode, shown, bills) for shown in every)
        exit_on_reader_bug(problems)
        return
    from elision.cli.view_report import ViewReporter, describe_view_bills, list_bill_facts

    calls = len(run.turns)
    number = parse_call_number(call, calls)
    if not 1 <= number <= calls:
        raise SpecError(f"no call {call!r}: the run has {calls}; give a number from 1 to {calls}, or last")
    shown = next(islice(every, number - 1, None))
    reporter = ViewReporter(trajectory=run, label=strategy, sizer=counting, full=full)
    report = reporter.build(
        shown,
        diff=diff,
        more=[*list_bill_facts(bills, shown.call), ("prices", describe_prices_of(list_model_uses([chosen]), given))],
        notes=describe_view_bills(bills),
        data=_encode(_changes_json if diff else _view_json, shown, bills) if output.json else {},
        made_by=make_provenance(),
    )
    output.show(report, files, problems=problems)


def _check_every_call(option: str, html_file: Path | None, output: Output) -> None:
    if not output.json:
        raise SpecError(f"{option} is for --json; a page shows one call")
    if html_file is not None:
        raise SpecError("--html shows one call: leave out --all and --delta")


# -- what is asked for --------------------------------------------------------------------------------------------


def _choose_run(file: Path, id: str | None, output: Output) -> tuple[Trajectory, list[Problem]]:
    """The run called `id`, or the longest, and the problems of the file, which are written to standard error."""
    from elision.formats.registry import read_runs
    from elision.trajectory.trajectory import Problem, Trajectory

    found = list(read_runs(file))
    problems = [each for each in found if isinstance(each, Problem)]
    runs = [each for each in found if isinstance(each, Trajectory)]
    _note_problems(problems, output)
    if not runs:
        raise FormatError(f"{file}: no run in it could be read")
    if id is None:
        return max(runs, key=lambda run: len(run.turns)), problems
    chosen = [run for run in runs if run.id == id]
    if len(chosen) > 1:
        files = ", ".join(run.file for run in chosen)
        raise FormatError(f"{file}: {id!r} is in several files: {files}; name one of them")
    if not chosen:
        names = escape_controls(", ".join(run.id for run in runs))
        raise FormatError(f"{file}: no trajectory {id!r}; there are: {names}")
    return chosen[0], problems


def _note_problems(problems: Sequence[Problem], output: Output) -> None:
    from elision.lab.report.figures import neutralize_text

    for problem in problems[:SHOWN_PROBLEMS]:
        output.note(f"elision: {neutralize_text(str(problem))}")
    if len(problems) > SHOWN_PROBLEMS:
        output.note(f"elision: {len(problems) - SHOWN_PROBLEMS} more problems were met")


# -- JSON ---------------------------------------------------------------------------------------------------------


def _encode(encode: Callable[[ViewAt], dict[str, Any]], shown: ViewAt, bills: ViewBills) -> dict[str, Any]:
    return {**encode(shown), "bills": bills.encode(shown.call)}


def _view_json(shown: ViewAt) -> dict[str, Any]:
    system = {"system": shown.system} if shown.system else {}
    return {"call": shown.call, "epoch": shown.epoch, **system, "messages": shown.messages}


def _view_json_with_changes(shown: ViewAt) -> dict[str, Any]:
    """`keep` messages of the call before, then `messages`; the system prompt where it is another one."""
    known = shown.before.system if shown.before else []
    system = {"system": shown.system} if shown.system != known else {}
    new = shown.messages[shown.keep :]
    return {"call": shown.call, "epoch": shown.epoch, **system, "keep": shown.keep, "messages": new}


def _changes_json(shown: ViewAt) -> dict[str, Any]:
    rewrite = shown.rewrite
    first = None
    if rewrite is not None:
        first = {
            "message": rewrite.message,
            "character": rewrite.character,
            "byte": rewrite.byte,
            "tokens_kept": rewrite.tokens,
        }
    return {**_view_json_with_changes(shown), "first_rewritten": first}


def _print_calls(objects: Iterator[dict[str, Any]]) -> None:
    """Print one JSON object whose `calls` are a line each: they are never all in memory."""
    from elision.lab.report.report import SCHEMA
    from elision.lab.views import to_json

    head = to_json({"schema": SCHEMA, "command": "view"})
    click.echo(f'{head[:-1]}, "calls": [')
    before = ""
    for each in objects:
        click.echo(before + to_json(each), nl=False)
        before = ",\n"
    click.echo("\n]}")
