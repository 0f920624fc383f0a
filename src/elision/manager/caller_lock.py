"""One caller at a time, whether it is a thread or a task of any event loop.

Callers take turns in the order in which they came. A caller may enter again: what it calls, or starts in a thread with
a copy of its context, shares its turn. Another task of its event loop does not: both could be at work at once.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from elision.errors import ElisionError

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
