"""The two drivers that run the steps of a call, one in the caller's thread, one beside an event loop; and their lock.

Callers, whether threads or tasks of any event loop, take turns in the order in which they came. A caller may enter
again: what it calls, or starts in a thread with a copy of its context, shares its turn. Another task of its event loop
does not: both could be at work at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable, Generator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from elision.errors import ElisionError
from elision.manager.summary_worker import SummaryRunner
from elision.manager.think_time import LARGE_BYTES, choose_executor
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


_Loop = asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True, eq=False)
class _CallerTurn:
    """One caller's turn. loop, task: where it waits, None for a thread. wake: called when the turn has come."""

    loop: _Loop | None = None
    task: asyncio.Task[Any] | None = None
    wake: Callable[[], object] = field(default=lambda: None)


#: The turns that the code at hand is a part of, of all locks; those that are over do no harm.
_TURNS: Final[contextvars.ContextVar[tuple[_CallerTurn, ...]]] = contextvars.ContextVar("elision_turns", default=())


class CallerLock:
    """For `with` and for `async with`."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._holder: _CallerTurn | None = None
        self._depth = 0
        self._waiting: deque[_CallerTurn] = deque()

    def __enter__(self) -> None:
        gate = threading.Lock()
        gate.acquire()
        turn = _CallerTurn(wake=gate.release)
        if self._enter_or_join(turn):
            return
        try:
            gate.acquire()
        except BaseException:
            self._give_up(turn)
            raise

    def __exit__(self, *_: object) -> None:
        with self._mutex:
            self._depth -= 1
            if not self._depth:
                _forget_turn(self._holder)
                if self._waiting:
                    self._pass_on()
                else:
                    self._holder = None

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        come = loop.create_future()
        wake = partial(loop.call_soon_threadsafe, _resolve_future, come)
        turn = _CallerTurn(loop=loop, task=asyncio.current_task(), wake=wake)
        if self._enter_or_join(turn):
            return
        try:
            await come
        except BaseException:
            self._give_up(turn)
            raise

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    # -- turns ---------------------------------------------------------------------------------------------------

    def _enter_or_join(self, turn: _CallerTurn) -> bool:
        """Take the turn, or enter it once more from a part of it, and return True; else join the queue.

        Raises ElisionError where a turn that comes first needs the event loop that would stand still meanwhile.
        """
        turns = _TURNS.get()
        with self._mutex:
            holder = self._holder
            if holder is not None:
                loop = _running_loop()
                is_same_loop = holder.loop is not None and holder.loop is loop
                if holder in turns and not (is_same_loop and holder.task is not asyncio.current_task()):
                    self._depth += 1
                    return True
                if turn.loop is None and loop and any(each.loop is loop for each in (holder, *self._waiting)):
                    raise ElisionError(
                        "another task of this event loop uses this context manager, and a sync call cannot "
                        "wait for it: await that task first, or call the method whose name ends in _async"
                    )
            # Before it is taken: Ctrl-C may come between the two, and then this caller can still enter.
            _TURNS.set((*turns, turn))
            if holder is not None:
                self._waiting.append(turn)
                return False
            self._holder = turn
            self._depth = 1
            return True

    def _give_up(self, turn: _CallerTurn) -> None:
        """The caller waits no longer; where its turn has come meanwhile, it is the next one's."""
        with self._mutex:
            _forget_turn(turn)
            if self._holder is turn:
                self._pass_on()
            elif turn in self._waiting:
                self._waiting.remove(turn)

    def _pass_on(self) -> None:
        self._holder = None
        while self._waiting:
            turn = self._waiting.popleft()
            self._holder = turn
            self._depth = 1
            try:
                turn.wake()
            except RuntimeError:
                # Its event loop is closed: nobody waits there any more.
                self._holder = None
            else:
                return


def _running_loop() -> _Loop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _resolve_future(come: asyncio.Future[None]) -> None:
    if not come.done():
        come.set_result(None)


def _forget_turn(turn: _CallerTurn | None) -> None:
    _TURNS.set(tuple(each for each in _TURNS.get() if each is not turn))
