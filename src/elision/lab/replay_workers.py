"""Replays on several processes: Ctrl-C ends them at once, and what they have delivered stays."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import active_children
from multiprocessing.sharedctypes import RawArray
from types import TracebackType
from typing import Any, Final, TypeVar

from elision.trajectory.trajectory import Trajectory

#: How often finished work and the progress of processes are looked at.
LOOK_SECONDS: Final = 0.25
_Result = TypeVar("_Result")


class WorkerPool:
    """Processes that do the same work. Use it in a `with` statement: an error, or Ctrl-C, ends them.

    shared: what the work takes before the arguments of each task; a process gets it once.
    """

    def __init__(self, jobs: int, *shared: Any) -> None:
        self._others = set(active_children())
        self._pool = ProcessPoolExecutor(jobs, initializer=_set_up_worker, initargs=shared)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.shutdown(wait=error is None, cancel_futures=True)
        if error is not None:
            for worker in set(active_children()) - self._others:
                worker.terminate()

    def run(
        self, work: Callable[..., _Result], tasks: Sequence[tuple[Any, ...]]
    ) -> Iterator[tuple[tuple[Any, ...], _Result] | None]:
        """Yield each task, which has the last arguments of `work`, with its result as it ends; None after each look."""
        with hold_interrupts():
            futures = {self._pool.submit(_do_task, work, task): task for task in tasks}
        waiting = set(futures)
        while waiting:
            # A limited wait, so that Ctrl-C is noticed at once.
            ended, waiting = wait(waiting, LOOK_SECONDS, FIRST_COMPLETED)
            for future in ended:
                yield futures[future], future.result()
            yield None


#: In a worker: what it shares with all tasks.
_shared: tuple[Any, ...] = ()


def _set_up_worker(*shared: Any) -> None:
    global _shared
    _shared = shared
    ignore_interrupts()


def _do_task(work: Callable[..., _Result], task: tuple[Any, ...]) -> _Result:
    return work(*_shared, *task)


def ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that started this one: it ends the workers and keeps what they have delivered."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def hold_interrupts() -> Iterator[None]:
    """Let Ctrl-C wait for the end of the block, where a system can, which starts workers.

    Python drops an exception that is raised within the hooks of a fork, and the interrupt would be lost.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- how far a study is -----------------------------------------------------------------------------------------------


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
