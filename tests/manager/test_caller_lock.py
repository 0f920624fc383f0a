"""One caller at a time: threads, tasks and event loops take turns, and none waits for ever."""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from elision.errors import ElisionError
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.manager.drivers import CallerLock
from elision.stores.memory import MemoryStore
from elision.trajectory.events import Event
from tests.manager.agents import make_history

EAGER = "masking(window=1, schedule=every-turn)"
PATIENCE = 20


class Gated(MemoryStore):
    """A store whose writers are counted; once told so, a write waits until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = self.most = 0
        self.waits = False
        self.begun, self.go = threading.Event(), threading.Event()

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            if self.waits:
                self.begun.set()
                assert self.go.wait(PATIENCE)
            return super().append(session, events, after=after, at=at, batch=batch)
        finally:
            self.inside -= 1


def opened(store: MemoryStore | None = None, **options: Any) -> ContextManager:
    return ContextManager(EAGER, session="s", store=store or MemoryStore(), **gather_options(options))


def test_a_thread_and_a_task_take_turns() -> None:
    """`prepare` in a thread waits for `prepare_async`: never two writers, no conflict, no fault."""
    store = Gated()
    context = opened(store)
    context.prepare(make_history("openai", 2))
    store.waits = True

    async def both() -> list[Any]:
        first = asyncio.ensure_future(context.prepare_async(make_history("openai", 3)))
        await asyncio.to_thread(store.begun.wait, PATIENCE)
        second = asyncio.ensure_future(asyncio.to_thread(context.prepare, make_history("openai", 4)))
        await asyncio.wait({first, second}, timeout=0)
        store.go.set()
        return await asyncio.gather(first, second)

    views = asyncio.run(both())
    assert store.most == 1
    assert [view.diagnostics.turns for view in views] == [3, 4]
    assert [view.diagnostics.faults for view in views] == [(), ()]


def test_two_event_loops_take_turns() -> None:
    """Two threads with an event loop each use one manager: both come to their end, and nothing fails."""
    context = opened()
    failures: list[Exception] = []

    async def work() -> None:
        for steps in range(12):
            view = await context.prepare_async(make_history("openai", steps))
            assert not view.diagnostics.faults

    def run() -> None:
        try:
            asyncio.run(work())
        except Exception as error:  # noqa: BLE001 - the test asks for it
            failures.append(error)

    threads = [threading.Thread(target=run, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in threads)
    assert failures == []


def test_what_would_wait_for_its_own_event_loop_is_refused() -> None:
    """A sync call beside an async one of the same loop could never end: it says so, and the other one ends well."""
    store = Gated()
    context = opened(store)
    context.prepare(make_history("openai", 2))
    store.waits = True

    async def test() -> None:
        first = asyncio.ensure_future(context.prepare_async(make_history("openai", 3)))
        await asyncio.to_thread(store.begun.wait, PATIENCE)
        with pytest.raises(ElisionError, match="another task of this event loop uses"):
            context.prepare(make_history("openai", 4))
        store.go.set()
        assert (await first).diagnostics.turns == 3
        assert context.prepare(make_history("openai", 4)).diagnostics.turns == 4

    asyncio.run(test())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_callback_may_use_the_manager_that_calls_it(is_async: bool) -> None:
    """What a pass calls is part of its turn: a listener may recall and search."""
    read: list[str] = []
    context = opened(on_event=lambda told: read.append(context.session.recall("t1.1", head=1)))
    if is_async:
        asyncio.run(context.prepare_async(make_history("openai", 2)))
    else:
        context.prepare(make_history("openai", 2))
    assert read == ["1: 1"]


def test_turns_come_in_order() -> None:
    """Threads and tasks alike, first come, first served."""
    lock, order = CallerLock(), list[int]()

    def blocking(number: int) -> None:
        with lock:
            order.append(number)

    async def awaiting(number: int) -> None:
        async with lock:
            order.append(number)

    async def test() -> None:
        async with lock:
            waiting: list[asyncio.Future[None]] = []
            for number in range(6):
                work = awaiting(number) if number % 2 else asyncio.to_thread(_in_thread, blocking, number)
                waiting.append(asyncio.ensure_future(work))
                while len(lock._waiting) <= number:
                    await asyncio.sleep(0)
        await asyncio.gather(*waiting)

    asyncio.run(test())
    assert order == list(range(6))


def _in_thread(do: Any, number: int) -> None:
    """`do(number)` in a thread that shares no turn with whoever began it."""
    thread = threading.Thread(target=do, args=(number,))
    thread.start()
    thread.join(PATIENCE)


def test_who_is_cancelled_gives_its_turn_away() -> None:
    """While it waits, and in the very moment when its turn has come."""
    lock = CallerLock()

    async def wait() -> None:
        async with lock:
            raise AssertionError("it was cancelled")

    async def test() -> None:
        async with lock:
            early, late = asyncio.create_task(wait()), asyncio.create_task(wait())
            while len(lock._waiting) < 2:
                await asyncio.sleep(0)
            early.cancel()
            await asyncio.wait({early})
        late.cancel()
        await asyncio.wait({late})
        assert early.cancelled()
        assert late.cancelled()
        async with lock:
            pass

    asyncio.run(test())
    assert lock._holder is None
    assert not lock._waiting


def test_an_event_loop_that_is_closed_holds_up_nobody() -> None:
    """Its turn goes to the next in the queue."""
    lock, loop = CallerLock(), asyncio.new_event_loop()
    entered = threading.Event()

    def enter() -> None:
        with lock:
            entered.set()

    with lock:
        gone = loop.create_task(lock.__aenter__(), context=contextvars.Context())
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
        thread = threading.Thread(target=enter)
        thread.start()
        while len(lock._waiting) < 2:
            os.sched_yield()
    assert entered.wait(PATIENCE)
    thread.join(PATIENCE)
    # Never finished, as its loop is closed; nothing is to be said of that.
    gone._log_destroy_pending = False  # type: ignore[attr-defined]
