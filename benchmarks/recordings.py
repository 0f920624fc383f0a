"""The recorded runs that benchmarks replay: the shared ones if they are beside this checkout, else `examples/runs`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from elision.lab.run_loading import load_runs
from elision.trajectory.trajectory import Trajectory

ROOT: Final = Path(__file__).parents[1]
SAMPLES: Final = ROOT / "examples" / "runs"
CORPUS: Final = ROOT.parent / "shared" / "corpus"
#: A small form takes one run of this many, of every length.
EVERY: Final = 8


def load_recordings(*, small: bool = False) -> tuple[Trajectory, ...]:
    """Return the recorded runs; with `small` one in `EVERY` of them, from the shortest to the longest, at least one."""
    runs = load_runs([CORPUS if CORPUS.is_dir() else SAMPLES]).runs
    if not small:
        return runs
    return thin_out(runs)


def thin_out(runs: Sequence[Trajectory]) -> tuple[Trajectory, ...]:
    """Return one in `EVERY` of `runs`, from the shortest to the longest; of fewer than that, the middle one."""
    ordered = sorted(runs, key=lambda run: (len(run.turns), run.format, run.id))
    return tuple(ordered[min(EVERY, len(ordered)) // 2 :: EVERY])
