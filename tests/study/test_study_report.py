"""Figures of a study's report that no table in memory has."""

from __future__ import annotations

from collections import Counter
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("duckdb", reason="the extra `study` is not installed")

from elision.study.study_report import LISTED_GROUPS, find_quantile, list_groups


@given(st.lists(st.integers(-1_000, 1_000), min_size=1))
def test_a_quantile_of_bins_is_that_of_the_values(values: list[int]) -> None:
    """The ends and the median, however often a value occurs."""
    bins = sorted(Counter(values).items())
    found = [find_quantile(bins, share) for share in (0, 0.5, 1)]
    assert found == [min(values), pytest.approx(median(values)), max(values)]


def test_a_quantile_lies_between_two_values() -> None:
    """As far as the share says."""
    assert find_quantile([(0, 1), (10, 1)], 0.25) == 2.5


def test_days_that_cost_most_are_in_their_order() -> None:
    """And a sentence says how many others there are."""
    found = [{"day": f"2026-01-{31 - number:02}"} for number in range(LISTED_GROUPS + 1)]
    shown, rest = list_groups(found, "day")
    assert [row["day"] for row in shown] == sorted(row["day"] for row in found[:LISTED_GROUPS])
    assert rest == " The 20 that cost most, of 21."
    assert list_groups(found[:2], "model") == (found[:2], "")
