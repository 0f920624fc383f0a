"""`elision calibrate`: what recorded runs were billed, beside what the lab would have said."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from elision.cli.options import JsonFile, Paths, Tokens
from elision.cli.outputs import check_outputs, encode_json, open_output, write_reports
from elision.cli.reader_bugs import exit_on_reader_bug
from elision.formats.registry import read_runs
from elision.lab.bill_check import BillCheck, BillChecks, check_bill
from elision.lab.bill_check_table import print_checks
from elision.lab.calibrate import Calibration, CalibrationStudy, calibrate_run
from elision.lab.calibrate_table import print_study
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Problem


def calibrate(
    paths: Paths,
    json_file: JsonFile = None,
    detail: Annotated[bool, typer.Option("--detail", help="Print the token bill of every run.")] = False,
    tokens: Tokens = "o200k",
) -> None:
    """Compare the recorded bill with the simulated one, and explain the difference.

    For recordings that hold the provider's own usage. Prices are those of the recorded model on the day of the run.
    """
    files = {"json": json_file}
    check_outputs(files, paths)
    study, checks = calibrate_runs(paths, tokens)
    failure = write_reports(files, lambda _: encode_json({**study.to_json(), "as_recorded": checks.to_json()}))
    output = open_output(files)
    print_study(study, output, detail=detail)
    print_checks(checks, output)
    if failure is not None:
        raise failure
    exit_on_reader_bug(study.problems)


def calibrate_runs(paths: Sequence[Path], tokens: str = "o200k") -> tuple[CalibrationStudy, BillChecks]:
    """Every run at or below `paths`, calibrated, and as recorded beside its bill. Raises FormatError where a path holds
    none."""
    sizer = Sizer(make_counter(tokens))
    runs: list[Calibration] = []
    silent: list[tuple[str, str]] = []
    problems: list[Problem] = []
    checks: list[BillCheck] = []
    for path in paths:
        for found in read_runs(path):
            if isinstance(found, Problem):
                problems.append(found)
                continue
            checks.append(check_bill(found, tokens))
            if (run := calibrate_run(found, sizer)) is not None:
                runs.append(run)
            else:
                silent.append((found.file, found.id))
    study = CalibrationStudy(counter=tokens, runs=tuple(runs), silent=tuple(silent), problems=tuple(problems))
    return study, BillChecks(tuple(checks))
