"""`view.origins`: which given message each message of the view stands for."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.manager import ContextManager, ContextView
from elision.manager.advanced_options import gather_options
from tests.manager.agents import SHAPES, Message, make_history

EAGER = "masking(window=2, schedule=every-turn)"
FOLDING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=120, schedule=every-turn)"
DIALECTS = {"text": "openai"}


def open_context(shape: str, strategy: str = EAGER, **options: Any) -> ContextManager:
    options = {"dialect": DIALECTS.get(shape, shape), "store": "memory:", "cache_control": "client", **options}
    return ContextManager(strategy, **gather_options(options))


def check_origins(view: ContextView, messages: list[Message]) -> None:
    """Each sent message has one; they are in order; of what is unchanged it is the place of the very object."""
    assert len(view.origins) == len(view.messages)
    known = [origin for origin in view.origins if origin is not None]
    assert known == sorted(set(known))
    places = {id(message): place for place, message in enumerate(messages)}
    for sent, origin in zip(view.messages, view.origins, strict=True):
        if id(sent) in places:
            assert origin == places[id(sent)]
        elif origin is None:
            assert "condensed. It is a record" in str(sent)
        else:
            assert (
                sent["role"] == messages[origin]["role"] if "role" in sent else sent["type"] == "function_call_output"
            )


@pytest.mark.parametrize("strategy", [EAGER, FOLDING])
@pytest.mark.parametrize("shape", SHAPES)
def test_each_sent_message_has_an_origin(shape: str, strategy: str) -> None:
    """At every call, masked or summarized; the view that grows agrees with one that is rendered anew."""
    context = open_context(shape, strategy)
    for steps in range(16):
        messages = make_history(shape, steps)
        view = context.prepare(messages)
        check_origins(view, messages)
    assert view.diagnostics.savings.masked or view.diagnostics.summaries
    if strategy == FOLDING and shape != "anthropic":
        assert view.origins.count(None) == 1


@given(data=st.data())
def test_with_parallel_calls_and_words_between(data: st.DataObject) -> None:
    """Whatever the agent did: several calls at once, words of the user between, and an edited message."""
    shape = data.draw(st.sampled_from(["openai", "anthropic"]))
    strategy = data.draw(st.sampled_from([EAGER, FOLDING]))
    messages = make_history(shape, 0)
    context = open_context(shape, strategy)
    for number in range(data.draw(st.integers(4, 12))):
        messages += SHAPES[shape](number)
        if data.draw(st.booleans()):
            messages.append({"role": "user", "content": f"And {number}?"})
        if data.draw(st.integers(0, 5)) == 0:
            messages[-1] = copy.deepcopy(messages[-1])
            messages[-1]["content"] = "Something else."
        check_origins(context.prepare(messages), messages)


def test_a_summary_that_joins_the_task_has_its_origin() -> None:
    """Anthropic's roles take turns: task and summary are one message, which stands for the task."""
    messages = make_history("anthropic", 12)
    view = open_context("anthropic", FOLDING).prepare(messages)
    assert view.diagnostics.summaries
    assert view.origins[0] == 0
    assert [block["type"] for block in view.messages[0]["content"]] == ["text", "text"]


def test_breakpoints_leave_origins() -> None:
    """A message with a breakpoint of ours is a copy of the given one, and has its place."""
    messages = make_history("anthropic", 4)
    view = open_context("anthropic", cache_control="auto").prepare(messages)
    assert view.messages[-1] is not messages[-1]
    assert view.origins == list(range(len(messages)))


@pytest.mark.parametrize("shape", SHAPES)
def test_shadow_sends_every_message(shape: str) -> None:
    """Each stands for itself."""
    messages = make_history(shape, 12)
    view = open_context(shape, FOLDING, shadow=True).prepare(messages)
    assert view.diagnostics.savings.masked or view.diagnostics.summaries
    assert view.origins == list(range(len(messages)))


def test_native_clearing_sends_every_message() -> None:
    """The server clears by itself: the messages stay."""
    messages = make_history("anthropic", 12)
    view = open_context("anthropic", model="claude-opus-5-5").prepare(messages)
    assert view.extra
    assert view.origins == list(range(len(messages)))


def test_the_beginning_of_an_answer_has_an_origin() -> None:
    """Messages after the history are sent as well."""
    messages = [*make_history("openai", 12), {"role": "assistant", "content": "I shall"}]
    view = open_context("openai").prepare(messages)
    assert view.diagnostics.savings.masked
    assert view.origins == list(range(len(messages)))


def test_tagged_messages_have_origins() -> None:
    """Tags are removed from the copy that is sent."""
    messages = make_history("openai", 6)
    messages[2] = {**messages[2], "keep_output": True}
    view = open_context("openai").prepare(messages)
    assert "keep_output" not in view.messages[2]
    assert view.origins == list(range(len(messages)))


def test_a_request_that_passes_through_has_origins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where preparing fails, the request is sent as it came."""
    monkeypatch.setattr("elision.engine.event_log.Log.record_call", _fail)
    messages = make_history("openai", 6)
    view = open_context("openai").prepare(messages)
    assert [fault.kind for fault in view.diagnostics.faults] == ["engine"]
    assert view.origins == list(range(len(messages)))


def _fail(*_: object) -> None:
    raise ZeroDivisionError("a bug")


def test_turns_added_by_hand_stand_for_nothing_given() -> None:
    """There are no messages that they could stand for."""
    context = ContextManager(EAGER, store="memory:")
    context.turns.begin("Count.")
    context.turns.add("I look.", "ls", "a.py")
    view = context.turns.view()
    assert view.origins == [None] * len(view.messages)
