"""`Sessions`: one context manager for each history of an application, over one store."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import Advanced, Cache, ContextManager, ElisionError, Sessions, open_store
from elision.errors import SettingError
from elision.manager.advanced_options import gather_options
from elision.manager.session_pool import RESPONSE_SECONDS
from elision.stores.memory import MemoryStore
from elision.stores.store import NewSession
from tests.manager.agents import make_history

EAGER = "masking(window=2, schedule=every-turn)"
USAGE = {"prompt_tokens": 700, "completion_tokens": 30}


class Clock:
    """Seconds that pass when a test says so."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def open_pool(store: Any = "memory:", **options: Any) -> Sessions:
    return Sessions(EAGER, store=store, **gather_options(options))


def make_call(context: ContextManager, steps: int, words: str = "Mend the parser.") -> Any:
    """Prepare and record one call."""
    view = context.prepare(make_history("openai", steps, words))
    context.record(USAGE)
    return view


def test_a_name_has_one_context_manager() -> None:
    """The same one each time, also from several threads at once."""
    with open_pool() as sessions:
        barrier = threading.Barrier(8)

        def open_one(number: int) -> ContextManager:
            barrier.wait()
            return sessions.open(f"thread-{number % 2}")

        with ThreadPoolExecutor(8) as executor:
            found = list(executor.map(open_one, range(8)))
        assert len(set(map(id, found))) == len(sessions) == 2
        assert {context.session.name for context in found} == {"thread-0", "thread-1"}


def test_histories_that_take_turns_do_not_fork() -> None:
    """Each has a session of its own, so that none is looked up anew, and each hides what is its own."""
    store = MemoryStore()
    with open_pool(store) as sessions:
        for steps in range(8):
            for words in ("Mend the parser.", "Write the tests."):
                view = make_call(sessions.open(words), steps, words)
                assert view.diagnostics.history == "continue"
        assert view.diagnostics.savings.masked == 5
    assert sorted(info.key for info in store.sessions()) == ["Mend the parser.", "Write the tests."]


def test_a_released_session_continues_from_the_store() -> None:
    """The same bytes, as in another process; what it recorded last was stored."""
    store = MemoryStore()
    with open_pool(store, limit=1) as sessions:
        make_call(sessions.open("a"), 6)
        make_call(sessions.open("b"), 1)
        assert len(sessions) == 1
        gc.collect()
        view = sessions.open("a").prepare(make_history("openai", 7))
        assert view.diagnostics.history == "continue"
        assert view.diagnostics.call == 8
        assert view.diagnostics.costs.billed is not None
    alone = ContextManager(EAGER, store="memory:", session="a")
    make_call(alone, 6)
    assert alone.prepare(make_history("openai", 7)).messages == view.messages


def test_a_released_session_that_is_held_stays_the_only_one() -> None:
    """Two context managers for one history would conflict."""
    with open_pool(limit=1) as sessions:
        held = sessions.open("a")
        make_call(held, 1)
        sessions.open("b")
        assert len(sessions) == 1
        assert sessions.open("a") is held


def test_the_least_recently_opened_is_released() -> None:
    """Opening makes a session the newest."""
    with open_pool(limit=2) as sessions:
        first = id(sessions.open("a"))
        sessions.open("b")
        sessions.open("a")
        sessions.open("c")
        assert id(sessions.open("a")) == first
        assert [*sessions._held] == ["c", "a"]


def test_idle_sessions_are_released() -> None:
    """When the next one is opened."""
    clock = Clock()
    with open_pool(clock=clock, idle_seconds=60) as sessions:
        make_call(sessions.open("a"), 1)
        clock.now += 61
        sessions.open("b")
        assert [*sessions._held] == ["b"]


def test_a_session_that_awaits_its_response_is_held() -> None:
    """Its usage is recorded with it; after ten minutes no response is expected."""
    clock = Clock()
    with open_pool(clock=clock, limit=1) as sessions:
        waiting = sessions.open("a")
        waiting.prepare(make_history("openai", 1))
        assert waiting.session.awaits_response
        sessions.open("b")
        assert [*sessions._held] == ["a", "b"]
        waiting.record(USAGE)
        assert not waiting.session.awaits_response
        sessions.open("c")
        assert [*sessions._held] == ["c"]
        sessions.open("c").prepare(make_history("openai", 1))
        clock.now += RESPONSE_SECONDS + 1
        sessions.open("d")
        assert [*sessions._held] == ["d"]


@given(opened=st.lists(st.sampled_from("abcdef"), max_size=30), limit=st.integers(1, 4))
def test_the_limit_holds(opened: list[str], limit: int) -> None:
    """Whatever is opened: the newest ones are held, no more than the limit."""
    with open_pool(limit=limit) as sessions:
        for number, name in enumerate(opened):
            sessions.open(name)
            newest = list(dict.fromkeys(reversed(opened[: number + 1])))[:limit]
            assert [*sessions._held] == newest[::-1]


def test_a_sub_agent_has_its_parent() -> None:
    """It can recall what its parent saw."""
    store = MemoryStore()
    with open_pool(store) as sessions:
        make_call(sessions.open("main"), 3)
        sessions.settle()
        helper = sessions.open("main/helper", parent="main")
        make_call(helper, 1, "Look at the parser.")
        assert helper.session.recall("main:t1.1", head=1) == "1: 1"
    assert store.info("main/helper").parent == "main"


def test_closing_stores_and_closes_what_it_opened(tmp_path: Any) -> None:
    """A store that was given stays open, one that was opened by its address does not."""
    address = f"sqlite:///{tmp_path}/agents.db"
    sessions = open_pool(address)
    make_call(sessions.open("a"), 1)
    sessions.close()
    sessions.close()
    with pytest.raises(ElisionError, match="these sessions are closed"):
        sessions.open("a")
    store = open_store(address)
    with open_pool(store) as again:
        assert make_call(again.open("a"), 2).diagnostics.turns == 2
    assert store.info("a").key == "a"
    store.close()


def test_tasks_of_an_event_loop_open_sessions() -> None:
    """Opening never waits, and each session serves its own task."""

    async def work(sessions: Sessions, name: str) -> int:
        for steps in range(1, 5):
            view = await sessions.open(name).prepare_async(make_history("openai", steps, name))
            sessions.open(name).record(USAGE)
        return view.diagnostics.turns

    async def work_all() -> list[int]:
        async with open_pool(limit=2) as sessions:
            return await asyncio.gather(*(work(sessions, f"task {number}") for number in range(6)))

    assert asyncio.run(work_all()) == [4] * 6


def test_opening_does_not_wait_for_the_store() -> None:
    """What a released session has not stored is written by a thread."""
    gate = threading.Event()

    class SlowStore(MemoryStore):
        def append(self, *values: Any, **named: Any) -> Any:
            assert gate.wait(60)
            return super().append(*values, **named)

    with open_pool(SlowStore(), limit=1) as sessions:
        make_call(sessions.open("a"), 1)
        sessions.open("b")
        gate.set()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"session": "a"}, "session: each session of a pool has its own; give it to open"),
        ({"parent": "a"}, "parent: each session of a pool has its own; give it to open"),
        ({"limit": 0}, "limit=0: give a number of sessions, 1 or more"),
        ({"idle_seconds": 0}, "idle_seconds=0: give seconds, above 0"),
        ({"modle": "gpt-5"}, "there is no option 'modle'; did you mean model"),
        ({"recall": "sometimes"}, "recall='sometimes': give"),
    ],
)
def test_options_without_a_meaning(options: dict[str, Any], words: str) -> None:
    """They are refused before the first session is opened."""
    with pytest.raises(SettingError, match=words):
        open_pool(**options)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 401, "a~2", 5])
def test_names_that_are_none(name: Any) -> None:
    """An error says which; the pool goes on."""
    with open_pool() as sessions:
        with pytest.raises(SettingError):
            sessions.open(name)
        assert len(sessions) == 0
        sessions.open("a")


def test_the_model_of_the_first_call_decides_where_the_options_name_none() -> None:
    """Its prices, not the usual ones, are those of decisions and of the report."""
    history = make_history("openai", 3)
    with Sessions("masking(window=2)", store=MemoryStore()) as sessions:
        first = sessions.open("one", model="gpt-5")
        first.prepare(history, model="gpt-5")
        told = ContextManager("masking(window=2)", store=MemoryStore(), session="two", model="gpt-5")
        told.prepare(history)
        assert first.session.report().savings == told.session.report().savings
        told.close()
        assert sessions.open("one", model="claude-sonnet-4-5") is first
    with Sessions("masking(window=2)", store=MemoryStore(), model="gpt-5") as sessions:
        assert sessions.open("one", model="claude-sonnet-4-5")._opened.options.model == "gpt-5"


def test_a_session_that_was_looked_at_begins_as_its_first_call_says() -> None:
    """Whoever opened it before to read its report named neither model nor parent, nor who sets cache breakpoints."""
    store = MemoryStore()
    history = make_history("anthropic", 3)
    with Sessions("masking(window=2)", store=store) as sessions:
        assert sessions.open("one").session.report().calls == 0
        context = sessions.open("one", parent="main", model="claude-sonnet-4-5", cache_control="client")
        view = context.prepare(history, model="claude-sonnet-4-5")
        assert "cache_control" not in str(view.messages)
        assert (
            context._opened.options.find_prices()
            == ContextManager(store="memory:", model="claude-sonnet-4-5")._opened.options.find_prices()
        )
        assert [(info.key, info.parent) for info in store.sessions()] == [("one", "main")]
        assert sessions.open("one", model="gpt-5", cache_control="auto")._opened.options.model == "claude-sonnet-4-5"
        assert "cache_control" not in str(context.prepare(history).messages)


def test_what_the_options_name_holds_for_a_session_that_was_looked_at() -> None:
    """A model and a place for breakpoints that the pool was given are those of each session."""
    with Sessions(
        "masking(window=2)", store="memory:", model="gpt-5", advanced=Advanced(cache=Cache(control="auto"))
    ) as sessions:
        first = sessions.open("one")
        first.compact()
        assert sessions.open("one", model="claude-sonnet-4-5", cache_control="client") is first
        assert (first._opened.options.model, first._opened.options.cache_control) == ("gpt-5", "auto")


def test_a_wish_is_kept_until_the_first_call() -> None:
    """`compact` before the call that begins the session here counts for it, whatever that call brings."""
    with Sessions("masking(window=2)", store="memory:") as sessions:
        sessions.open("one").compact()
        view = sessions.open("one", model="gpt-5").prepare(make_history("openai", 8), model="gpt-5")
        assert len(view.diagnostics.masked) == 6


def test_every_listed_session_can_be_opened() -> None:
    """A session whose history forked is listed once, by the name that `open` takes, with the branch it continues."""
    store = MemoryStore()
    store.create(NewSession(key="two\nlines", family="two\nlines", at=1.0))
    store.create(NewSession(key="ends~1", family="ends~1", at=1.0))
    store.create(NewSession(key="gateway-1", family="k0123", at=1.0))
    with open_pool(store) as sessions:
        for steps in (6, 3):
            make_call(sessions.open("a"), steps)
        fork = [*make_history("openai", 2), {"role": "user", "content": "Another way."}]
        sessions.open("a").prepare(fork)
        make_call(sessions.open("a/helper", parent="a"), 1, "Look.")
        sessions.settle()
        assert len(store.sessions()) > 5
        listed = {info.key: info for info in sessions.list_sessions()}
        assert {name: info.parent for name, info in listed.items()} == {"a": "", "a/helper": "a"}
        reports = {name: sessions.open(name).session.report() for name in listed}
    with open_pool(store) as again:
        for name, info in listed.items():
            assert again.open(name).session.report().turns == reports[name].turns == info.turns
