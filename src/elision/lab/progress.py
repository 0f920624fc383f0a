"""How far a study is: what is finished, and how much of all work is done, unfinished runs included."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.sharedctypes import RawArray

from elision.trajectory.trajectory import Trajectory


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """finished, every: replays, of which one is one run under one strategy; those of unfinished runs do not count.

    share: of all work that is done, from 0 to 1; it moves within a run as well. The work of a run is its turns.
    calls: of all replays together.
    """

    finished: int
    every: int
    share: float
    calls: int


class ProgressBoard:
    """What each run reports of itself, in memory that worker processes share."""

    def __init__(
        self, runs: Sequence[Trajectory], replays: int, listener: Callable[[StudyProgress], None] | None = None
    ) -> None:
        """replays: how many each run takes. listener: called with the whole."""
        self.shares = RawArray("d", len(runs))
        self._work = [max(1, len(run.turns)) for run in runs]
        self._replays = replays
        self._listener = listener
        self._finished = 0

    def update(self, place: int, share: float) -> None:
        """Note that so much of the run at `place` is done, and call the listener."""
        self.shares[place] = share
        self.report()

    def finish(self, place: int) -> None:
        """Note that the run at `place` is finished, and call the listener."""
        self._finished += 1
        self.update(place, 1.0)

    def report(self) -> None:
        """Call the listener with what is done by now."""
        if self._listener is None:
            return
        done = sum(work * share for work, share in zip(self._work, self.shares, strict=True))
        work = sum(self._work)
        self._listener(
            StudyProgress(
                finished=self._finished * self._replays,
                every=len(self._work) * self._replays,
                share=done / work if work else 1.0,
                calls=work * self._replays,
            )
        )
