"""`elision audit --calibrate`: what recorded runs were billed, next to what the lab would have computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from elision.formats.registry import read_runs
from elision.lab.bill_check import BillCheck, BillChecks, check_bill
from elision.lab.bill_check_table import print_checks
from elision.lab.calibrate import Calibration, CalibrationStudy, calibrate_run
from elision.lab.calibrate_table import print_study
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Problem


@dataclass(frozen=True, slots=True)
class BillComparison:
    """study: recorded bills next to simulated ones. checks: each run, priced as it was recorded, next to its bill."""

    study: CalibrationStudy
    checks: BillChecks

    def print(self, console: Console, *, detail: bool) -> None:
        """Print both. detail: the token bill of every run, too."""
        console.print()
        print_study(self.study, console, detail=detail)
        print_checks(self.checks, console)

    def to_json(self) -> dict[str, Any]:
        return {**self.study.to_json(), "as_recorded": self.checks.to_json()}


def calibrate_runs(paths: Sequence[Path], tokens: str = "o200k") -> BillComparison:
    """Compare the bill of every run at or below `paths`. Raises FormatError where a path holds none."""
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
    return BillComparison(study, BillChecks(tuple(checks)))
