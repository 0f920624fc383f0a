"""Shares of wholes that may be nothing, and sums of what may not be known."""

from __future__ import annotations

from collections.abc import Iterable


def divide_or_zero(part: float, whole: float) -> float:
    """Return `part` as a share of `whole`; 0 where that is 0."""
    return part / whole if whole else 0.0


def divide_or_none(part: float, whole: float | None) -> float | None:
    """Return `part` as a share of `whole`; None where that is 0 or not known."""
    return part / whole if whole else None


def sum_or_none(values: Iterable[float | None]) -> float | None:
    """Return the sum; None where one of `values` is not known."""
    listed = list(values)
    return None if None in listed else sum(filter(None, listed))
