"""Intervals: known values, and what holds for all of them."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import MissingExtra
from elision.lab.ratios import Interval, bootstrap_mean, bootstrap_ratio, estimate_share


def test_a_share_of_half() -> None:
    """28 of 50 instances: between 42 and 69 %."""
    found = estimate_share(28, 50)
    assert (round(found.low, 4), round(found.high, 4)) == (0.4231, 0.6884)


@pytest.mark.parametrize(("successes", "expected"), [(0, Interval(0.0, 0.2775)), (10, Interval(0.7225, 1.0))])
def test_all_or_nothing(successes: int, expected: Interval) -> None:
    found = estimate_share(successes, 10)
    assert Interval(round(found.low, 4), round(found.high, 4)) == expected


@given(st.integers(1, 2_000).flatmap(lambda trials: st.tuples(st.integers(0, trials), st.just(trials))))
def test_a_share_is_in_its_interval(counts: tuple[int, int]) -> None:
    successes, trials = counts
    found = estimate_share(successes, trials)
    assert 0 <= found.low <= successes / trials <= found.high <= 1


@pytest.mark.parametrize("counts", [(0, 0), (-1, 5), (6, 5)])
def test_no_share(counts: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="no share"):
        estimate_share(*counts)


def test_a_mean_of_differences() -> None:
    """About mean ± 1.96 standard errors where there are many values; a seed gives the same interval again."""
    values = [float(number % 7) for number in range(700)]
    found = bootstrap_mean(values)
    assert found == bootstrap_mean(values) != bootstrap_mean(values, seed=1)
    assert found.low == pytest.approx(3 - 1.96 * 2 / 700**0.5, abs=0.01)
    assert found.high == pytest.approx(3 + 1.96 * 2 / 700**0.5, abs=0.01)


def test_memory_is_bounded() -> None:
    """Samples of a large table are drawn in parts, which changes nothing but the memory."""
    assert bootstrap_mean([1.0] * 50_000, resamples=100) == Interval(1.0, 1.0)


def test_no_values() -> None:
    with pytest.raises(ValueError, match="no mean"):
        bootstrap_mean([])


def test_pairs_are_drawn_together() -> None:
    """Where every task costs half, the interval of the ratio is one point, however different the tasks are."""
    base = [1.0, 100.0, 3.0, 70.0]
    interval = bootstrap_ratio([each / 2 for each in base], base)
    assert (interval.low, interval.high) == pytest.approx((0.5, 0.5))


def test_an_interval_without_numpy_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the extra `report` has numpy."""
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(MissingExtra, match=r"\[report\]"):
        bootstrap_mean([1.0])
