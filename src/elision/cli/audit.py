"""`elision audit`: what the logs of agents were billed, every dollar with its cause."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from elision.cli.declarations import Argument, Option
from elision.cli.options import (
    HtmlFile,
    Output,
    Pricing,
    StudyRequest,
    Tokens,
    check_memory_paths,
    check_study_extra,
)
from elision.errors import FormatError, SpecError

if TYPE_CHECKING:
    from elision.audit.audit_report import AuditReport
    from elision.audit.run_partition import PriceFinder
    from elision.lab.report.report import Section
    from elision.trajectory.prices import Prices


def audit(
    *,
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
    pricing: Pricing,
    tokens: Tokens = "o200k",
    study: StudyRequest,
    output: Output,
) -> None:
    """Divide the bill in agents' logs by cause, and show what could have been avoided.

    Every billed token has one cause. Unless you give prices, they are list prices of the recorded model on the day of
    the run. Ctrl-C stops reading and reports what was read. With --out, any number of logs become a study, without the
    estimated saving.
    """
    # Slow to import, and help needs none of it.
    from elision.audit.bill_report import build_bill_report
    from elision.cli.outputs import check_outputs, make_provenance
    from elision.lab.report.figures import format_plural

    given = paths or []
    if not study.out:
        if study.workers or study.shard:
            raise SpecError("--workers and --shard are for a study; give --out FOLDER as well")
        places = _choose_paths(check_memory_paths(given), output)
    else:
        if not given:
            raise SpecError("--out: give the logs that the study is of: files, folders or addresses")
        if calibrate:
            raise SpecError("--calibrate compares runs in memory; leave out --out")
        places = list(map(Path, given))
    files = {"html": html_file}
    check_outputs(files, places)
    own = pricing.choose()
    if study.out:
        check_study_extra("--out")
        from elision.cli.studies import run_audit_study

        report = run_audit_study(given, tokens, own, study, output)
        if report is None:
            return
    else:
        report = _audit_in_memory(places, tokens, own, output, replays=not no_replay)
    shown = build_bill_report(report, places, make_provenance(), detail=full)
    if calibrate:
        sections, data = _calibrate_runs(places, tokens, detail=full)
        shown = replace(shown, sections=[*shown.sections, *sections], data={**shown.data, "calibration": data})
    output.show(shown, files, problems=report.problems, finished=report.finished)
    if not report.runs:
        lacking = (
            f"{format_plural(report.silent, 'run')} without any; `elision replay` prices them by our count of tokens"
        )
        reasons = [lacking] if report.silent else map(str, report.problems[:3])
        raise FormatError("no run with recorded usage was found: " + "; ".join(reasons))


def _choose_paths(given: Sequence[Path], output: Output) -> list[Path]:
    """Return what to audit. Raises FormatError for a path that does not exist, and where no log is found."""
    from elision.audit.audit_report import find_agent_logs

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
        output.note(f"{name}: {path}")
    return [path for _, path in found]


def _audit_in_memory(
    places: Sequence[Path], tokens: str, own: Prices | None, output: Output, *, replays: bool
) -> AuditReport:
    """Audit the logs at `places`. own: the prices of every run; None for those of each call's model on its day."""
    from elision.audit.audit_report import audit_logs
    from elision.audit.run_partition import find_list_prices
    from elision.cli.outputs import ProgressMeter
    from elision.lab.report.figures import format_plural

    price: PriceFinder = find_list_prices if own is None else lambda model, on: own
    with ProgressMeter(output.notes, "auditing") as meter:

        def show(runs: int, file: str) -> None:
            meter.show(f"{format_plural(runs, 'run')} audited; now {file[-60:]}")

        return audit_logs(places, tokens=tokens, price=price, replays=replays, progress=show)


def _calibrate_runs(paths: Sequence[Path], tokens: str, *, detail: bool) -> tuple[list[Section], dict[str, Any]]:
    """Return the recorded bill of every run next to what the lab would have computed, as sections and as JSON.

    detail: the token bill of every run, too. Raises FormatError where a path holds no run.
    """
    from elision.formats.registry import read_runs
    from elision.lab.bill_check import BillCheck, BillChecks, check_bill
    from elision.lab.calibrate import Calibration, CalibrationStudy, calibrate_run
    from elision.lab.calibration_report import build_calibration_sections, build_check_section
    from elision.trajectory.tokens import Sizer, make_counter
    from elision.trajectory.trajectory import Problem

    sizer = Sizer(make_counter(tokens))
    runs: list[Calibration] = []
    silent: list[tuple[str, str]] = []
    problems: list[Problem] = []
    checks: list[BillCheck] = []
    for found in (each for path in paths for each in read_runs(path)):
        if isinstance(found, Problem):
            problems.append(found)
            continue
        checks.append(check_bill(found, tokens))
        if (run := calibrate_run(found, sizer)) is not None:
            runs.append(run)
        else:
            silent.append((found.file, found.id))
    study = CalibrationStudy(counter=tokens, runs=tuple(runs), silent=tuple(silent), problems=tuple(problems))
    checked = BillChecks(tuple(checks))
    sections = [*build_calibration_sections(study, detail=detail), build_check_section(checked)]
    return sections, {**study.to_json(), "as_recorded": checked.to_json()}
