"""Shares of wholes that may be nothing."""

from __future__ import annotations


def divide_or_zero(part: float, whole: float) -> float:
    """Return `part` as a share of `whole`; 0 where that is 0."""
    return part / whole if whole else 0.0


def divide_or_none(part: float, whole: float | None) -> float | None:
    """Return `part` as a share of `whole`; None where that is 0 or not known."""
    return part / whole if whole else None
