"""Nothing that a durable store acknowledged is lost when its writer is killed, whenever that is."""

from __future__ import annotations

from tests.figures import ReportFigures
from tests.soak import SOAK
from tests.stores.killed_writers import kill_writers

#: Kills for each store: a few in every test run, all in a soak.
TRIALS = 500 if SOAK else 3


def test_no_kill_loses_a_record(url: str, report_figures: ReportFigures) -> None:
    """Every acknowledged record is there, equal; the log is a prefix of what was sent, and goes on."""
    toll = kill_writers(url, trials=TRIALS)
    report_figures(f"{url.partition(':')[0]}: {toll}")
    assert toll.lost == 0
    assert toll.acknowledged > TRIALS
