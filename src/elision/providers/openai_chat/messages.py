"""OpenAI chat completions: messages, calls, results and usage read into values, and views rendered as messages.

The dialect of many servers besides OpenAI's, so the common words of others are understood too: `reasoning_content`
(DeepSeek, vLLM), `reasoning` (OpenRouter), `function_call` and role `function` (OpenAI before November 2023). Live,
every message is one piece.

Reasoning in clear text goes back as `reasoning_content`, the name that DeepSeek, vLLM and others read: it is counted,
so it is sent. OpenAI's own models never show reasoning here, and servers that refuse the field refuse it to the client
as well; `OpenAIChatRenderer(sends_reasoning=False)` leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elision.providers.live.client_messages import LiveDialect, Location, Piece, read_plain_message
from elision.providers.shared.base_renderer import (
    NO_RESULT_TEXT,
    JsonMessage,
    TurnCalls,
    ViewRenderer,
    describe_part,
    find_image,
)
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
from elision.trajectory.turn import Action, Content, Message, Opaque, Part, Text, make_content
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


#: Parts that a user message carries as they were recorded -> the field that must hold an object.
_RECORDED_PARTS = {"image_url": "image_url", "input_audio": "input_audio", "file": "file"}


def render_tool(tool: Mapping[str, Any]) -> JsonMessage:
    """Return `tool`, of `name`, `description` and `input_schema`, as a function of chat."""
    function = {"name": tool["name"], "description": tool["description"], "parameters": tool["input_schema"]}
    return {"type": "function", "function": function}


class OpenAIChatRenderer(ViewRenderer):
    """One session's messages. A message of one text has a string for content, any other a list of parts."""

    def __init__(self, *, no_result_text: str = NO_RESULT_TEXT, sends_reasoning: bool = True) -> None:
        super().__init__(no_result_text=no_result_text)
        self.sends_reasoning = sends_reasoning

    def _render_message(self, message: Message, *, head: bool) -> list[JsonMessage]:
        if message.role == "user":
            return self._render_user(message.content)
        return [{"role": message.role, "content": _render_texts(message.content)}]

    def _render_user(self, parts: Content) -> list[JsonMessage]:
        return [{"role": "user", "content": _join_parts([_render_part(part) for part in parts])}]

    def _render_assistant(self, calls: TurnCalls) -> list[JsonMessage]:
        turn = calls.turn
        said = _render_texts(turn.content)
        # No content is allowed only where there are calls.
        message: JsonMessage = {"role": "assistant", "content": said if said or not calls.calls else None}
        if self.sends_reasoning and turn.reasoning:
            message["reasoning_content"] = turn.reasoning
        if calls.calls:
            message["tool_calls"] = [_render_call(id, action) for id, action in calls.calls]
        return [message]

    def _render_result(self, id: str, parts: Content, error: bool | None) -> JsonMessage:
        return {"role": "tool", "tool_call_id": id, "content": _render_texts(parts)}


def _render_call(id: str, action: Action) -> JsonMessage:
    return {"id": id, "type": "function", "function": {"name": action.name or "unknown", "arguments": action.arguments}}


def _render_texts(parts: Content) -> Any:
    """Render the content of a message that can hold only text."""
    return _join_parts([_make_text(part.text if isinstance(part, Text) else describe_part(part)) for part in parts])


def _render_part(part: Part) -> JsonMessage:
    if isinstance(part, Text):
        return _make_text(part.text)
    return _copy_recorded(part) or _render_image(part) or _make_text(describe_part(part))


def _make_text(text: str) -> JsonMessage:
    return {"type": "text", "text": text}


def _copy_recorded(part: Opaque) -> JsonMessage | None:
    field = _RECORDED_PARTS.get(part.kind, "")
    if part.data and isinstance(part.data.get(field), dict):
        return dict(part.data)
    return None


def _render_image(part: Opaque) -> JsonMessage | None:
    image = find_image(part)
    if image is None:
        return None
    return {"type": "image_url", "image_url": {"url": image.url or f"data:{image.media};base64,{image.data}"}}


def _join_parts(parts: list[JsonMessage]) -> Any:
    parts = [part for part in parts if part.get("text") != ""]
    if not parts:
        return ""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts
