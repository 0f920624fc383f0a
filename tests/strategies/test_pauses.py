"""Pauses, counted by the pings that they need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.pauses import MOST_PINGS, PING_MARGIN, PauseHistogram, PingPlan, count_pings


@pytest.mark.parametrize(("pause", "pings"), [(0, 0), (300, 0), (301, 1), (585, 1), (586, 2), (3_600, 12), (9_999, 13)])
def test_a_pause_needs_pings(pause: float, pings: int) -> None:
    """Each ping is sent 15 seconds before the entry dies, and gives it its whole life again."""
    assert count_pings(pause, 300.0) == pings


@given(st.floats(0, 3_600), st.floats(60, 3_600))
def test_so_many_pings_bridge_the_pause(pause: float, life: float) -> None:
    """Sent one after the other, the pings keep the entry alive, and one fewer does not."""
    pings = count_pings(pause, life)
    if pings <= MOST_PINGS:
        assert pings * (life - PING_MARGIN) + life >= pause - 1e-6
    if pings:
        assert (pings - 1) * (life - PING_MARGIN) + life < pause + 1e-6


@given(
    st.lists(st.floats(0, 20_000), max_size=30),
    st.floats(0.01, 1),
    st.floats(0.1, 3),
    st.integers(0, 12),
    st.floats(0, 0.9),
)
def test_the_plan_costs_least(pauses: list[float], read: float, rewrite: float, most: int, ending: float) -> None:
    """No other number of pings, up to the limit, would have cost less on the pauses that were seen."""
    prior = (1.0, *[0.0] * 12, 1.0)
    seen = [0.0, 1e9, *pauses]
    histogram = PauseHistogram(300.0, prior)
    for pause in pauses:
        histogram.add_pause(pause)

    def cost(pings: int) -> float:
        needed = [count_pings(pause, 300.0) for pause in seen]
        paid = sum(read * each if each <= pings else read * pings + rewrite for each in needed)
        return (1 - ending) * paid / len(seen) + ending * read * pings

    plan = histogram.plan_pings(read, rewrite, most, ending)
    assert plan.pings <= most
    assert plan.cost == pytest.approx(cost(plan.pings))
    assert plan.cost <= min(map(cost, range(most + 1))) + 1e-9


def test_without_pings_a_pause_costs_the_prompt() -> None:
    """Where none may be sent, what is expected is the share of pauses that outlast the entry."""
    histogram = PauseHistogram(300.0, (3.0, 1.0))
    assert histogram.plan_pings(0.1, 1.15, 0) == PingPlan(0, 0.25 * 1.15)
