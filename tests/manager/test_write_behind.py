"""Written behind: what hides nothing goes out first and is stored while the provider works; nothing is lost by it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from elision.manager import ContextManager, ContextView
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession
from elision.trajectory.events import Event, UsageReported
from tests import flat_options
from tests.manager.agents import SHAPES, make_history
from tests.manager.stores import FailingStore

EAGER = "masking(window=2, schedule=every-turn, fold=false)"


def manager(store: MemoryStore, strategy: str = EAGER, **options: Any) -> ContextManager:
    given = {"session": "s", "cache_control": "client", "write_behind": True, "clock": lambda: 1.0, **options}
    return flat_options.open_context(strategy, store=store, **given)


def dumped(view: ContextView) -> str:
    return json.dumps(view.messages)


def written(store: MemoryStore) -> list[Event]:
    return [event for info in store.sessions() for event in store.events(info.key)]


def test_a_pass_that_hides_nothing_goes_out_before_it_is_written() -> None:
    """The store knows nothing of it until it is settled, and then all of it."""
    store = MemoryStore()
    context = manager(store)
    view = context.prepare(make_history("openai", 2))
    assert (written(store), view.diagnostics.turns) == ([], 2)
    assert context.settle() is None
    assert [turn.index for turn in store.turns("s")] == [1, 2]
    assert context.settle() is None


def test_a_pass_that_hides_something_is_written_before_it_goes_out() -> None:
    """What is missing in the view is in the store when the caller gets it, and so is the decision."""
    store = MemoryStore()
    context = manager(store)
    context.prepare(make_history("openai", 2))
    view = context.prepare(make_history("openai", 3))
    assert view.diagnostics.masked
    again = manager(store).prepare(make_history("openai", 3))
    assert dumped(again) == dumped(view)
    assert len(store.turns("s")) == 3


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("settles", [True, False])
def test_views_and_log_are_the_same_as_without(shape: str, settles: bool) -> None:
    """Whether the caller settles or leaves it to the next pass, what was sent and what is stored do not differ."""
    behind, before = MemoryStore(), MemoryStore()
    dialect = "openai" if shape == "text" else shape
    one, other = manager(behind, dialect=dialect), manager(before, dialect=dialect, write_behind=False)
    for steps in range(7):
        views = [context.prepare(make_history(shape, steps)) for context in (one, other)]
        assert dumped(views[0]) == dumped(views[1])
        for context in (one, other):
            context.record({"input_tokens": 5_000, "output_tokens": 9})
        assert not settles or one.settle() is None
    one.close()
    other.close()
    assert written(behind) == written(before)
    assert len(written(before)) > 20


def test_off_the_event_loop() -> None:
    """The async way writes the same."""
    store = MemoryStore()

    async def agent() -> None:
        async with manager(store) as context:
            for steps in range(4):
                view = await context.prepare_async(make_history("openai", steps))
                known = len(written(store))
                assert await context._opened.settle_async() is None
                assert (len(written(store)) > known) != view.diagnostics.acted
                context.record({"input_tokens": 5_000, "output_tokens": 9})

    asyncio.run(agent())
    assert [event.call for event in written(store) if isinstance(event, UsageReported)] == [1, 2, 3, 4]


def test_a_store_that_fails_behind_the_pass() -> None:
    """The caller is told; the next views stay as decided, and what was owed is written once the store serves again."""
    store = FailingStore()
    context = manager(store)
    for steps in range(5):
        context.prepare(make_history("openai", steps))
    view = context.prepare([*make_history("openai", 4), {"role": "user", "content": "Go on."}])
    store.is_down = True
    fault = context.settle()
    assert fault is not None
    assert (fault.kind, fault.cause, fault.what) == ("store", "StoreError", "the disk is full: free some space")
    refused = store.refused_writes
    held = context.prepare(make_history("openai", 6))
    assert held.diagnostics.reason == "held: nothing more is hidden while the store fails"
    assert [fault.kind for fault in held.diagnostics.faults] == ["store"]
    assert store.refused_writes == refused + 1, "a store that fails is asked once a pass"
    assert dumped(held)[: len(dumped(view)) // 2] == dumped(view)[: len(dumped(view)) // 2]
    store.is_down = False
    context.prepare(make_history("openai", 7))
    context.settle()
    assert [turn.index for turn in store.turns(context.prepare(make_history("openai", 7)).diagnostics.branch)] == [
        *range(1, 8)
    ]


def test_a_store_that_is_busy_is_asked_in_a_thread() -> None:
    """Where nobody knows at once how long the log is, it is waited for, and the pass goes on as ever."""

    class Busy(MemoryStore):
        def try_length(self, session: str) -> int | None:
            return None

    store = Busy()
    one, two = manager(store), manager(store)
    for steps in range(6):
        context = (one, two)[steps % 2]
        assert context.prepare(make_history("openai", steps)).diagnostics.turns == steps
        assert context.settle() is None
    assert [info.key for info in store.sessions()] == ["s"]


def test_a_store_that_cannot_say_how_long_the_log_is() -> None:
    """Who does not know whether others went on must not decide: the view stays as it was."""

    class Silent(MemoryStore):
        silent = False

        def length(self, session: str) -> int:
            if self.silent:
                from elision.errors import StoreError

                raise StoreError("no connection")
            return super().length(session)

    store = Silent()
    context = manager(store)
    for steps in range(4):
        context.prepare(make_history("openai", steps))
        assert context.settle() is None
    store.silent = True
    view = context.prepare(make_history("openai", 6))
    assert (view.diagnostics.acted, [fault.kind for fault in view.diagnostics.faults]) == (False, ["store"])
    store.silent = False
    assert context.prepare(make_history("openai", 6)).diagnostics.acted


def test_a_settling_that_is_cancelled_is_waited_for() -> None:
    """A write that has begun is not left alone: nothing of it is lost or written twice."""
    begun, go = threading.Event(), threading.Event()

    class Slow(MemoryStore):
        def create_with_events(
            self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b""
        ) -> int:
            begun.set()
            go.wait(20)
            return super().create_with_events(session, events, at=at, batch=batch)

    store = Slow()

    async def agent() -> None:
        context = manager(store)
        await context.prepare_async(make_history("openai", 2))
        settling = asyncio.ensure_future(context._opened.settle_async())
        await asyncio.to_thread(begun.wait, 20)
        settling.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await settling
        assert await context._opened.settle_async() is None
        await context.prepare_async(make_history("openai", 2))
        await context._opened.settle_async()

    asyncio.run(agent())
    assert [turn.index for turn in store.turns("s")] == [1, 2]


def test_settling_never_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a bug of ours reaches the caller, and the next pass begins from the store."""
    context = manager(MemoryStore())
    assert context.settle() is None
    context.prepare(make_history("openai", 2))
    with monkeypatch.context() as patch:
        patch.setattr("elision.manager.shared_log.LogWriter._write_or_read_others", lambda *_: 1 / 0)
        fault = context.settle()
    assert fault is not None
    assert (fault.kind, fault.cause) == ("engine", "ZeroDivisionError")
    assert context.prepare(make_history("openai", 3)).diagnostics.turns == 3


def test_turns_by_hand_are_not_written_behind() -> None:
    """They come from nowhere again, so their view is durable before it goes out, as ever."""
    store = MemoryStore()
    context = manager(store)
    context.turns.begin("Mend the parser.")
    context.turns.add("I look.", "cat a.py", "text")
    context.turns.view()
    assert len(store.turns("s")) == 1


def test_what_closes_writes() -> None:
    """What nobody settled is written with the end."""
    store = MemoryStore()
    context = manager(store)
    context.prepare(make_history("openai", 1))
    context.record({"input_tokens": 10, "output_tokens": 2})
    context.close()
    assert isinstance(written(store)[-1], UsageReported)
