"""Runs in two parts, one to fit and one to judge: by run, seeded, every format in both where it has enough runs."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

from elision.errors import SpecError
from elision.trajectory.trajectory import Trajectory


def split_runs(runs: Sequence[Trajectory], share: float, seed: int) -> tuple[list[int], list[int]]:
    """Return the places of the runs to fit, and of those to judge: about `share` of them, from 0 to below 1.

    The order of the runs does not matter, nor where their files are kept. Raises SpecError where a part would be empty.
    """
    if not 0 <= share < 1:
        raise SpecError(f"--judge-share {share:g}: give a share from 0 to below 1, such as 0.3")
    if share == 0:
        return list(range(len(runs))), []
    if len(runs) < 2:
        raise SpecError(
            "one run is not enough to tune: what fits it cannot be judged on another; give two recordings or more, "
            "or --judge-share 0 to fit without judging"
        )
    order = _shuffle_by_format(runs, seed)
    # Every k-th run of this order, so that each format gives its share.
    chosen = [
        place for number, place in enumerate(order) if _count_chosen(number + 1, share) > _count_chosen(number, share)
    ]
    judge = chosen[: len(runs) - 1] or [order[0]]
    return [place for place in range(len(runs)) if place not in judge], sorted(judge)


def _count_chosen(number: int, share: float) -> int:
    """Return how many of the first `number` runs are to judge: rounded, so that small formats are not all left out."""
    return int(number * share + 0.5)


def _shuffle_by_format(runs: Sequence[Trajectory], seed: int) -> list[int]:
    """Return the places of `runs`, format by format, shuffled within each."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, run in enumerate(runs):
        places[run.format].append(place)
    generator = random.Random(seed)
    order: list[int] = []
    names = sorted(places)
    # Of formats with one run each, too, the seed decides which are judged.
    generator.shuffle(names)
    for name in names:
        # By file name: the folder that the user names may be another one tomorrow.
        within = sorted(places[name], key=lambda place: (runs[place].file.rpartition("/")[2], runs[place].id, place))
        generator.shuffle(within)
        order += within
    return order
