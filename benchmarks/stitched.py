"""A long run made of real ones, end to end, so that long histories can be measured on real text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count, cycle

from msgspec.structs import replace

from benchmarks.recordings import CORPUS, SAMPLES
from elision.errors import ElisionError
from elision.formats.registry import read_runs
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn


def runs() -> list[Trajectory]:
    """The corpus where it lies beside the checkout, else the sample runs."""
    found: list[Trajectory] = []
    for path in sorted(CORPUS.glob("*/*")) if CORPUS.is_dir() else [SAMPLES]:
        try:
            found += [run for run in read_runs(path) if isinstance(run, Trajectory)]
        except ElisionError:
            print(f"  left out {path.name}: no trajectory")
    return found


def stitched(parts: Sequence[Trajectory], turns: int) -> Trajectory:
    """`turns` turns: those of `parts`, over and over, with call ids that stay unique and a steady clock."""
    numbers = count(1)
    made: list[Turn] = []
    for part in cycle(parts):
        for turn in part.turns:
            index = next(numbers)
            if index > turns:
                return Trajectory(id="stitched", head=parts[0].head, turns=tuple(made))
            made.append(_renumbered(turn, index))
    raise AssertionError("cycle ends only with nothing to repeat")


def _renumbered(turn: Turn, index: int) -> Turn:
    return replace(
        turn,
        index=index,
        at=index * 20.0,
        model="",
        usage=None,
        actions=tuple(replace(action, id=f"{action.id}-{index}" if action.id else "") for action in turn.actions),
        observations=tuple(
            replace(result, action_id=f"{result.action_id}-{index}" if result.action_id else "")
            for result in turn.observations
        ),
    )
