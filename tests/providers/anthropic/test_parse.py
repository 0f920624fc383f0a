"""Anthropic messages into values."""

from __future__ import annotations

import pytest

from elision.providers.anthropic import messages as anthropic
from elision.trajectory.price_lookup import cost_reported_usage, find_prices
from elision.trajectory.turn import IMAGE_TOKENS, Opaque, Text
from tests.providers.recorded_usage import ADVISED, COMPACTED, bill, tier


def test_thinking_is_reasoning_only() -> None:
    """Thinking in clear text is reasoning and not said."""
    said = anthropic.parse_assistant({"content": [{"type": "thinking", "thinking": "why", "signature": "s"}]})
    assert (said.reasoning, said.content) == ("why", ())


@pytest.mark.parametrize(
    "block",
    [{"type": "redacted_thinking", "data": "A" * 500}, {"type": "thinking", "thinking": "", "signature": "A" * 500}],
)
def test_hidden_thinking_is_kept(block: dict[str, str]) -> None:
    """Thinking whose text was not sent stays in the content, opaque and counted."""
    assert anthropic.parse_assistant({"content": [block]}).content == (Opaque(block["type"], 50, block),)


def test_server_tools_stay_in_the_content() -> None:
    """A tool that the provider ran is no call of the agent's; call and result stay where they stood."""
    blocks = [{"type": "server_tool_use", "id": "s"}, {"type": "text", "text": "a"}, {"type": "web_search_tool_result"}]
    said = anthropic.parse_assistant({"content": blocks})
    assert not said.actions
    assert [type(part) for part in said.content] == [Opaque, Text, Opaque]


def test_a_call_keeps_the_order_of_its_input() -> None:
    """The input of a tool_use becomes JSON text with its keys in order."""
    (action,) = anthropic.parse_assistant(
        {"content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"b": 1, "a": "é"}}]}
    ).actions
    assert (action.id, action.name, action.arguments) == ("t", "f", '{"b": 1, "a": "é"}')


def test_results_and_remarks_part_ways() -> None:
    """A user message that mixes results and text yields both, apart."""
    message = {
        "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "no", "is_error": True},
            {"type": "text", "text": "Hurry."},
        ]
    }
    (result,) = anthropic.parse_results(message)
    assert (result.action_id, result.content, result.error) == ("t", (Text("no"),), True)
    assert anthropic.parse_user_words(message) == (Text("Hurry."),)


def test_a_document_of_text_is_counted_by_its_length() -> None:
    """Media are booked as an image; a document that holds plain text by its characters."""
    image = {"type": "image", "source": {"type": "base64", "data": "A" * 9000}}
    document = {"type": "document", "source": {"type": "text", "data": "x" * 4000}}
    sizes = [
        part.tokens for part in anthropic.parse_user_words({"content": [image, document]}) if isinstance(part, Opaque)
    ]
    assert sizes[0] == IMAGE_TOKENS
    assert 1000 <= sizes[1] <= 1030


def test_input_tokens_exclude_the_cache() -> None:
    """The three prompt counts are apart already."""
    counts = {"input_tokens": 1, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 3, "output_tokens": 4}
    usage = anthropic.parse_usage(counts)
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output, usage.prompt) == (1, 2, 3, 4, 6)


def test_an_hour_and_five_minutes_are_told_apart() -> None:
    """What was written for an hour is part of all that was written, and costs more."""
    counts = {"input_tokens": 1, "cache_creation_input_tokens": 500, "cache_creation": tier(200, 300)}
    usage = anthropic.parse_usage(counts)
    assert usage is not None
    assert (usage.cache_write, usage.cache_write_1h, usage.prompt) == (500, 300, 501)


def test_the_bill_of_a_compaction_is_all_of_it() -> None:
    """The counts at the top leave out what the compaction read and wrote; the client sent the prompt that it read."""
    usage = anthropic.parse_usage(COMPACTED)
    assert usage is not None
    assert (usage.input, usage.cache_read, usage.cache_write, usage.output) == (329, 0, 55_096, 136)
    assert usage.sent_prompt == 55_196
    # 55,096 tokens written and 100 plain ones by the compaction, 229 by the answer, at claude-sonnet-4-6's prices.
    paid = (55_096 * 3.75 + 329 * 3 + 136 * 15) / 1e6
    assert cost_reported_usage(usage, find_prices("claude-sonnet-4-6")) == pytest.approx(paid)


def test_an_advisor_is_billed_at_its_own_prices() -> None:
    """Another model's part is in the sum, and priced as that model."""
    usage = anthropic.parse_usage(ADVISED)
    assert usage is not None
    assert (usage.input, usage.output, usage.sent_prompt) == (1_128 + 2_564 + 1_354, 155 + 99 + 11, 1_128)
    paid = (2_482 * 3 + 166 * 15 + 2_564 * 10 + 99 * 50) / 1e6
    assert cost_reported_usage(usage, find_prices("claude-sonnet-4-6")) == pytest.approx(paid)


def test_a_list_of_one_bill_is_the_bill() -> None:
    """One iteration says what the counts at the top say; a list that is cut makes nothing smaller."""
    top = {"input_tokens": 40, "output_tokens": 9, "cache_read_input_tokens": 3}
    alone = anthropic.parse_usage({**top, "iterations": [bill("message", 40, 9, read=3)]})
    assert alone == anthropic.parse_usage(top)
    assert alone is not None
    assert alone.sent_prompt == 43
    cut = anthropic.parse_usage({**top, "iterations": [bill("message", 11, 2)]})
    assert cut == anthropic.parse_usage(top)


@pytest.mark.parametrize("junk", [None, 5, True, "x", [1, None, [2]], {"a": 1}, [{"type": ["x"], "text": 5}]])
def test_junk_is_read_without_an_error(junk: object) -> None:
    """A field of a wrong type never raises."""
    block = {"id": junk, "name": junk, "input": junk, "content": junk, "thinking": junk, "data": junk, "source": junk}
    for kind in [*sorted(anthropic.BLOCKS), "text", "image", "compaction"]:
        message = {"content": [{"type": kind, **block}]}
        anthropic.parse_assistant(message)
        anthropic.parse_results(message)
        anthropic.parse_user_words(message)
    anthropic.parse_assistant({"content": junk})
    anthropic.parse_usage({"input_tokens": junk, "iterations": junk, "cache_creation": junk})
    anthropic.parse_usage({"input_tokens": 1, "iterations": [{"input_tokens": junk, "model": junk}, junk]})
