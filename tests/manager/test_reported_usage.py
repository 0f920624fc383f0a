"""What `record` takes: usage in every provider's shape, streamed or whole; nothing is passed over in silence."""

from __future__ import annotations

from typing import Any

import pytest
from openai import Stream
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk

from elision.errors import DialectError
from elision.manager import ContextManager
from elision.manager.reported_usage import find_usage
from elision.trajectory.usage import Usage
from tests.manager.agents import make_history

CHAT = {"prompt_tokens": 700, "completion_tokens": 30}
ITEMS = {"input_tokens": 700, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 30}
BLOCKS = {"input_tokens": 700, "output_tokens": 30}


def chunk(**usage: int) -> ChatCompletionChunk:
    given: Any = CompletionUsage(total_tokens=730, **usage) if usage else None
    return ChatCompletionChunk(id="c", choices=[], created=1, model="m", object="chat.completion.chunk", usage=given)


@pytest.mark.parametrize(
    "value",
    [
        CHAT,
        ITEMS,
        BLOCKS,
        {"id": "c", "usage": CHAT},
        {"type": "response.completed", "response": {"id": "r", "usage": ITEMS}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": BLOCKS},
        chunk(prompt_tokens=700, completion_tokens=30),
        Usage(input=700, output=30),
    ],
)
def test_usage_is_found(value: Any) -> None:
    """A usage, a response, the last chunk or event of a stream."""
    found = find_usage(value)
    assert found is not None
    assert (found.input, found.output) == (700, 30)


@pytest.mark.parametrize("value", ["garbage", b"", 5, True, [CHAT], object(), Stream.__new__(Stream)])
def test_what_reports_no_usage_is_refused(value: Any) -> None:
    """A text, an object, the stream itself: a mistake in the loop, which shows at its first call."""
    with ContextManager(store="memory:") as context:
        context.prepare(make_history("openai", 1))
        with pytest.raises(DialectError, match=f"record: {type(value).__name__} reports no usage; give the response"):
            context.record(value)


@pytest.mark.parametrize("value", [None, {}, {"id": "c", "usage": None}, {"usage": "much"}, chunk()])
def test_a_response_without_usage_is_noted_once(value: Any) -> None:
    """Some servers report none: the agent goes on, and the diagnostics say what is missing from the bill."""
    with ContextManager(store="memory:") as context:
        context.prepare(make_history("openai", 1))
        notes = []
        for steps in (1, 2, 3):
            context.record(value)
            notes.append(context.prepare(make_history("openai", steps)).diagnostics.notes)
    assert notes == [("a response was recorded that reports no usage: costs.billed leaves its call out",), (), ()]


def test_counts_that_can_be_none_spoil_no_bill() -> None:
    """A number beyond all floats is nonsense: the passes behind it go on."""
    with ContextManager(store="memory:", model="claude-sonnet-4-5") as context:
        context.prepare(make_history("openai", 1))
        context.record({"input_tokens": 10**400, "output_tokens": 30, "iterations": [{"input_tokens": 10**309}]})
        told = context.prepare(make_history("openai", 2)).diagnostics
    assert not told.faults
    assert told.costs.billed == pytest.approx(30 * 15 / 1e6)


def test_usage_without_a_call_is_noted() -> None:
    """Nothing was prepared, or the pass before it failed."""
    with ContextManager(store="memory:") as context:
        context.record(CHAT)
        view = context.prepare(make_history("openai", 1))
    assert view.diagnostics.notes == ("usage was recorded while no call was prepared: costs.billed leaves it out",)
    assert view.diagnostics.costs.billed is None


def test_usage_of_a_branch_that_was_left_is_passed_over() -> None:
    """As documented: the answer came too late."""
    with ContextManager(store="memory:") as context:
        context.prepare(make_history("openai", 1))
        context.record(CHAT, branch="other")
        assert context.prepare(make_history("openai", 2)).diagnostics.notes == ()
