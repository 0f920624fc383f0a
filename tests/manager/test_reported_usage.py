"""What `record` takes: usage in every provider's shape, streamed or whole; nothing is passed over in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from openai import Stream
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk

from elision.errors import DialectError
from elision.manager import ContextManager
from elision.manager.agent_call import find_usage
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


LANGCHAIN = {
    "input_tokens": 1000,
    "output_tokens": 10,
    "total_tokens": 1010,
    "input_token_details": {"cache_read": 900, "cache_creation": 60},
    "output_token_details": {"reasoning": 4},
}
BY_TIME = {
    "cache_read": 900,
    "cache_creation": 0,
    "ephemeral_5m_input_tokens": 20,
    "ephemeral_1h_input_tokens": 40,
}
PYDANTIC = {
    "input_tokens": 1000,
    "cache_write_tokens": 60,
    "cache_write_1h_tokens": 40,
    "cache_read_tokens": 900,
    "output_tokens": 10,
    "details": {},
}
GEMINI = {"prompt_token_count": 1000, "cached_content_token_count": 900, "candidates_token_count": 10}


@dataclass
class RequestUsage:
    """As Pydantic AI's: a dataclass, and no dict."""

    input_tokens: int = 1000
    cache_write_tokens: int = 60
    cache_write_1h_tokens: int = 0
    cache_read_tokens: int = 900
    output_tokens: int = 10
    unmeasured_requests: int = 0
    details: dict[str, int] = field(default_factory=dict)


@dataclass
class ModelResponse:
    """As Pydantic AI's, with the usage in it."""

    parts: list[object]
    usage: RequestUsage


@pytest.mark.parametrize(
    ("value", "written", "written_1h"),
    [
        (LANGCHAIN, 60, 0),
        ({**LANGCHAIN, "input_token_details": BY_TIME}, 60, 40),
        ({"content": "Done.", "usage_metadata": LANGCHAIN}, 60, 0),
        (PYDANTIC, 60, 40),
        (RequestUsage(), 60, 0),
        (ModelResponse([], RequestUsage()), 60, 0),
        (GEMINI, 0, 0),
        ({"usage_metadata": GEMINI}, 0, 0),
        (Usage.from_inclusive(prompt=1000, output=10, cache_read=900, cache_write=60), 60, 0),
        (Usage(input=40, output=10, cache_read=900, cache_write=60), 60, 0),
    ],
)
def test_what_frameworks_report_includes_the_cache(value: Any, written: int, written_1h: int) -> None:
    """A prompt of 1,000 tokens, 900 of them read from the cache, stays one of 1,000 tokens."""
    found = find_usage(value)
    assert found is not None
    assert (found.prompt, found.cache_read, found.output) == (1000, 900, 10)
    assert (found.cache_write, found.cache_write_1h) == (written, written_1h)


def test_a_total_tells_langchain_from_anthropic() -> None:
    """LangChain leaves details out where nothing was cached. Anthropic reports no total, and excludes the cache."""
    plain = {"input_tokens": 1000, "output_tokens": 10, "total_tokens": 1010}
    assert find_usage(plain) == Usage(input=1000, output=10)
    exclusive = {"input_tokens": 100, "output_tokens": 10, "cache_read_input_tokens": 900}
    assert find_usage(exclusive) == Usage(input=100, cache_read=900, output=10)


def test_a_request_without_measured_usage_reports_none() -> None:
    """Pydantic AI says so where the provider reported nothing: the zeros beside it are no counts."""
    assert find_usage(RequestUsage(0, 0, 0, 0, 0, unmeasured_requests=1)) is None


def test_langchain_s_own_usage() -> None:
    """The installed package's type, as its models fill it."""
    messages = pytest.importorskip("langchain_core.messages", reason="langchain-core is not installed")
    message = messages.AIMessage("Done.", usage_metadata=LANGCHAIN)
    for value in (message, message.usage_metadata):
        found = find_usage(value)
        assert found is not None
        assert (found.prompt, found.cache_read, found.cache_write) == (1000, 900, 60)


def test_pydantic_ai_s_own_usage() -> None:
    """The installed package's type, alone and in its response."""
    usage = pytest.importorskip("pydantic_ai.usage", reason="pydantic-ai is not installed")
    messages = pytest.importorskip("pydantic_ai.messages", reason="pydantic-ai is not installed")
    own = usage.RequestUsage(input_tokens=1000, cache_read_tokens=900, cache_write_tokens=60, output_tokens=10)
    for value in (own, messages.ModelResponse(parts=[messages.TextPart("Done.")], usage=own)):
        found = find_usage(value)
        assert found is not None
        assert (found.prompt, found.cache_read, found.cache_write) == (1000, 900, 60)


def test_gemini_s_own_usage() -> None:
    """The installed package's type."""
    types = pytest.importorskip("google.genai.types", reason="google-genai is not installed")
    found = find_usage(types.GenerateContentResponseUsageMetadata(**GEMINI))
    assert found is not None
    assert (found.prompt, found.cache_read, found.output) == (1000, 900, 10)


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
    (note,), *others = notes
    assert note.startswith(
        "a response was recorded that reports no usage, so costs.billed leaves its call out: give record()"
    )
    assert others == [(), ()]


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


def run_reported(report: Callable[[int], int | None], caplog: pytest.LogCaptureFixture) -> tuple[list[int], list[str]]:
    """Return the results hidden at each call of a run, and its notes on usage. report: tokens for those of a prompt."""
    masked, notes = [], []
    with ContextManager("masking(window=3, fold=false)", model="claude-sonnet-4-5", store="memory:") as context:
        for steps in range(26):
            diagnostics = context.prepare(make_history("openai", steps)).diagnostics
            masked.append(len(diagnostics.masked))
            notes += [note for note in diagnostics.notes if "were reported" in note]
            prompt = report(diagnostics.after - diagnostics.anchor)
            if prompt is not None:
                context.record({"prompt_tokens": prompt, "completion_tokens": 30})
    assert [each.getMessage() for each in caplog.records if "were reported" in each.getMessage()] == [
        f"session {context.session.name}: {note}" for note in notes
    ]
    return masked, notes


@pytest.mark.parametrize("nonsense", [10, 190_000])
def test_nonsense_is_noted_once_and_does_not_stop_hiding(nonsense: int, caplog: pytest.LogCaptureFixture) -> None:
    """A proxy that reports the same tokens for every prompt does not decide what is hidden."""
    expected, none = run_reported(lambda counted: counted, caplog)
    assert sum(expected) > 10
    assert none == []
    masked, (note,) = run_reported(lambda counted: nonsense if counted > 1_500 else None, caplog)
    assert masked == expected
    assert note.startswith(f"{nonsense:,} tokens were reported for a prompt of about ")
