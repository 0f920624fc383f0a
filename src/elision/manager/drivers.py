"""The two drivers that run the steps of a call: one in the caller's thread, one beside an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from elision.manager.offload import LARGE_BYTES, choose_executor
from elision.manager.summary_worker import SummaryRunner
from elision.trajectory.plan import SummaryRequest

_T = TypeVar("_T")
_log: Final = logging.getLogger("elision.manager")


@dataclass(frozen=True, slots=True)
class StoreCall:
    """A call that may wait for the store. Its result is sent back to the steps, its exception raised in them."""

    call: Callable[[], Any]


class ComputeOn(Enum):
    """Where a pass is to be computed from now on. Without an event loop there is one thread.

    WORKER: beside the loop, for there is much to do. LARGE_WORKER: there, and after all other work that is as large.
    CALLER: in the thread of the caller, whose functions are called next.
    """

    WORKER = auto()
    LARGE_WORKER = auto()
    CALLER = auto()


@dataclass(frozen=True, slots=True)
class LeaveLoop:
    """Compute where `choose` says from now on, or go on where it says None. It is asked where there is a loop."""

    choose: Callable[[], ComputeOn | None]


#: What a pass yields, and what it is a part of: yields what takes time, and returns a `_T`.
Effect: TypeAlias = StoreCall | SummaryRequest | ComputeOn | LeaveLoop
Steps: TypeAlias = Generator[Effect, Any, _T]


def make_steps(call: Callable[[], _T]) -> Steps[_T]:
    """Return the steps of one call that may wait for the store."""
    result: _T = yield StoreCall(call)
    return result


def run_steps(steps: Steps[_T], scribe: SummaryRunner) -> _T:
    """Run steps to their end in this thread, and return their result."""
    try:
        effect = next(steps)
        while True:
            try:
                done: Any = None
                if isinstance(effect, StoreCall):
                    done = effect.call()
                elif isinstance(effect, SummaryRequest):
                    done = scribe.request_summary(effect)
            except Exception as error:  # noqa: BLE001 - handed to the pass, which knows what may fail
                effect = steps.throw(error)
            else:
                effect = steps.send(done)
    except StopIteration as end:
        found: _T = end.value
        return found
    finally:
        steps.close()


async def run_steps_async(steps: Steps[_T], scribe: SummaryRunner) -> _T:
    """Run steps to their end without blocking the event loop, and return their result."""
    move: Callable[[Any], Effect] = steps.send
    value: Any = None
    aside: Executor | None = None
    try:
        while True:
            step = partial(_advance, move, value)
            if aside is None:
                ended, effect = step()
            else:
                ended, effect = await run_off_loop(step, aside)
            if ended:
                found: _T = effect
                return found
            move = steps.send
            value = None
            try:
                if isinstance(effect, LeaveLoop):
                    place = effect.choose()
                    aside = aside if place is None else _choose_executor(place)
                elif isinstance(effect, ComputeOn):
                    aside = _choose_executor(effect)
                elif isinstance(effect, StoreCall):
                    value = await run_off_loop(effect.call)
                else:
                    value = await scribe.request_summary_async(effect)
            except Exception as error:  # noqa: BLE001 - as above
                move = steps.throw
                value = error
    finally:
        steps.close()


def _choose_executor(where: ComputeOn) -> Executor | None:
    if where is ComputeOn.CALLER:
        return None
    return choose_executor(LARGE_BYTES if where is ComputeOn.LARGE_WORKER else 0)


def _advance(move: Callable[[Any], Effect], value: Any) -> tuple[bool, Any]:
    """Return (False, the next effect), or (True, the result): a future cannot carry a StopIteration."""
    try:
        return False, move(value)
    except StopIteration as end:
        return True, end.value


async def run_off_loop(do: Callable[[], _T], executor: Executor | None = None) -> _T:
    """What `do` returns, done beside the event loop. Where that is cancelled meanwhile its end is waited for: the next
    pass must not begin beside a write of this one.

    executor: for work that computes; None for what mostly waits, as for a store.
    """
    # As `asyncio.to_thread` does it, but for its task.
    job = asyncio.get_running_loop().run_in_executor(executor, contextvars.copy_context().run, do)
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.wait([job])
        if not job.cancelled() and (error := job.exception()) is not None:
            _log.warning("a pass was cancelled while it failed: %s", type(error).__name__)
        raise
    finally:
        # It holds an error that holds this frame: together they would stay until a look for garbage.
        del job
