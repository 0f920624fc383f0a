"""Render views as OpenAI chat messages.

Reasoning in clear text goes back as `reasoning_content`, the name that DeepSeek, vLLM and others read: it is counted,
so it is sent. OpenAI's own models never show reasoning here, and servers that refuse the field refuse it to the client
as well; `OpenAIChatRenderer(sends_reasoning=False)` leaves it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elision.providers.shared.base_renderer import (
    NO_RESULT_TEXT,
    JsonMessage,
    TurnCalls,
    ViewRenderer,
    describe_part,
    find_image,
)
from elision.trajectory.content import Content, Opaque, Part, Text
from elision.trajectory.turn import Action, Message

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
