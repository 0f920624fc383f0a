"""`elision audit`: what the logs of agents were billed, every dollar with its cause."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click

from elision.cli.declarations import Argument, Option
from elision.cli.options import (
    HtmlFile,
    Json,
    Model,
    Price,
    PriceSet,
    Quiet,
    StudyShard,
    StudyUrl,
    StudyWorkers,
    Tokens,
    check_memory_paths,
    check_study_extra,
    choose_prices,
)
from elision.errors import FormatError, SpecError

if TYPE_CHECKING:
    from rich.console import Console

    from elision.audit.run_partition import PriceFinder
    from elision.trajectory.prices import Prices


def audit(
    paths: Annotated[
        list[str] | None,
        Argument(
            help="Logs: files (also .gz, .tar.gz) or folders. Without any, those that agents keep on this machine. "
            "With --out also patterns, Parquet data sets, and s3://, gs:// and the like.",
        ),
    ] = None,
    calibrate: Annotated[
        bool,
        Option("--calibrate", help="Also compare recorded bills with simulated ones, and explain the difference."),
    ] = False,
    full: Annotated[bool, Option("--full", help="Print a line for each run.")] = False,
    html_file: HtmlFile = None,
    no_replay: Annotated[
        bool, Option("--no-replay", help="Skip what Elision would have saved, which takes most of the time.")
    ] = False,
    model: Model = None,
    price: Price = None,
    price_set: PriceSet = None,
    tokens: Tokens = "o200k",
    out: StudyUrl = None,
    workers: StudyWorkers = None,
    shard: StudyShard = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Divide the bill in agents' logs by cause, and show what could have been avoided.

    Every billed token has one cause. Unless you give prices, they are list prices of the recorded model on the day of
    the run. Ctrl-C stops reading and reports what was read. With --out, any number of logs become a study, without the
    estimated saving.
    """
    # Slow to import, and help needs none of it.
    from elision.audit.bill_report import build_bill_report
    from elision.audit.log_audit import audit_logs
    from elision.cli.calibration import calibrate_runs
    from elision.cli.console import open_notes
    from elision.cli.outputs import check_outputs, make_provenance, show_report
    from elision.cli.progress_meter import ProgressMeter
    from elision.cli.reader_bugs import exit_on_reader_bug
    from elision.lab.report.figures import format_plural

    notes = open_notes(quiet)
    if out is None and (workers or shard):
        raise SpecError("--workers and --shard are for a study; give --out FOLDER as well")
    if out is not None and not paths:
        raise SpecError("--out: give the logs that the study is of: files, folders or addresses")
    if out is not None and calibrate:
        raise SpecError("--calibrate compares runs in memory; leave out --out")
    places = _choose_paths(check_memory_paths(paths or []), notes) if out is None else list(map(Path, paths or []))
    files = {"html": html_file}
    check_outputs(files, places)
    own = choose_prices(model, price, price_set)
    if out is not None:
        check_study_extra("--out")
        from elision.cli import studies

        request = studies.StudyRequest(out, workers or "", shard or "")
        found = studies.run_audit_study(paths or [], tokens, own, request, notes)
        if found is None:
            return
        report = found
    else:
        with ProgressMeter(notes, "auditing") as meter:

            def show(runs: int, file: str) -> None:
                meter.show(f"{format_plural(runs, 'run')} audited; now {file[-60:]}")

            finder = _make_price_finder(own)
            report = audit_logs(places, tokens=tokens, price=finder, replays=not no_replay, progress=show)
    calibration = calibrate_runs(places, tokens) if calibrate else None
    shown = build_bill_report(report, places, make_provenance(), detail=full)
    if calibration is not None:
        sections = [*shown.sections, *calibration.build_sections(detail=full)]
        shown = replace(shown, sections=sections, data={**shown.data, "calibration": calibration.to_json()})
    failure = show_report(shown, files, notes, as_json=json)
    if failure is not None:
        raise failure
    if not report.finished:
        raise click.exceptions.Exit(130)
    exit_on_reader_bug(report.problems)
    if not report.runs:
        lacking = (
            f"{format_plural(report.silent, 'run')} without any; `elision replay` prices them by our count of tokens"
        )
        reasons = [lacking] if report.silent else map(str, report.problems[:3])
        raise FormatError("no run with recorded usage was found: " + "; ".join(reasons))


def _choose_paths(given: Sequence[Path], notes: Console) -> list[Path]:
    """Return what to audit. Raises FormatError for a path that does not exist, and where no log is found."""
    from elision.audit.agent_logs import find_agent_logs

    for path in given:
        if not path.exists():
            raise FormatError(
                f"{path}: there is no such file or folder; give the logs of an agent, or nothing for this user's"
            )
    if given:
        return list(given)
    found = find_agent_logs(Path.home(), os.environ, Path.cwd())
    if not found:
        raise FormatError(
            "no logs of Claude Code, Codex, pi, opencode, Gemini CLI, mini-swe-agent or Inspect were found here;"
            " name a file or folder: elision audit PATH"
        )
    for name, path in found:
        notes.print(f"{name}: {path}", markup=False, highlight=False)
    return [path for _, path in found]


def _make_price_finder(own: Prices | None) -> PriceFinder:
    from elision.audit.run_partition import find_list_prices

    if own is None:
        return find_list_prices

    def price(model: str, on: date | None) -> Prices:
        return own

    return price
