"""OpenAI chat completions: messages, tool calls, results and usage read into values.

The dialect of many servers besides OpenAI's, so the common words of others are understood too: `reasoning_content`
(DeepSeek, vLLM), `reasoning` (OpenRouter), `function_call` and role `function` (OpenAI before November 2023).

OpenAI chat messages, live: every message is one piece.
"""

from __future__ import annotations

from typing import Any

from elision.providers.live.parsed_message import LiveDialect, Location, Piece, read_plain_message
from elision.providers.shared.json_reading import (
    AssistantMessage,
    Json,
    ToolResult,
    bool_in,
    count_in,
    dump_arguments,
    join_lines,
    mapping_in,
    mappings_in,
    number_in,
    parse_content,
    text_in,
)
from elision.trajectory.content import make_content
from elision.trajectory.turn import Action
from elision.trajectory.usage import Usage


def defines_tool(definition: Json) -> bool:
    """Return whether a tool's definition is of this API: a function or custom tool in an envelope."""
    return "function" in definition or "custom" in definition


def parse_reasoning(message: Json) -> str:
    """Read reasoning in clear text, under any name that servers give it."""
    for name in ("reasoning_content", "reasoning"):
        value = message.get(name)
        if isinstance(value, str) and value:
            return value
    details = mappings_in(message.get("reasoning_details"))
    if details:
        return join_lines(text_in(part.get("text")) or text_in(part.get("summary")) for part in details)
    # LiteLLM's copy of Anthropic's blocks. Redacted thinking has no text, and is sent and counted all the same.
    blocks = mappings_in(message.get("thinking_blocks"))
    return join_lines(text_in(block.get("thinking")) or text_in(block.get("data")) for block in blocks)


def parse_actions(message: Json) -> tuple[Action, ...]:
    """Read the calls of an assistant message. A legacy `function_call` gets its function's name as id."""
    calls = [_parse_action(call) for call in mappings_in(message.get("tool_calls"))]
    if legacy := mapping_in(message.get("function_call")):
        name = text_in(legacy.get("name"))
        calls.append(Action(id=name, name=name, arguments=dump_arguments(legacy.get("arguments"))))
    return tuple(calls)


def _parse_action(call: Json) -> Action:
    # A custom tool (free-form input) is under "custom"; some recorders leave the envelope out.
    inner = mapping_in(call.get("function")) or mapping_in(call.get("custom")) or call
    if "arguments" not in inner:
        arguments = inner.get("input")
    else:
        arguments = inner.get("arguments")
    return Action(id=text_in(call.get("id")), name=text_in(inner.get("name")), arguments=dump_arguments(arguments))


def parse_assistant(message: Json) -> AssistantMessage:
    """Read an assistant message."""
    refusal = make_content(text_in(message.get("refusal")))
    return AssistantMessage(
        content=parse_content(message.get("content")) + refusal,
        reasoning=parse_reasoning(message),
        actions=parse_actions(message),
    )


def parse_result(message: Json) -> ToolResult:
    """Read a message of role `tool` or (legacy) `function`."""
    name = text_in(message.get("name"))
    error = message.get("is_error", message.get("error"))
    return ToolResult(
        action_id=text_in(message.get("tool_call_id")) or name,
        content=parse_content(message.get("content")),
        tool=name,
        error=bool_in(error),
    )


def parse_usage(value: object, *, usd: float | None = None) -> Usage | None:
    """Read a `usage` object; None if there is none. `prompt_tokens` include cache reads and writes.

    DeepSeek reports cache reads as `prompt_cache_hit_tokens`, and LiteLLM adds Anthropic's names. Completion tokens
    include reasoning, audio and predicted tokens, also rejected ones. Reasoning is added if `total_tokens` shows that
    it is not included (xAI).
    """
    counts = mapping_in(value)
    if "prompt_tokens" not in counts:
        return None
    details = mapping_in(counts.get("prompt_tokens_details"))
    read = (details.get("cached_tokens"), counts.get("prompt_cache_hit_tokens"), counts.get("cache_read_input_tokens"))
    written = (details.get("cache_write_tokens"), counts.get("cache_creation_input_tokens"))
    tiers = mapping_in(details.get("cache_creation_token_details")) or mapping_in(counts.get("cache_creation"))
    return Usage.from_inclusive(
        prompt=count_in(counts.get("prompt_tokens")),
        output=_count_output(counts),
        cache_read=max(map(count_in, read)),
        cache_write=max(map(count_in, written)),
        usd=number_in(counts.get("cost")) if usd is None else usd,
        cache_write_1h=count_in(tiers.get("ephemeral_1h_input_tokens")),
        played=counts.get("played") is True,
    )


def _count_output(counts: Json) -> int:
    """Return the completion tokens, with the reasoning if the total counts it apart from them."""
    completion = count_in(counts.get("completion_tokens"))
    reasoning = count_in(mapping_in(counts.get("completion_tokens_details")).get("reasoning_tokens"))
    beside = count_in(counts.get("total_tokens")) == count_in(counts.get("prompt_tokens")) + completion + reasoning
    if beside:
        return completion + reasoning
    return completion


class LiveOpenAIChat(LiveDialect):
    """Chat completions, and the many servers that speak it."""

    name = "openai"
    joins_assistant_messages = False

    def split_message(self, message: Json, index: int) -> list[Piece]:
        role = text_in(message.get("role"))
        spot = Location(index)
        if role == "assistant":
            return [Piece(kind="assistant", location=spot, assistant=parse_assistant(message))]
        if role in ("tool", "function"):
            return [Piece(kind="result", location=spot, result=parse_result(message))]
        return read_plain_message(message, spot)

    def replace_result(self, part: Json, text: str) -> dict[str, Any]:
        return {**part, "content": text}
