"""`elision view`: exactly what the model would be sent at a call of a recorded run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from elision.cli.console import open_console, page_output
from elision.cli.options import Price, PriceSet, RunModel, Tokens, choose_prices, parse_call_number
from elision.cli.outputs import replace_file
from elision.cli.reader_bugs import exit_on_reader_bug
from elision.cli.view_bill_lines import describe_view_bills, list_bill_facts
from elision.cli.view_screen import ViewScreen
from elision.cli.view_text import escape_controls
from elision.errors import ElisionError, FormatError, SpecError
from elision.formats.registry import read_runs
from elision.lab.dialect import sizer
from elision.lab.head_estimate import add_recorded_head
from elision.lab.recorded_sizer import size_run
from elision.lab.run_prices import describe_prices_of, find_recorded_prices, list_model_uses
from elision.lab.view_bills import ViewBills, bill_views
from elision.lab.views import ViewAt, list_views, to_json
from elision.providers.provider_table import find_provider
from elision.strategies.spec import parse_strategy
from elision.trajectory.trajectory import Problem, Trajectory

#: How every line begins that this command writes: files that begin otherwise are not overwritten.
LINE_START = '{"call": '
#: Problems of a file that are told one by one.
SHOWN_PROBLEMS = 5


def view(
    file: Annotated[Path, typer.Argument(help="A recorded run.", show_default=False)],
    out: Annotated[
        Path | None, typer.Argument(help="With --json: the file to write; standard output if left out.")
    ] = None,
    call: Annotated[str, typer.Option("--call", help="Which call: 1, 2, ... or last.")] = "last",
    strategy: Annotated[str, typer.Option("--strategy", "-s", help="For example hybrid.")] = "masking",
    json: Annotated[bool, typer.Option("--json", help="The messages as JSON instead of a page to read.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Only what is not as it was at the call before.")] = False,
    all: Annotated[bool, typer.Option("--all", help="Every call, as JSON Lines.")] = False,
    delta: Annotated[
        bool, typer.Option("--delta", help="Every call, as JSON Lines, of each only what is new.")
    ] = False,
    dialect: Annotated[
        str, typer.Option("--dialect", help="Whose messages: openai, openai-responses, anthropic or gemini.")
    ] = "openai",
    trajectory: Annotated[
        str | None, typer.Option("--trajectory", help="Which run of a file that holds several; default: the longest.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Show long texts whole.")] = False,
    model: RunModel = None,
    price: Price = None,
    prices: PriceSet = None,
    tokens: Tokens = "o200k",
) -> None:
    """Show exactly what the model would be sent at a call of a recorded run, and what is masked or summarized in it.

    `elision view FILE --all --json OUT` writes one object per call: {"call", "epoch", "messages"}.
    """
    wanted = parse_strategy(strategy)
    given = choose_prices(model, price, prices)
    rendered = find_provider(dialect).make_renderer()
    chosen, problems = _choose_run(file, trajectory)
    rates = given or find_recorded_prices(chosen)
    counting = size_run(chosen, rates, sizer(dialect, tokens))
    run = add_recorded_head(chosen, counting)
    every = list_views(run, wanted, rates, counting, rendered)
    bills = bill_views(run, wanted, rates, counting)
    if all or delta:
        if call != "last":
            raise SpecError(f"{'--delta' if delta else '--all'} writes every call; leave out --call {call}")
        encode = _view_json_with_changes if delta else _view_json
        _write_objects(out, (_encode(encode, shown, bills) for shown in every))
    elif json:
        shown = _find_call(every, call, len(run.turns))
        _write_objects(out, [_encode(_changes_json if diff else _view_json, shown, bills)])
    elif out is not None:
        raise SpecError(f"{escape_controls(str(out))}: a file is written with --json only")
    else:
        console = open_console()
        screen = ViewScreen(console, run, strategy, counting, full=full)
        shown = _find_call(every, call, len(run.turns))
        more = [
            *list_bill_facts(bills, shown.call),
            ("prices", Text(describe_prices_of(list_model_uses([chosen]), given))),
        ]
        with page_output(console):
            if diff:
                screen.print_changes(shown, more=more)
            else:
                screen.print_view(shown, more=more)
            screen.print_notes(describe_view_bills(bills))
    exit_on_reader_bug(problems)


# -- what is asked for --------------------------------------------------------------------------------------------


def _choose_run(file: Path, id: str | None) -> tuple[Trajectory, list[Problem]]:
    """The run called `id`, or the longest, and the problems of the file, which are written to standard error."""
    found = list(read_runs(file))
    problems = [each for each in found if isinstance(each, Problem)]
    for problem in problems[:SHOWN_PROBLEMS]:
        print(f"elision: {escape_controls(str(problem))}", file=sys.stderr)
    if len(problems) > SHOWN_PROBLEMS:
        print(f"elision: {len(problems) - SHOWN_PROBLEMS} more problems were met", file=sys.stderr)
    runs = [each for each in found if isinstance(each, Trajectory)]
    if id is None and runs:
        return max(runs, key=lambda run: len(run.turns)), problems
    chosen = [run for run in runs if run.id == id]
    if len(chosen) == 1:
        return chosen[0], problems
    raise FormatError(_explain_choice(file, id, runs, chosen))


def _explain_choice(file: Path, id: str | None, runs: list[Trajectory], chosen: list[Trajectory]) -> str:
    if not runs:
        return f"{file}: no run in it could be read"
    if chosen:
        return f"{file}: {id!r} is in several files: {', '.join(run.file for run in chosen)}; name one of them"
    return f"{file}: no trajectory {id!r}; there are: {escape_controls(', '.join(run.id for run in runs))}"


def _find_call(every: Iterator[ViewAt], call: str, calls: int) -> ViewAt:
    """The view of `call`, the last if it is "last"."""
    number = parse_call_number(call, calls)
    if not 1 <= number <= calls:
        raise SpecError(f"no call {call!r}: the run has {calls}; give a number from 1 to {calls}, or last")
    return next(islice(every, number - 1, None))


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


def _write_objects(out: Path | None, objects: Any) -> None:
    """One object a line, to `out` or to standard output."""
    if out is None or str(out) == "-":
        for each in objects:
            typer.echo(to_json(each))
        return
    _check_overwritable(out)
    replace_file(out, (f"{to_json(each)}\n".encode() for each in objects))


def _check_overwritable(out: Path) -> None:
    """A recording is never overwritten, however FILE and OUT were mixed up."""
    try:
        if not out.is_file():
            return
        with out.open(encoding="utf-8", errors="replace") as stream:
            begins = stream.read(len(LINE_START))
    except OSError as error:
        raise ElisionError(f"{out}: cannot be written ({error.strerror})") from error
    if begins not in ("", LINE_START):
        raise ElisionError(f"{out}: is there already and is no view; the recording comes first, then the file to write")
