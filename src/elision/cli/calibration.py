"""`elision audit --calibrate`: what recorded runs were billed, next to what the lab would have computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elision.formats.registry import read_runs
from elision.lab.bill_check import BillCheck, BillChecks, check_bill
from elision.lab.calibrate import Calibration, CalibrationStudy, calibrate_run
from elision.lab.calibration_report import build_calibration_sections, build_check_section
from elision.lab.report.report import Section
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Problem


@dataclass(frozen=True, slots=True)
class BillComparison:
    """study: recorded bills next to simulated ones. checks: each run, priced as it was recorded, next to its bill."""

    study: CalibrationStudy
    checks: BillChecks

    def build_sections(self, *, detail: bool) -> list[Section]:
        """Return both. detail: the token bill of every run, too."""
        return [*build_calibration_sections(self.study, detail=detail), build_check_section(self.checks)]

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
