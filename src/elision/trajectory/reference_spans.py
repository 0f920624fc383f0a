"""Where a run of the oldest results may end if later results refer to earlier ones.

A span is the first result that one refers to, and that one. An end is the first place that is no part of the run.
Places are keys, or numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from elision.trajectory.plan import Edit, Key

#: Anything that is ordered.
Place = TypeVar("Place", bound=Any)


def list_spans(folds: Iterable[Edit]) -> list[tuple[Key, Key]]:
    """Return the spans of `folds`."""
    return [(min(run.source for run in fold.runs), fold.key) for fold in folds]


def lower_end(end: Place, spans: Iterable[tuple[Place, Place]]) -> Place:
    """Return the last end up to `end` that separates no reference from its source."""
    # A lower end may separate what refers to an earlier result, and nothing else.
    for source, place in sorted(spans, reverse=True):
        if source < end <= place:
            end = source
    return end


def raise_end(end: Key, spans: Iterable[tuple[Key, Key]]) -> Key:
    """Return the first end from `end` on that separates no reference from its source."""
    for source, place in sorted(spans):
        if source < end <= place:
            end = find_end(place)
    return end


def find_end(last: Key) -> Key:
    """Return the end of a run whose last result is `last`."""
    return (last[0], last[1] + 1)
