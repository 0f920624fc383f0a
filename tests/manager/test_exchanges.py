"""What the client never saw: noted in the log, kept by the store, found again by what the client says."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.manager.opened_session import Exchanges
from elision.stores.memory import MemoryStore
from elision.stores.store_urls import open_store
from elision.trajectory.events import RecallExchanged
from tests.manager.agents import SHAPES, make_history

EAGER = "masking(window=2, schedule=every-turn)"


def manager(store: Any, session: str = "s", **options: Any) -> ContextManager:
    return ContextManager(EAGER, store=store, session=session, **gather_options(options))


def noted(context: ContextManager, node: str) -> RecallExchanged:
    assert Exchanges(context._opened).record(node=node, messages=('{"role":"assistant"}', "{}"), results=("[]",))
    return Exchanges(context._opened).list_events()[-1]


def test_an_exchange_is_noted_at_its_call() -> None:
    """With the newest call, its very texts, and nothing about the view changes."""
    context = manager(MemoryStore())
    view = context.prepare(make_history("openai", 3))
    event = noted(context, "n")
    assert event == RecallExchanged(call=4, node="n", messages=('{"role":"assistant"}', "{}"), results=("[]",))
    assert context.prepare(make_history("openai", 3)).messages == view.messages


def test_before_a_session_there_is_nothing_to_note_it_in() -> None:
    """Whoever notes it is told."""
    context = manager(MemoryStore())
    assert not Exchanges(context._opened).record(node="n", messages=("{}",))
    assert Exchanges(context._opened).list_events() == []


@pytest.mark.parametrize("shape", SHAPES)
def test_another_process_finds_it_by_the_messages(shape: str, tmp_path: Path) -> None:
    """By content, in the store, whether the messages end as they did, go on, or end earlier; and takes nothing up."""
    url = f"sqlite:////{str(tmp_path / 'a.db').lstrip('/')}"
    with manager(url) as context:
        context.prepare(make_history(shape, 3))
        event = noted(context, "n")
    with manager(url) as other:
        assert all(Exchanges(other._opened).find_stored(make_history(shape, steps)) == [event] for steps in (2, 3, 5))
        assert Exchanges(other._opened).list_events() == []
        assert Exchanges(other._opened).find_stored(make_history(shape, 0)) == []
        assert Exchanges(other._opened).find_stored(make_history(shape, 3, "Another task.")) == []
        other.prepare(make_history(shape, 4))
        assert Exchanges(other._opened).list_events() == [event]


def test_beside_an_event_loop(tmp_path: Path) -> None:
    """The same."""
    store = open_store(f"sqlite:////{str(tmp_path / 'a.db').lstrip('/')}")
    with manager(store) as context:
        context.prepare(make_history("openai", 2))
        event = noted(context, "n")
    assert asyncio.run(Exchanges(manager(store)._opened).find_stored_async(make_history("openai", 2))) == [event]
    store.close()


def test_a_fork_has_what_came_before_it() -> None:
    """And not what its parent exchanged later; each branch keeps its own."""
    store = MemoryStore()
    context = manager(store)
    context.prepare(make_history("openai", 2))
    first = noted(context, "first")
    context.prepare(make_history("openai", 4))
    second = noted(context, "second")
    fork = [*make_history("openai", 3), {"role": "user", "content": "Stop that."}]
    assert context.prepare(fork).diagnostics.branch == "s~2"
    assert Exchanges(context._opened).list_events() == [first]
    third = noted(context, "third")
    context.close()
    # Up to where they part nothing tells the branches apart: all of them are looked at, the nearest counts last.
    assert Exchanges(manager(store)._opened).find_stored(make_history("openai", 2)) == [first, second, third]
    again = manager(store)
    again.prepare(make_history("openai", 4))
    assert Exchanges(again._opened).list_events() == [first, second]


def test_families_do_not_see_each_other() -> None:
    """Whoever has another key finds nothing, whatever the messages say."""
    store = MemoryStore()
    with manager(store, "a", family="one") as context:
        context.prepare(make_history("openai", 3))
        noted(context, "n")
    assert Exchanges(manager(store, "b", family="two")._opened).find_stored(make_history("openai", 3)) == []
    assert len(Exchanges(manager(store, "b", family="one")._opened).find_stored(make_history("openai", 3))) == 1
