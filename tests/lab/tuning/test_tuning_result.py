"""The frontier, and which point is recommended."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from elision.lab.results import Row
from elision.lab.tuning.tuning_result import TunedPoint, choose_point, find_frontier, keeps_evidence
from elision.trajectory.prices import Bill

ROWS = st.builds(
    lambda usd, found, regret, own: Row(
        bill=Bill(usd=usd),
        raw_usd=10.0,
        evidence_items=100,
        evidence_found=found,
        regret_turns=regret,
        own_missing_turns=own,
    ),
    st.sampled_from([1.0, 1.005, 1.5, 2.0, 3.0]),
    st.integers(80, 100),
    st.integers(0, 5),
    st.integers(0, 2),
)


def _is_better(one: Row, other: Row) -> bool:
    as_good = one.usd <= other.usd and one.evidence_found >= other.evidence_found
    as_good = as_good and one.missing_turns <= other.missing_turns
    return as_good and (one.usd, one.evidence_found, one.missing_turns) != (
        other.usd,
        other.evidence_found,
        other.missing_turns,
    )


@given(st.lists(ROWS, min_size=1, max_size=25))
def test_the_frontier_is_what_nothing_beats(rows: list[Row]) -> None:
    """No point of it is beaten, and each other point is."""
    for row, is_best in zip(rows, find_frontier(rows), strict=True):
        assert is_best == (not any(_is_better(other, row) for other in rows))


def _point(text: str, usd: float, found: int = 100, items: int = 100) -> TunedPoint:
    row = Row(bill=Bill(usd=usd), raw_usd=10.0, evidence_items=items, evidence_found=found)
    return TunedPoint(text=text, fit=row)


DEFAULT = _point("masking", 2.0, 95)


@given(st.lists(ROWS, max_size=20), st.sampled_from([0.9, 0.98, 1.0]))
def test_the_recommended_point_keeps_the_facts_and_costs_no_more(rows: list[Row], share: float) -> None:
    """Whatever else was found; the default itself always qualifies."""
    points = [TunedPoint(text=f"masking(window={number})", fit=row) for number, row in enumerate(rows, start=1)]
    best = choose_point([*points, DEFAULT], DEFAULT, "cost", share)
    assert keeps_evidence(best.fit, DEFAULT.fit, share)
    cheapest = min(point.fit.usd for point in [*points, DEFAULT] if keeps_evidence(point.fit, DEFAULT.fit, share))
    assert best.fit.usd <= 1.01 * cheapest + 1e-9
    assert best.fit.missing_turns <= DEFAULT.fit.missing_turns
    most = choose_point([*points, DEFAULT], DEFAULT, "evidence", share)
    assert most.fit.usd <= DEFAULT.fit.usd + 1e-9
    assert 1.01 * most.fit.evidence_found >= DEFAULT.fit.evidence_found


def test_of_equally_cheap_points_the_simplest_is_taken() -> None:
    """A hundredth is less than two splits of the same runs differ by."""
    odd = _point("masking(window=3, gist=0, schedule=every-turn)", 1.0, 99)
    plain = _point("masking(window=3)", 1.009, 99)
    assert choose_point([odd, plain, DEFAULT], DEFAULT, "cost", 0.98) == plain
    dear = _point("masking(window=3)", 1.02, 99)
    assert choose_point([odd, dear, DEFAULT], DEFAULT, "cost", 0.98) == odd


def test_a_turn_that_misses_something_counts() -> None:
    """All facts visible at half the cost is not enough where more turns miss a fact or one of the agent's own words."""
    missing = _point("masking(window=3)", 1.0)
    forgetful = replace(missing, fit=replace(missing.fit, own_missing_turns=3, turns=100))
    assert choose_point([forgetful, DEFAULT], DEFAULT, "cost", 1.0) == DEFAULT
    assert choose_point([forgetful, DEFAULT], DEFAULT, "evidence", 1.0) == DEFAULT
    # Three turns of a hundred.
    assert choose_point([forgetful, DEFAULT], DEFAULT, "cost", 0.97) == forgetful
    assert choose_point([missing, DEFAULT], DEFAULT, "cost", 1.0) == missing


def test_without_facts_nothing_is_recommended_but_the_default() -> None:
    """Cost alone would recommend to hide everything."""
    default = _point("masking", 2.0, 0, 0)
    assert choose_point([_point("masking(window=1)", 0.1, 0, 0), default], default, "cost", 0.98) == default
