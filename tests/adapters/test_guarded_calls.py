"""What an adapter's call does when Elision fails, when a prompt is too long, and when all is well."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from elision import ElisionError, Sessions, Usage, open_store
from elision.adapters.guarded_calls import RECALL_FAULT, GuardedCalls, SessionOwner, list_recall_definitions
from elision.adapters.mirror import Mirror
from elision.errors import SettingError
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.stores.memory import MemoryStore
from elision.stores.store_errors import CHECK_COMMAND
from elision.trajectory.events import UsageReported
from tests.manager.agents import make_history

STRATEGY = "masking(window=2, schedule=every-turn, fold=false)"


@pytest.fixture
def calls() -> Iterator[GuardedCalls]:
    with Sessions(STRATEGY, store=MemoryStore(), model="gpt-5") as sessions:
        yield GuardedCalls(sessions)


def count_hidden(messages: list[Any]) -> int:
    return sum("tokens hidden" in str(message) for message in messages)


def test_a_call_is_prepared_and_recorded(calls: GuardedCalls) -> None:
    history = make_history("openai", 6)
    call = calls.begin("s", history, tools=None)
    assert count_hidden(call.messages) == 4
    call.record(Usage.from_inclusive(prompt=700, output=5))
    assert call.view is not None
    assert calls.sessions.open("s").prepare(history).diagnostics.costs.billed is not None


async def test_the_asynchronous_twin_does_the_same(calls: GuardedCalls) -> None:

    call = await calls.begin_async("s", make_history("openai", 6))
    assert count_hidden(call.messages) == 4
    assert not await call.retry_async(ValueError("no network"))


def test_messages_of_another_kind_are_mirrored(calls: GuardedCalls) -> None:
    """Each is a pair of a number and a plain message: those that nothing is hidden of are the very objects."""
    given = list(enumerate(make_history("openai", 6)))
    mirror: Mirror[tuple[int, dict[str, Any]]] = Mirror(
        lambda pair: [pair[1]],
        lambda pair, sent: (pair[0], sent[0]),
        lambda text: (-1, {"role": "user", "content": text}),
    )
    call = calls.begin("s", given, mirror)
    assert count_hidden(call.messages) == 4
    assert sum(one is two for one, two in zip(call.messages, given, strict=True)) == len(given) - 4


@pytest.mark.parametrize("name", ["", "two\nlines"])
def test_a_name_that_is_none_lets_the_request_out(calls: GuardedCalls, name: str) -> None:
    history = make_history("openai", 6)
    assert calls.begin(name, history).messages == history
    assert calls.answer_recall(name, "elision_recall", {"handle": "t1.1"}) == RECALL_FAULT


def test_what_fails_is_logged_and_the_next_call_is_ours_again(
    calls: GuardedCalls, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    history = make_history("openai", 6)
    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr(ContextManager, "call", lambda *_, **__: 1 / 0)
        call = calls.begin("s", history)
    assert call.messages == history
    assert call.view is None
    assert not call.retry(ValueError("prompt is too long: 9 tokens > 8 maximum"))
    call.record(Usage(input=5))
    assert "the agent continues without it" in caplog.text
    assert count_hidden(calls.begin("s", history).messages) == 4


def test_usage_that_is_none_is_logged(calls: GuardedCalls, caplog: pytest.LogCaptureFixture) -> None:
    calls.begin("s", make_history("openai", 1)).record("a text")
    assert "could not be recorded" in caplog.text


def test_a_prompt_that_is_too_long_is_made_shorter_once() -> None:
    with Sessions("masking(window=10, fold=false)", store=MemoryStore(), model="gpt-5") as sessions:
        call = GuardedCalls(sessions).begin("s", make_history("openai", 8))
        before = call.messages
        error = ValueError("prompt is too long: 9000 tokens > 4000 maximum")
        assert call.retry(error)
        assert count_hidden(call.messages) > count_hidden(before)
        assert not call.retry(error)


def test_recall_tools_are_defined_and_answered(calls: GuardedCalls) -> None:
    history = make_history("openai", 6)
    calls.begin("s", history)
    defined = list_recall_definitions()
    assert [tool.name for tool in defined] == ["elision_recall", "elision_search"]
    assert defined[0].schema["required"] == ["handle"]
    assert calls.answer_recall("s", "elision_recall", {"handle": "t1.1", "head": 1}).startswith("1: 1")


async def test_recall_is_answered_off_the_loop(calls: GuardedCalls) -> None:

    await calls.begin_async("s", make_history("openai", 6))
    answer = await calls.answer_recall_async("s", "elision_recall", '{"handle": "t1.1", "head": 1}')
    assert answer.startswith("1: 1")
    assert await calls.answer_recall_async("", "elision_recall", {}) == RECALL_FAULT


def test_an_adapter_closes_the_sessions_that_it_made() -> None:
    with SessionOwner(STRATEGY, store="memory:") as adapter:
        adapter.sessions.open("s")
    with pytest.raises(ElisionError, match="closed"):
        adapter.sessions.open("s")


def test_an_adapter_does_not_close_the_sessions_that_it_was_given() -> None:
    with Sessions(STRATEGY, store="memory:") as sessions:
        with SessionOwner(sessions=sessions) as one, SessionOwner(sessions=sessions) as two:
            assert one.sessions.open("s") is two.sessions.open("s")
        assert len(sessions.open("s").turns) == 0


def test_an_adapter_that_nobody_closes_stores_its_last_usage(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/agents.db"
    program = f"""
from elision import Usage
from elision.adapters.guarded_calls import SessionOwner

adapter = SessionOwner(store={url!r}, model="gpt-5")
call = adapter.calls.begin("s", [{{"role": "user", "content": "Begin."}}])
call.record(Usage(input=12, output=3))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    store = open_store(url)
    try:
        assert [event.usage for event in store.events("s") if isinstance(event, UsageReported)] == [
            Usage(input=12, output=3)
        ]
    finally:
        store.close()


def test_options_beside_given_sessions_are_refused() -> None:
    with Sessions(store="memory:") as sessions, pytest.raises(SettingError, match="model: give options to the"):
        SessionOwner(sessions=sessions, model="gpt-5")


@pytest.mark.parametrize("kind", [SessionOwner, Sessions, ContextManager])
@pytest.mark.parametrize(
    ("given", "named"),
    [("memory:", "store='memory:'"), ("sqlite:///a.db", "store='sqlite:///a.db'"), ("gpt-5", "store='sqlite:///agent")],
)
def test_an_option_without_its_name_is_named(kind: Any, given: str, named: str) -> None:
    """What is to be written, where Python would only count arguments."""
    with pytest.raises(SettingError) as caught:
        kind("masking", given)
    assert f"{kind.__name__} takes nothing but the strategy without a name" in str(caught.value)
    assert f"write {kind.__name__}('masking', {named}" in str(caught.value)


def test_an_adapter_takes_no_credit_for_breakpoints_that_are_not_sent() -> None:
    """A framework's messages keep none of ours; and the model of the calls is the session's."""
    calls = GuardedCalls.make(STRATEGY, None, {"store": MemoryStore()})
    calls.begin("s", make_history("anthropic", 6), model="claude-sonnet-4-5")
    context = calls.sessions.open("s")
    assert context.session.report().savings.costs.caching == 0
    assert "cache_control" not in str(calls.begin("s", make_history("anthropic", 7)).messages)
    assert context._opened.options.model == "claude-sonnet-4-5"
    calls.sessions.close()


@pytest.mark.parametrize(
    ("options", "expected"), [({}, "client"), ({"cache_control": "auto"}, "auto"), ({"cache_control": "gaps"}, "gaps")]
)
def test_a_given_pool_takes_no_credit_either(options: dict[str, Any], expected: str) -> None:
    """Unless its options name who sets breakpoints, an adapter's own default counts for what the adapter opens."""
    with (
        Sessions(STRATEGY, store=MemoryStore(), **gather_options(options)) as sessions,
        SessionOwner(sessions=sessions) as owner,
    ):
        call = owner.calls.begin("s", make_history("anthropic", 6), model="claude-sonnet-4-5")
        context = sessions.open("s")
        assert context._opened.options.cache_control == expected
        assert ("cache_control" in str(call.messages)) == (expected != "client")
        if expected == "client":
            assert context.session.report().savings.costs.caching == 0
        assert sessions.open("own")._opened.options.cache_control == options.get("cache_control", "auto")


@pytest.mark.parametrize("is_own", [True, False])
def test_a_session_that_was_opened_before_the_adapter_used_it_is_the_adapters(is_own: bool) -> None:
    """A look at its report settles neither who sets breakpoints nor the model that it is billed as."""
    with Sessions(STRATEGY, store=MemoryStore()) as pool:
        owner = SessionOwner(STRATEGY, store=MemoryStore()) if is_own else SessionOwner(sessions=pool)
        with owner:
            assert owner.sessions.open("s").session.report().calls == 0
            call = owner.calls.begin("s", make_history("anthropic", 6), model="claude-sonnet-4-5")
            assert "cache_control" not in str(call.messages)
            context = owner.sessions.open("s")
            assert (context._opened.options.model, context._opened.options.cache_control) == (
                "claude-sonnet-4-5",
                "client",
            )
            assert context.session.report().savings.costs.caching == 0


def test_an_adapter_may_have_another_default() -> None:
    """LiteLLM's messages are the provider's own: what is set there is sent."""

    class Marking(SessionOwner):
        CACHE_CONTROL = "auto"

    with Sessions(STRATEGY, store=MemoryStore()) as sessions:
        for owner in (Marking(sessions=sessions), Marking(STRATEGY, store=MemoryStore())):
            call = owner.calls.begin("s", make_history("anthropic", 6), model="claude-sonnet-4-5")
            assert "cache_control" in str(call.messages)
            owner.close()


def test_what_the_user_can_mend_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    """A closed pool, a name that is none: a sentence without a traceback, and not the whole of a long name."""
    calls = GuardedCalls.make(STRATEGY, None, {"store": MemoryStore()})
    calls.begin("n" * 900, make_history("openai", 1))
    calls.sessions.close()
    calls.begin("s", make_history("openai", 1))
    long_name, closed = caplog.records
    assert long_name.exc_info is None
    assert len(long_name.getMessage()) < 700
    assert closed.exc_info is None
    assert "closed: run the agent inside the `with` block" in closed.getMessage()


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_a_damaged_session_continues_behind_an_adapter(dialect: str, tmp_path: Path) -> None:
    """Every adapter makes its calls here: the request is prepared, and hides what it hid before the damage."""
    file = tmp_path / "store.db"
    for turns, hidden in ((6, 4), (7, 5), (8, 6)):
        with Sessions(STRATEGY, store=f"sqlite:///{file}", model="gpt-5") as sessions:
            call = GuardedCalls(sessions).begin("s", make_history(dialect, turns), tools=None)
            assert call.view is not None
            assert count_hidden(call.messages) == hidden
            faults = [fault.what for fault in call.view.diagnostics.faults]
            assert [CHECK_COMMAND in what for what in faults] == ([True] if turns == 7 else [])
        if turns == 6:
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute("UPDATE records SET body = substr(body, 1, 9)")


def test_a_framework_that_declares_its_tools_cannot_defer_them() -> None:
    """What Elision would leave out the framework sends all the same, and nobody would count it."""
    with pytest.raises(SettingError, match="the framework declares its tools itself"):
        GuardedCalls.make("masking", None, {"store": "memory:", "tools": "defer"})
    with Sessions("masking", store="memory:", tools="defer") as sessions:
        with pytest.raises(SettingError, match="the framework declares its tools itself"):
            GuardedCalls.make("masking", sessions, {})
        assert GuardedCalls.make("masking", sessions, {}, "auto").sessions is sessions
