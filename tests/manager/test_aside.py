"""Beside an event loop: a history that is long to read holds up nobody, and callbacks stay where they were."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from lacuna.manager import ContextManager
from lacuna.stores.memory import MemoryStore

from .agents import history


def seen(steps: int) -> tuple[set[int], set[int]]:
    """The threads in which messages were looked at, and in which the listener was called, in a cold start."""
    looked: set[int] = set()
    told: set[int] = set()

    def pin(message: Mapping[str, Any]) -> bool:
        looked.add(threading.get_ident())
        return False

    async def agent() -> None:
        listener = lambda _: told.add(threading.get_ident())  # noqa: E731
        async with ContextManager(store=MemoryStore(), pin=pin, on_event=listener) as context:
            await context.prepare_async(history("openai", steps))

    asyncio.run(agent())
    return looked, told


def test_a_long_history_is_read_in_a_thread() -> None:
    """The loop goes on meanwhile; whoever listens is called in the loop's own thread."""
    looked, told = seen(40)
    assert threading.get_ident() not in looked
    assert told == {threading.get_ident()}


def test_a_short_one_is_not() -> None:
    """For a few messages a thread costs more than it spares."""
    looked, told = seen(5)
    assert looked == told == {threading.get_ident()}


def test_a_reading_that_is_cancelled_is_waited_for() -> None:
    """The next pass does not begin beside it, and finds everything as it was."""
    begun, go = threading.Event(), threading.Event()

    def pin(message: Mapping[str, Any]) -> bool:
        begun.set()
        go.wait(20)
        return False

    async def agent() -> None:
        store = MemoryStore()
        context = ContextManager("masking(window=2)", store=store, pin=pin)
        reading = asyncio.ensure_future(context.prepare_async(history("openai", 40)))
        await asyncio.to_thread(begun.wait, 20)
        reading.cancel()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await reading
        view = await context.prepare_async(history("openai", 41))
        other = await ContextManager("masking(window=2)", store=MemoryStore()).prepare_async(history("openai", 41))
        assert json.dumps(view.messages) == json.dumps(other.messages)
        assert (view.diagnostics.turns, view.diagnostics.faults) == (41, ())

    asyncio.run(agent())


def test_what_is_raised_there_is_raised_here() -> None:
    """An error that the caller has to mend reaches him from the thread as well."""
    from lacuna.errors import BudgetError

    async def agent() -> None:
        context = ContextManager(store=MemoryStore(), token_budget=200, reserved_for_response=100)
        with pytest.raises(BudgetError):
            await context.prepare_async(history("openai", 40, "Mend the parser. " * 200))

    asyncio.run(agent())
