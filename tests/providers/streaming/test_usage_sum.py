"""Usage, over several answers."""

from __future__ import annotations

import pytest

from elision.providers.streaming.rounds import add_usage, overlay_usage, select_counts


@pytest.mark.parametrize(
    ("first", "second", "total"),
    [
        ({"a": 1}, {"a": 2}, {"a": 3}),
        ({"a": 1}, {"b": 2.5}, {"a": 1, "b": 2.5}),
        ({"a": {"b": 1, "c": None}}, {"a": {"b": 2, "c": 3}}, {"a": {"b": 3, "c": 3}}),
        ({"tier": "standard", "warm": True}, {"tier": "priority", "warm": False}, {"tier": "priority", "warm": False}),
        ({"a": 1}, {"a": None}, {"a": 1}),
        ({"iterations": [{"n": 1}]}, {"iterations": [{"n": 2}]}, {"iterations": [{"n": 1}, {"n": 2}]}),
        (None, {"a": 1}, {"a": 1}),
        ({"a": 1}, None, {"a": 1}),
    ],
)  # fmt: skip
def test_summed(first: object, second: object, total: object) -> None:
    """Numbers are added wherever they stand; what is no number is the second's, if it says anything."""
    assert add_usage(first, second) == total


def test_overlaid() -> None:
    """Counts that are told again, in total, take the place of those before; null does not."""
    assert overlay_usage({"in": 9, "out": 1}, {"in": None, "out": 5}) == {"in": 9, "out": 5}
    assert overlay_usage(None, {"out": 5}) == {"out": 5}
    assert overlay_usage({"out": 5}, None) == {"out": 5}


def test_counters() -> None:
    """Only what counts."""
    assert select_counts({"in": 1, "geo": "us", "fast": True, "inner": {"x": 1}}) == {"in": 1, "inner": {"x": 1}}
