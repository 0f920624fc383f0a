"""Beside an event loop: a history that is long to read holds up nobody, and callbacks stay where they were."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from elision import Advanced
from elision.manager import ContextManager, follow_history
from elision.manager.think_time import INLINE_BYTES
from elision.stores.memory import MemoryStore
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.redact import Redaction
from tests.manager.agents import Message, make_history, make_openai_step, make_task


def seen(*calls: list[Message]) -> tuple[set[int], set[int]]:
    """The threads in which the last of these calls was looked at, and in which its listener was called."""
    looked: set[int] = set()
    told: set[int] = set()

    def pin(message: Mapping[str, Any]) -> bool:
        looked.add(threading.get_ident())
        return False

    async def agent() -> None:
        listener = lambda _: told.add(threading.get_ident())  # noqa: E731
        async with ContextManager(store=MemoryStore(), advanced=Advanced(pin=pin), on_event=listener) as context:
            for messages in calls:
                looked.clear()
                told.clear()
                await context.prepare_async(messages)

    asyncio.run(agent())
    return looked, told


def test_a_long_history_is_read_in_a_thread() -> None:
    """The loop goes on meanwhile; whoever listens is called in the loop's own thread."""
    looked, told = seen(make_history("openai", 40))
    assert threading.get_ident() not in looked
    assert told == {threading.get_ident()}


def test_a_short_one_is_not() -> None:
    """For a little text a thread costs more than it spares, in however many messages it comes."""
    looked, told = seen([*make_task(), *(message for step in range(30) for message in make_openai_step(step, "ok"))])
    assert looked == told == {threading.get_ident()}


@pytest.mark.parametrize("known", [0, 3])
def test_one_large_message_is_read_in_a_thread(known: int) -> None:
    """What decides is bytes: the task of a session that begins, and a result in one that runs."""
    ahead = [make_history("openai", known)] if known else []
    last = make_openai_step(known + 1, "word " * INLINE_BYTES) if known else make_task("word " * INLINE_BYTES)
    looked, _ = seen(*ahead, [*(ahead[0] if ahead else []), *last])
    assert threading.get_ident() not in looked


def test_a_small_turn_of_a_long_history_is_read_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its summary, or fitting it into a budget, is work on all of it."""
    monkeypatch.setattr(follow_history, "LONG_HISTORY_TOKENS", 16_000)
    long = make_history("openai", 60)
    looked, told = seen(long, [*long, *make_openai_step(61, "ok")])
    assert threading.get_ident() not in looked
    assert told == {threading.get_ident()}


def test_a_history_that_is_being_summarized_is_redacted_once() -> None:
    """In the thread that has it written, however many calls go out meanwhile."""
    begun, go, redacted = threading.Event(), threading.Event(), list[int]()

    class Watched(Redaction):
        def redact_and_count(self, text: str) -> tuple[str, int]:
            if text.startswith("1\n"):
                redacted.append(threading.get_ident())
            return super().redact_and_count(text)

    def write(request: SummaryRequest) -> str:
        begun.set()
        go.wait(20)
        return "All is well."

    async def agent() -> None:
        context = ContextManager(
            "summarization(every=4, tail=2, schedule=every-turn, fold=false)",
            store=MemoryStore(),
            summarizer=write,
            advanced=Advanced(background=True, redaction=Watched()),
        )
        reasons = []
        for steps in range(5, 12):
            view = await context.prepare_async(make_history("openai", steps))
            reasons.append(view.diagnostics.reason)
            if "summary is being written" in reasons:
                await asyncio.to_thread(begun.wait, 20)
        assert reasons.count("summary is being written") >= 4
        go.set()
        await context.__aexit__(None, None, None)

    asyncio.run(agent())
    assert len(redacted) == 1
    assert threading.get_ident() not in redacted


def test_a_reading_that_is_cancelled_is_waited_for() -> None:
    """The next pass does not begin beside it, and finds everything as it was."""
    begun, go = threading.Event(), threading.Event()

    def pin(message: Mapping[str, Any]) -> bool:
        begun.set()
        go.wait(20)
        return False

    async def agent() -> None:
        store = MemoryStore()
        context = ContextManager("masking(window=2, fold=false)", store=store, advanced=Advanced(pin=pin))
        reading = asyncio.ensure_future(context.prepare_async(make_history("openai", 40)))
        await asyncio.to_thread(begun.wait, 20)
        reading.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await reading
        view = await context.prepare_async(make_history("openai", 41))
        other = await ContextManager("masking(window=2, fold=false)", store=MemoryStore()).prepare_async(
            make_history("openai", 41)
        )
        assert json.dumps(view.messages) == json.dumps(other.messages)
        assert (view.diagnostics.turns, view.diagnostics.faults) == (41, ())

    asyncio.run(agent())


def test_what_is_raised_there_is_raised_here() -> None:
    """An error that the caller has to mend reaches him from the thread as well."""
    from elision.errors import BudgetError

    async def agent() -> None:
        context = ContextManager("masking(budget=budget(tokens=200, reserved=100))", store=MemoryStore())
        with pytest.raises(BudgetError):
            await context.prepare_async(make_history("openai", 40, "Mend the parser. " * 200))

    asyncio.run(agent())
