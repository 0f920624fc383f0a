"""How far the provider may clear results that others refer to."""

from __future__ import annotations

import random

from elision.engine.clearing_cut import lower_cut, raise_cut
from elision.trajectory.plan import Fold, FoldedRun, Key


def fold(key: Key, *sources: Key) -> Fold:
    return Fold(key, "x", tuple(FoldedRun(0, 5, source, 0) for source in sources))


def separates(cut: Key, folds: list[Fold]) -> bool:
    """Return whether something after `cut` refers to something up to it."""
    return any(run.source <= cut < each.key for each in folds for run in each.runs)


def test_a_cut_before_or_after_all_references() -> None:
    """References may overlap, and a result may have several sources."""
    folds = [fold((4, 1), (2, 1)), fold((6, 1), (3, 1), (4, 2)), fold((9, 1), (8, 1))]
    assert (lower_cut((5, 1), folds), raise_cut((5, 1), folds)) == ((2, 0), (6, 1))
    assert (lower_cut((7, 1), folds), raise_cut((7, 1), folds)) == ((7, 1), (7, 1))
    assert (lower_cut((1, 2), folds), raise_cut((1, 2), folds)) == ((1, 2), (1, 2))
    assert lower_cut((8, 1), folds) == (8, 0)


def test_no_nearer_cut_would_do() -> None:
    """Over random references: no cut separates one, and none between it and the wanted one does so neither."""
    rng = random.Random(5)
    keys = [(turn, position) for turn in range(1, 12) for position in range(3)]
    for _ in range(500):
        results = [key for key in keys if key[1]]
        folds = [fold(*sorted(rng.sample(results, 2), reverse=True)) for _ in range(rng.randrange(6))]
        wanted = rng.choice(results)
        lower, higher = lower_cut(wanted, folds), raise_cut(wanted, folds)
        assert lower <= wanted <= higher
        assert not separates(lower, folds)
        assert not separates(higher, folds)
        assert all(separates(key, folds) for key in results if lower < key <= wanted)
        assert all(separates(key, folds) for key in results if wanted <= key < higher)
