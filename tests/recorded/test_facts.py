"""What the rules and bills take for granted about providers, each looked up in the recording that shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.recorded.bills import add_up_bill
from tests.recorded.cassettes import SAMPLE_FOLDER, Exchange, load_exchanges
from tests.recorded.refusals import read_error


def recorded(name: str) -> Exchange:
    """The exchange under its short name, `test_name#1`; the number is its place in the cassette."""
    return found(SAMPLE_FOLDER)[name]


def found(folder: Path) -> dict[str, Exchange]:
    """Exchanges by their short names."""
    return {f"{Path(each.file).stem}#{each.index}": each for each in load_exchanges(folder)}


def asked(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """An accepted request, and its messages."""
    exchange = recorded(name)
    assert exchange.status == 200
    body = exchange.request_json()
    return body, body.get("messages", body.get("input"))


def kinds(message: dict[str, Any]) -> list[str]:
    """The types of a message's blocks."""
    return [block["type"] for block in message["content"]]


# -- Anthropic --------------------------------------------------------------------------------------------------------


def test_the_assistant_may_begin() -> None:
    """Claude Sonnet 4.5 takes a conversation that the assistant begins."""
    _, messages = asked("test_anthropic_model_empty_message_on_history#0")
    assert [message["role"] for message in messages] == ["assistant", "user"]


def test_an_id_that_was_answered_may_be_used_again() -> None:
    """Two calls in two turns have one id."""
    _, messages = asked(
        "test_cross_provider_capability_replay[google-gemini-3-flash-preview-anthropic-claude-sonnet-4-5]#3"
    )
    used = [block["id"] for message in messages for block in message["content"] if block["type"] == "tool_use"]
    assert len(used) > len(set(used))


def test_assistant_messages_in_a_row_are_one() -> None:
    """The results of both stand in one message behind the second."""
    _, messages = asked("test_cross_provider_capability_replay[openai-responses-gpt-5.4-anthropic-claude-sonnet-4-5]#3")
    assert [message["role"] for message in messages[1:4]] == ["assistant", "assistant", "user"]
    results = [block["tool_use_id"] for block in messages[3]["content"]]
    assert results == [messages[1]["content"][0]["id"], messages[2]["content"][0]["id"]]


def test_words_may_stand_behind_results() -> None:
    """Results first, then what else the user says."""
    _, messages = asked("test_tool_availability_portability_matrix[R1-T2-native-search]#0")
    assert kinds(messages[2]) == ["tool_result", "text"]


def test_a_call_that_the_service_runs_may_lack_its_result() -> None:
    """A history with a call to an MCP server that was in flight is accepted."""
    _, messages = asked("test_in_flight_mcp_call_history_is_accepted#0")
    blocks = [block["type"] for message in messages for block in message["content"]]
    assert "mcp_tool_use" in blocks
    assert "mcp_tool_result" not in blocks


def test_a_system_message_between_turns_leaves_the_cache_alone() -> None:
    """Claude Opus 4.8 takes one, and reads what was cached in front of it."""
    _, messages = asked("test_inline_system_prompt_cache_prefix_is_reused#1")
    assert "system" in [message["role"] for message in messages[1:]]
    wrote, read = (add_up_bill(recorded(f"test_inline_system_prompt_cache_prefix_is_reused#{n}")) for n in (0, 1))
    assert wrote is not None
    assert read is not None
    assert wrote["", "cache_write_5m"] == read["", "cache_read"] == 1590


def test_tools_are_added_between_turns() -> None:
    """A system message adds a tool that the request lists as deferred."""
    body, messages = asked("test_tool_availability_portability_matrix[R4-T1-tool-addition]#0")
    assert any("tool_addition" in kinds(message) for message in messages if message["role"] == "system")
    assert any(tool.get("defer_loading") for tool in body["tools"])


def test_automatic_caching_reads_what_was_sent_before() -> None:
    """One mark at the top of the request; the next request reads 1,111 tokens and writes what is new."""
    body, _ = asked("test_anthropic_cache_real_api#1")
    assert body["cache_control"]["type"] == "ephemeral"
    bill = add_up_bill(recorded("test_anthropic_cache_real_api#1"))
    assert bill is not None
    assert (bill["", "cache_read"], bill["", "cache_write_5m"]) == (1111, 418)


def test_compaction_is_billed_beside_the_counts_at_the_top() -> None:
    """55,096 tokens that the compaction wrote are in `iterations` alone; a trigger of 50,000 is accepted."""
    body, _ = asked("test_anthropic_compaction_usage_with_cache#0")
    assert body["context_management"]["edits"][0]["trigger"]["value"] == 50_000
    usage = recorded("test_anthropic_compaction_usage_with_cache#0").response_json()["usage"]
    assert usage["cache_creation_input_tokens"] == 0
    assert [part["cache_creation_input_tokens"] for part in usage["iterations"]] == [55_096, 0]


def test_a_compaction_block_needs_no_signature() -> None:
    """Claude Sonnet 4.6 takes a block that a client wrote."""
    _, messages = asked("test_anthropic_compaction_round_trip#0")
    assert messages[1]["content"][0] == {"type": "compaction", "content": "Summary: user said hello."}


def test_an_advisor_is_billed_at_its_own_model() -> None:
    """Its part of `iterations` names the model; the counts at the top leave it out."""
    usage = recorded("test_anthropic_advisor_tool_message_replay#0").response_json()["usage"]
    own = [part for part in usage["iterations"] if part["type"] == "message"]
    (advisor,) = [part for part in usage["iterations"] if part["type"] == "advisor_message"]
    assert usage["input_tokens"] == sum(part["input_tokens"] for part in own)
    assert advisor["model"] == "claude-opus-4-8"


def test_sonnet_5_thinks_unasked() -> None:
    """Its answer begins with thinking that no field asked for."""
    body, _ = asked("test_anthropic_advisor_tool_message_replay#0")
    assert "thinking" not in body
    assert recorded("test_anthropic_advisor_tool_message_replay#0").response_json()["content"][0]["type"] == "thinking"


# -- OpenAI -----------------------------------------------------------------------------------------------------------


def test_reasoning_is_known_with_the_message_behind_it() -> None:
    """Reasoning under its id with other words behind it is refused, although they are the assistant's."""
    refused = recorded("test_openai_responses_thinking_with_modified_history#1")
    assert refused.status == 400
    assert read_error(refused).endswith("of type 'reasoning' was provided without its required following item.")
    _, reasoning, said, _ = refused.request_json()["input"]
    assert (reasoning["type"], reasoning["id"][:3], said["role"], "id" in said) == (
        "reasoning",
        "rs_",
        "assistant",
        False,
    )


def test_a_search_that_the_service_ran_needs_no_ids() -> None:
    """Call and output, both without any id, are accepted as a pair."""
    _, items = asked("test_openai_hosted_tool_search_stateless_continuation_without_item_ids#1")
    searches = [item for item in items if str(item.get("type")).startswith("tool_search")]
    assert [(item["type"], item["call_id"], "id" in item) for item in searches] == [
        ("tool_search_call", None, False),
        ("tool_search_output", None, False),
    ]


def test_an_output_answers_by_its_call_id_alone() -> None:
    """A function's output answers the client's own search for tools."""
    _, items = asked("test_tool_availability_portability_matrix[R5-T3-native-search]#0")
    assert [item.get("type") for item in items[1:3]] == ["tool_search_call", "function_call_output"]
    assert items[1]["call_id"] == items[2]["call_id"]


def test_a_client_adds_tools_between_turns() -> None:
    """`additional_tools` is an item of the developer's."""
    _, items = asked("test_tool_availability_portability_matrix[R4-T4-additional-tools]#0")
    assert [item["role"] for item in items if item.get("type") == "additional_tools"] == ["developer"]


def test_an_output_may_stand_alone_where_the_service_holds_the_call() -> None:
    """With `conversation` the call is not in the request."""
    body, items = asked("test_openai_conversation_id_tool_call_continuation#2")
    assert body["conversation"]
    assert [item["type"] for item in items] == ["function_call_output"]


def test_the_service_compacts_from_1000_tokens_on() -> None:
    """A threshold of 1,000 is accepted."""
    body, _ = asked("test_openai_responses_compact_stateful_mode#0")
    assert body["context_management"] == [{"type": "compaction", "compact_threshold": 1000}]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_from_5_6_on_writes_are_reported_and_nothing_is_rounded(api: str) -> None:
    """The next request reads exactly what the first one wrote, up to the breakpoint."""
    wrote, read = (add_up_bill(recorded(f"test_openai_{api}_prompt_cache_e2e#{number}")) for number in (0, 1))
    assert wrote is not None
    assert read is not None
    assert wrote["", "cache_write_5m"] == read["", "cache_read"] == 4012
    assert "prompt_cache_breakpoint" in json.dumps(asked(f"test_openai_{api}_prompt_cache_e2e#0")[0])


def test_before_5_6_cached_tokens_are_multiples_of_128() -> None:
    """GPT-5 reports 1,280 of 1,493."""
    bill = add_up_bill(recorded("test_openai_responses_thinking_with_code_execution_tool#0"))
    assert bill is not None
    assert bill["", "cache_read"] == 1280 == 10 * 128


def test_5_6_takes_a_temperature_where_it_does_not_reason() -> None:
    """With `effort` none."""
    body, _ = asked("test_openai_responses_gpt_5_6_reasoning_off_keeps_sampling_params#0")
    assert (body["reasoning"]["effort"], body["temperature"]) == ("none", 0.5)
