"""Nobody waits for another client's request: the benchmarks that measure it, with the bars that the docs promise."""

from __future__ import annotations

import pytest
from benchmarks import callbacks, stall

from tests.figures import ReportFigures

#: Waits are times: they say something on a machine that does nothing else, as that of `make soak`.
pytestmark = pytest.mark.soak


@pytest.mark.parametrize("run", [1, 2, 3])
def test_small_requests_wait_at_most_50_ms_at_p99(run: int, report_figures: ReportFigures) -> None:
    """Whatever one client sends, /healthz and a small chat of others are answered."""
    late = {}
    for name, waits, _ in stall.measure_kinds():
        health, chat = stall.percentile(waits.health), stall.percentile(waits.chat)
        report_figures(f"stall, run {run}, {name}: /healthz {health:.0f} ms, chat {chat:.0f} ms at p99")
        if max(health, chat) > stall.BAR_MS or waits.failed:
            late[name] = (health, chat, waits.failed)
    assert late == {}


def test_no_callback_holds_the_loop_for_more_than_5_ms(report_figures: ReportFigures) -> None:
    """In processor time of the loop's thread."""
    longest = {name: found for name, found, _ in callbacks.measure_kinds()}
    report_figures(f"longest callbacks: {', '.join(f'{name} {found:.1f} ms' for name, found in longest.items())}")
    assert {name: found for name, found in longest.items() if found > callbacks.BAR_MS} == {}
