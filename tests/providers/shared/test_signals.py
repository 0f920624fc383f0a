"""What providers say of a context, in their own words."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from elision.providers.shared.signals import (
    CacheMiss,
    Overflow,
    Transformation,
    find_unbound_thinking,
    parse_cache_miss,
    parse_overflow,
    parse_transformations,
)

SAID = {
    "prompt is too long: 213462 tokens > 200000 maximum": (213_462, 200_000),
    "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease input length": (
        188_240,
        200_000,
    ),
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).": (1_196_265, 1_048_575),
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.": (537_812, 131_072),
    "request (4476 tokens) exceeds the available context size (4096 tokens), try increasing it": (4_476, 4_096),
    "The input (516368 tokens) is longer than the model's context length (262144 tokens).": (516_368, 262_144),
    "Prompt contains 141000 tokens, too large for model with 131072 maximum context length": (141_000, 131_072),
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens.": (
        509_178,
        272_000,
    ),
    "Your request exceeded model token limit: 262144 (requested: 301000)": (301_000, 262_144),
    "prompt token count of 200000 exceeds the limit of 128000": (200_000, 128_000),
    "Input length (139080) exceeds model's maximum context length (131072).": (139_080, 131_072),
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9085 tokens. Please reduce "
    "the length of the messages.": (9_085, 8_192),
    "This model's maximum context length is 8191 tokens, however you requested 10346 tokens (10341 in your prompt; 5 "
    "for the completion).": (10_341, 8_191),
    "This model's maximum context length is 131,072 tokens. However, you requested 140,000 tokens (136,000 in the "
    "messages, 4,000 in the completion).": (136_000, 131_072),
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 132463 tokens (1463 of text "
    "input, 131000 in the output).": (1_463, 131_072),
    "'max_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request has 2104 "
    "input tokens (2000 > 4096 - 2104).": (2_104, 4_096),
    "this request exceeds the maximum context length of 128000": (None, 128_000),
    "Your input exceeds the context window of this model. Please adjust your input and try again.": (None, None),
    "the request exceeds the available context size, try increasing it": (None, None),
    "Please reduce the length of the messages or completion": (None, None),
    "tokens to keep from the initial prompt is greater than the context length": (None, None),
    "invalid params, context window exceeds limit": (None, None),
}


@pytest.mark.parametrize("text", SAID)
def test_a_prompt_that_is_too_long(text: str) -> None:
    """Of the whole that was asked for, the prompt's part is told apart from the answer's."""
    assert parse_overflow(text) == Overflow(tokens=SAID[text][0], limit=SAID[text][1])


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (
            {
                "type": "error",
                "error": {"type": "invalid_request_error", "message": "prompt is too long: 3 tokens > 2"},
            },
            Overflow(tokens=3, limit=2),
        ),
        ({"error": {"code": "context_length_exceeded", "message": "Too long."}}, Overflow()),
        ({"error": {"type": "request_too_large", "message": "Request exceeds the maximum size"}}, Overflow()),
        ({"type": "response.failed", "response": {"error": {"code": "context_length_exceeded"}}}, Overflow()),
        (
            {"error": {"type": "exceed_context_size_error", "n_prompt_tokens": 9, "n_ctx": 8}},
            Overflow(tokens=9, limit=8),
        ),
        (
            {"error": {"message": "Provider returned error", "metadata": {"raw": "prompt is too long: 3 tokens > 2"}}},
            Overflow(tokens=3, limit=2),
        ),
        ({"type": "message", "stop_reason": "model_context_window_exceeded"}, Overflow()),
        (
            {"object": "error", "message": "maximum context length is 10 tokens, you requested 12"},
            Overflow(tokens=12, limit=10),
        ),
        ({"error": "prompt is too long: 3 tokens > 2"}, Overflow(tokens=3, limit=2)),
    ],
)
def test_bodies_of_errors(body: dict[str, Any], found: Overflow) -> None:
    """The words stand where each API puts them."""
    assert parse_overflow(body) == found


@pytest.mark.parametrize(
    "other",
    [
        "rate limit exceeded: 40,000 tokens per minute",
        {"error": {"type": "rate_limit_error", "message": "Number of request tokens has exceeded your limit of 40000"}},
        {"content": [{"type": "text", "text": "prompt is too long: 3 tokens > 2 maximum"}], "stop_reason": "end_turn"},
        {"error": {"message": "max_tokens: 70000 > 64000, which is the maximum allowed number of output tokens"}},
        {},
        None,
        7,
    ],
)
def test_what_is_no_overflow(other: object) -> None:
    """Rates, limits of the answer and what a model says are something else."""
    assert parse_overflow(other) is None


@pytest.mark.parametrize(
    ("response", "found"),
    [
        (
            {"diagnostics": {"cache_miss_reason": {"type": "tools_changed", "cache_missed_input_tokens": 900}}},
            CacheMiss(reason="tools_changed", tokens=900),
        ),
        ({"diagnostics": {"cache_miss_reason": None}}, None),
        ({"diagnostics": None}, None),
        (
            {"prompt_cache_diagnostics": {"type": "cache_miss", "reason": "input_changed", "cache_missed_tokens": 7}},
            CacheMiss(reason="input_changed", tokens=7),
        ),
        ({"prompt_cache_diagnostics": {"type": "cache_hit"}}, None),
        ({"prompt_cache_diagnostics": {"type": "unavailable"}}, CacheMiss(reason="unavailable")),
    ],
)
def test_why_the_cache_was_missed(response: dict[str, Any], found: CacheMiss | None) -> None:
    """Both providers' words, as they are."""
    assert parse_cache_miss(response) == found


def test_thinking_that_did_not_fit() -> None:
    """Dropped or let pass; a type that nobody knows yet is passed over."""
    listed = [
        {"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "prefix_binding_mismatch"},
        {"type": "thinking_mismatch_allowed", "path": "messages.3.content.0", "reason": "model_binding_mismatch"},
        {"type": "thinking_translated", "path": "messages.5.content.0"},
        7,
    ]
    assert parse_transformations({"input_transformations": listed}) == (
        Transformation(is_dropped=True, place="messages.1.content.0", reason="prefix_binding_mismatch"),
        Transformation(is_dropped=False, place="messages.3.content.0", reason="model_binding_mismatch"),
    )


def test_thinking_that_was_refused() -> None:
    """The first block that failed; a signature that is wrong by itself is another matter."""
    message = "messages.1.content.0: Invalid `signature` in `thinking` block."
    why = " The block is bound to a different conversation. Remove the block."
    assert (
        find_unbound_thinking({"error": {"type": "invalid_request_error", "message": message + why}})
        == "messages.1.content.0"
    )
    assert find_unbound_thinking(message + why) == "messages.1.content.0"
    assert find_unbound_thinking({"error": {"message": message}}) is None
    assert find_unbound_thinking(None) is None


_NAMES = some.sampled_from(
    [
        *("error", "message", "type", "code", "detail", "response", "metadata", "raw", "n_ctx", "path", "reason"),
        *("diagnostics", "cache_miss_reason", "prompt_cache_diagnostics", "cache_missed_tokens"),
        "input_transformations",
    ]
)
_JUNK = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(max_size=30) | some.floats(),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(body=some.dictionaries(_NAMES, _JUNK, max_size=5))
def test_junk_says_nothing_and_raises_nothing(body: dict[str, Any]) -> None:
    """Whatever stands in an answer, every reader returns a value of its type."""
    assert isinstance(parse_overflow(body), Overflow | None)
    assert isinstance(parse_cache_miss(body), CacheMiss | None)
    assert isinstance(parse_transformations(body), tuple)
    assert isinstance(find_unbound_thinking(body), str | None)


def test_a_long_error_is_read_quickly() -> None:
    """An error that quotes a prompt of megabytes costs no time."""
    assert parse_overflow("maximum context length is 7 tokens " + "(1 " * 2_000_000) == Overflow(limit=7)
