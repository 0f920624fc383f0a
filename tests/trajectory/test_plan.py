"""Where a run of the oldest results may end."""

from __future__ import annotations

import random

from elision.trajectory.plan import Edit, FoldedRun, Key, find_end, list_spans, lower_end, raise_end


def fold(key: Key, *sources: Key) -> Edit:
    return Edit(key, "fold", "x", tuple(FoldedRun(0, 5, source, 0) for source in sources))


def separates(end: Key, folds: list[Edit]) -> bool:
    """Return whether something from `end` on refers to something before it."""
    return any(run.source < end <= each.key for each in folds for run in each.runs)


def test_an_end_before_or_after_all_references() -> None:
    """References may overlap, and a result may have several sources."""
    spans = list_spans([fold((4, 1), (2, 1)), fold((6, 1), (3, 1), (4, 2)), fold((9, 1), (8, 1))])
    assert (lower_end((5, 2), spans), raise_end((5, 2), spans)) == ((2, 1), (6, 2))
    assert (lower_end((7, 2), spans), raise_end((7, 2), spans)) == ((7, 2), (7, 2))
    assert (lower_end((1, 3), spans), raise_end((1, 3), spans)) == ((1, 3), (1, 3))
    assert lower_end((8, 2), spans) == (8, 1)


def test_places_may_be_numbers() -> None:
    """As where tool uses are counted."""
    assert [lower_end(end, [(1, 4), (3, 5)]) for end in range(7)] == [0, 1, 1, 1, 1, 1, 6]


def test_no_nearer_end_would_do() -> None:
    """Over random references: no end separates one, and none between it and the wanted one does so neither."""
    rng = random.Random(5)
    results = [(turn, position) for turn in range(1, 12) for position in (1, 2)]
    for _ in range(500):
        folds = [fold(*sorted(rng.sample(results, 2), reverse=True)) for _ in range(rng.randrange(6))]
        wanted = find_end(rng.choice(results))
        lower, higher = lower_end(wanted, list_spans(folds)), raise_end(wanted, list_spans(folds))
        assert lower <= wanted <= higher
        assert not separates(lower, folds)
        assert not separates(higher, folds)
        ends = list(map(find_end, results))
        assert all(separates(end, folds) for end in ends if lower < end <= wanted)
        assert all(separates(end, folds) for end in ends if wanted <= end < higher)
