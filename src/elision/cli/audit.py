"""`elision audit`: what the logs of agents were billed, every dollar with its cause."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from elision.audit.agent_logs import find_agent_logs
from elision.audit.audit_page import build_audit_page
from elision.audit.audit_report import AuditReport
from elision.audit.audit_table import print_audit
from elision.audit.log_audit import audit_logs
from elision.audit.run_partition import PriceFinder, find_list_prices
from elision.cli.console import open_console
from elision.cli.options import HtmlFile, JsonFile, Model, Price, PriceSet, Tokens, choose_prices
from elision.cli.outputs import check_outputs, encode_json, encode_report, make_provenance, open_output, write_reports
from elision.cli.reader_bugs import exit_on_reader_bug
from elision.errors import FormatError
from elision.lab.report.figures import format_plural
from elision.lab.report.names import neutralize_text
from elision.trajectory.prices import Prices

#: Runs after which a log says how far the audit is.
REPORTED_RUNS = 50


def audit(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Logs: files (also .gz, .tar.gz) or folders. Without any, those that agents keep on this machine.",
            show_default=False,
        ),
    ] = None,
    json_file: JsonFile = None,
    html_file: HtmlFile = None,
    detail: Annotated[bool, typer.Option("--detail", help="Print a line for each run.")] = False,
    no_replay: Annotated[
        bool, typer.Option("--no-replay", help="Leave out what Elision would have saved, which takes most of the time.")
    ] = False,
    model: Model = None,
    price: Price = None,
    price_set: PriceSet = None,
    tokens: Tokens = "o200k",
) -> None:
    """Divide the bill that agents' logs record by cause, and say what could have been avoided.

    Every billed token has one cause. Prices are list prices of the recorded model on the day of the run, unless given.
    Ctrl-C ends the reading; what was read is reported.
    """
    errors = open_console(stderr=True)
    places = _choose_paths(paths or [], errors)
    files = {"json": json_file, "html": html_file}
    check_outputs(files, places)
    own = choose_prices(model, price, price_set)
    with _show_progress(errors) as progress:
        report = audit_logs(
            places, tokens=tokens, price=_make_price_finder(own), replays=not no_replay, progress=progress
        )
    failure = write_reports(files, partial(_render_report, report, places))
    print_audit(report, open_output(files), places, detail=detail)
    if failure is not None:
        raise failure
    if not report.finished:
        raise typer.Exit(130)
    exit_on_reader_bug(report.problems)
    if not report.runs:
        lacking = (
            f"{format_plural(report.silent, 'run')} without any; `elision replay` prices them by our count of tokens"
        )
        reasons = [lacking] if report.silent else map(str, report.problems[:3])
        raise FormatError("no run with recorded usage was found: " + "; ".join(reasons))


def _choose_paths(given: Sequence[Path], errors: Console) -> list[Path]:
    """Return what to audit. Raises FormatError for a path that does not exist, and where no log is found."""
    for path in given:
        if not path.exists():
            raise FormatError(f"{path}: there is no such file or folder")
    if given:
        return list(given)
    found = find_agent_logs(Path.home(), os.environ, Path.cwd())
    if not found:
        raise FormatError(
            "no logs of Claude Code, Codex, pi, opencode, Gemini CLI, mini-swe-agent or Inspect were found here;"
            " name a file or folder: elision audit PATH"
        )
    for name, path in found:
        errors.print(f"{name}: {path}", markup=False, highlight=False)
    return [path for _, path in found]


def _make_price_finder(own: Prices | None) -> PriceFinder:
    if own is None:
        return find_list_prices

    def price(model: str, on: date | None) -> Prices:
        return own

    return price


@contextmanager
def _show_progress(errors: Console) -> Iterator[Callable[[int, str], None]]:
    """Give what shows how far the audit is: one line that changes, or in a log a line now and then."""
    if not errors.is_terminal:

        def log(runs: int, file: str) -> None:
            if runs and runs % REPORTED_RUNS == 0:
                print(f"audited {runs} runs", file=sys.stderr, flush=True)

        yield log
        return
    with errors.status("reading") as status:

        def show(runs: int, file: str) -> None:
            name = neutralize_text(file)[-60:].replace("[", r"\[")
            status.update(f"{runs} runs audited; now {name}")

        yield show


def _render_report(report: AuditReport, paths: Sequence[Path], kind: str) -> bytes:
    if kind == "html":
        return encode_report(build_audit_page(report, paths, make_provenance()))
    return encode_json(report.to_json())
