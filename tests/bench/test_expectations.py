"""The table of expectations."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.expectations import EVERY_TURN, MASKING, PRICES, RAW, UNFOLDED, costs_by_length, table

from elision.lab.results import Row, Study
from elision.trajectory.prices import Bill
from tests.docs.blocks import ROOT
from tests.lab.report.studies import study


def _run(file: str, calls: int, masking: float) -> list[Row]:
    """A run that costs a cent a call raw, `masking` times that masked, a tenth less folded, 1.5 times at every turn."""
    row = Row(file=file, strategy=RAW, calls=calls, raw_usd=calls / 100, bill=Bill(usd=calls / 100))
    others = {MASKING: masking, UNFOLDED: masking - 0.1, EVERY_TURN: 1.5}
    return [row, *(replace(row, strategy=name, bill=Bill(usd=row.usd * cost)) for name, cost in others.items())]


def _study(*runs: list[Row]) -> Study:
    rows = tuple(row for run in runs for row in run)
    return replace(study(), strategies=(RAW, MASKING, UNFOLDED, EVERY_TURN), rows=rows)


def test_runs_are_grouped_by_calls() -> None:
    """Each group has its median and range; a group without runs has no row."""
    found = _study(_run("a", 90, 0.9), _run("b", 100, 0.7), _run("c", 110, 0.8), _run("d", 10, 1.0))
    assert list(table([found])) == [
        "| under 40 | 1 | **±0 %** (±0 % … ±0 %) | **−10 %** (−10 % … −10 %) | +50 % |",
        "| 80–149 | 3 | **−20 %** (−30 % … −10 %) | **−30 %** (−40 % … −20 %) | +50 % |",
    ]


def test_flagships_come_first_and_in_full() -> None:
    """Three columns for each of the newest flagships, then masking alone at cheaper and uncached prices."""
    found = _study(_run("a", 90, 0.9))
    assert list(table([found] * len(PRICES))) == [
        "| 80–149 | 1 |"
        + " **−10 %** (−10 % … −10 %) | **−20 %** (−20 % … −20 %) | +50 % |" * 2
        + " **−10 %** (−10 % … −10 %) |" * 2
    ]


def test_costs_are_compared_with_what_was_sent() -> None:
    """An agent that condensed its own history paid half of what sending everything would have cost."""
    (raw, *others) = _run("a", 90, 0.9)
    condensed = [replace(row, recorded_usd=raw.usd / 2) for row in (raw, *others)]
    assert costs_by_length(_study(condensed))[80][0][MASKING] == 1.8


def test_a_run_that_occurs_twice_counts_once() -> None:
    """A sample that is in the shared recordings too."""
    assert len(costs_by_length(_study(_run("a", 90, 0.9), _run("copy of a", 90, 0.9)))[80]) == 1


def test_the_page_has_a_row_for_each_group() -> None:
    """In the form that the benchmark prints."""
    text = (ROOT / "docs/guides/choosing.md").read_text(encoding="utf-8")
    for label in ("under 40", "40–79", "80–149", "150 or more"):
        assert f"\n| {label} | " in text
