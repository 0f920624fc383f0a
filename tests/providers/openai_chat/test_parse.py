"""OpenAI chat messages into values."""

from __future__ import annotations

import pytest

from elision.providers.openai_chat import messages as openai_chat
from elision.providers.shared.json_reading import parse_content
from elision.trajectory.turn import IMAGE_TOKENS, Opaque, Text


def test_a_string_is_one_text() -> None:
    """A content string is one text part, an empty one is none."""
    assert parse_content("hi") == (Text("hi"),)
    assert parse_content("") == parse_content(None) == ()


def test_an_image_is_opaque_and_counted_as_one() -> None:
    """An image part keeps its JSON and is booked at IMAGE_TOKENS."""
    part = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    assert parse_content([part]) == (Opaque("image_url", IMAGE_TOKENS, part),)


def test_an_unknown_part_is_kept() -> None:
    """A part of an unknown type is opaque, with its data, and counts for something."""
    (part,) = parse_content([{"type": "hologram", "shape": "x" * 400}])
    assert isinstance(part, Opaque)
    assert (part.kind, part.tokens) == ("hologram", 108)
    assert part.data == {"type": "hologram", "shape": "x" * 400}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_under_either_name(name: str) -> None:
    """Servers name reasoning differently; both names are read."""
    assert openai_chat.parse_assistant({"content": "a", name: "because"}).reasoning == "because"


def test_a_refusal_is_said() -> None:
    """A refusal is part of what the assistant says."""
    assert openai_chat.parse_assistant({"content": None, "refusal": "No."}).content == (Text("No."),)


def test_a_legacy_call_answers_to_its_name() -> None:
    """A function_call has no id; its function's name pairs it with the message of role function."""
    (action,) = openai_chat.parse_assistant({"function_call": {"name": "look", "arguments": "{}"}}).actions
    assert (
        action.id == openai_chat.parse_result({"role": "function", "name": "look", "content": "x"}).action_id == "look"
    )


def test_arguments_stay_as_they_came() -> None:
    """Arguments are the provider's JSON text, byte for byte; an object (a recorder's liberty) becomes JSON text."""
    (told,) = openai_chat.parse_assistant(
        {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"x":1 }'}}]}
    ).actions
    (made,) = openai_chat.parse_assistant(
        {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]}
    ).actions
    assert (told.arguments, made.arguments) == ('{"x":1 }', '{"x": 1}')


def test_a_custom_tool_call_carries_its_input() -> None:
    """A custom tool's free-form input is its argument text."""
    (action,) = openai_chat.parse_assistant(
        {"tool_calls": [{"id": "a", "custom": {"name": "patch", "input": "*** Begin"}}]}
    ).actions
    assert (action.name, action.arguments) == ("patch", "*** Begin")


def test_prompt_tokens_include_the_cache() -> None:
    """Cache reads and writes are taken out of prompt_tokens."""
    details = {"cached_tokens": 60, "cache_write_tokens": 30}
    usage = openai_chat.parse_usage({"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": details})
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (10, 60, 30, 7)


def test_deepseek_names_its_cache_otherwise() -> None:
    """DeepSeek's prompt_cache_hit_tokens are cache reads."""
    usage = openai_chat.parse_usage({"prompt_tokens": 100, "completion_tokens": 7, "prompt_cache_hit_tokens": 64})
    assert usage is not None
    assert (usage.input, usage.cache_read) == (36, 64)


def test_output_has_all_that_is_billed_as_output() -> None:
    """Reasoning, audio and predicted tokens, rejected ones too, are part of the completion tokens; xAI adds reasoning
    to the total alone."""
    details = {
        "reasoning_tokens": 30,
        "audio_tokens": 5,
        "accepted_prediction_tokens": 8,
        "rejected_prediction_tokens": 4,
    }
    counts = {"prompt_tokens": 100, "completion_tokens": 50, "completion_tokens_details": details}
    within = openai_chat.parse_usage({**counts, "total_tokens": 150})
    beside = openai_chat.parse_usage({**counts, "total_tokens": 180})
    assert within is not None
    assert beside is not None
    assert (within.output, beside.output) == (50, 80)


def test_litellm_names_the_hour() -> None:
    """Through LiteLLM the lives of cache entries stand among the details of the prompt."""
    tiers = {"ephemeral_5m_input_tokens": 10, "ephemeral_1h_input_tokens": 20}
    details = {"cached_tokens": 60, "cache_creation_token_details": tiers}
    counts = {"prompt_tokens": 100, "prompt_tokens_details": details, "cache_creation_input_tokens": 30}
    usage = openai_chat.parse_usage(counts)
    assert usage is not None
    assert (usage.input, usage.cache_write, usage.cache_write_1h) == (10, 30, 20)


@pytest.mark.parametrize("value", [None, 5, "x", [], {}, {"prompt_tokens_details": 3}])
def test_no_usage_is_none(value: object) -> None:
    """What is no usage object is no usage."""
    assert openai_chat.parse_usage(value) is None


@pytest.mark.parametrize("junk", [None, 5, True, "x", [1, None, [2]], {"a": 1}, [{"type": 3, "text": None}]])
def test_junk_is_read_without_an_error(junk: object) -> None:
    """A field of a wrong type never raises."""
    openai_chat.parse_assistant(
        {"content": junk, "tool_calls": junk, "function_call": junk, "reasoning": junk, "refusal": junk}
    )
    openai_chat.parse_assistant({"tool_calls": [{"id": junk, "function": junk}]})
    openai_chat.parse_result({"tool_call_id": junk, "content": junk, "name": junk})
    openai_chat.parse_usage({"prompt_tokens": junk, "prompt_tokens_details": junk, "cost": junk})
