"""Render views as OpenAI Responses items. Every request sends all of them (`store=False`).

Sealed reasoning goes back as it was recorded, before what the model said or did next; without that it is rejected.
Reasoning in clear text is left out: the service takes its own sealed items only. Item ids are left out, except those of
reasoning and of hosted tools, which need them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from elision.providers.shared.base_renderer import (
    JsonMessage,
    RecordedParts,
    TurnCalls,
    ViewRenderer,
    copy_recorded,
    describe_part,
    find_image,
)
from elision.providers.shared.json_reading import join_lines
from elision.trajectory.content import Content, Opaque, Part, Text
from elision.trajectory.turn import Action, Message

#: Letters that the service forbids in a tool's name.
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")

#: Parts and items kept as they were recorded -> fields that they cannot be without, and of which type.
_IN_USER: RecordedParts = {"input_image": {"detail": str}, "input_file": {}}
_IN_ASSISTANT: RecordedParts = {
    "reasoning": {"id": str, "summary": list, "encrypted_content": str},
    "web_search_call": {"id": str, "action": dict, "status": str},
    "image_generation_call": {"id": str, "status": str, "result": str},
}


def render_tool(tool: Mapping[str, Any]) -> JsonMessage:
    """Return `tool`, of `name`, `description` and `input_schema`, as a function of Responses."""
    return {
        "type": "function",
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["input_schema"],
        "strict": False,
    }


class OpenAIResponsesRenderer(ViewRenderer):
    """One session's items: messages, reasoning, calls and their outputs, each an item of its own."""

    def _render_message(self, message: Message, *, head: bool) -> list[JsonMessage]:
        if message.role == "user":
            return self._render_user(message.content)
        return [{"role": message.role, "content": _join_words(message.content)}]

    def _render_user(self, parts: Content) -> list[JsonMessage]:
        return [{"role": "user", "content": _render_parts(parts)}]

    def _render_assistant(self, calls: TurnCalls) -> list[JsonMessage]:
        items = [*_render_content(calls.turn.content), *(_render_call(id, action) for id, action in calls.calls)]
        while items and items[-1].get("type") == "reasoning":
            items.pop()
        return items

    def _render_result(self, id: str, parts: Content, error: bool | None) -> JsonMessage:
        return {"type": "function_call_output", "call_id": id, "output": _render_parts(parts)}


def _render_content(parts: Content) -> Iterator[JsonMessage]:
    """Yield what an assistant says: adjacent words are one message, and items keep their place."""
    words: list[Part] = []
    for part in (*parts, None):
        if isinstance(part, Opaque):
            item = _copy_recorded(part, _IN_ASSISTANT)
        else:
            item = None
        if part is not None and item is None:
            words.append(part)
            continue
        if said := _join_words(tuple(words)):
            yield {"role": "assistant", "content": said}
        words = []
        if item is not None:
            yield item


def _render_call(id: str, action: Action) -> JsonMessage:
    name = _FORBIDDEN.sub("_", action.name) or "unknown"
    return {"type": "function_call", "call_id": id, "name": name, "arguments": action.arguments}


def _join_words(parts: Content) -> str:
    """Join content that can hold only text."""
    return join_lines(part.text if isinstance(part, Text) else describe_part(part) for part in parts)


def _render_parts(parts: Content) -> Any:
    """Render content that may hold images: a text if there are none."""
    shown = [_render_part(part) for part in parts]
    shown = [part for part in shown if part.get("text") != ""]
    if all(part["type"] == "input_text" for part in shown) and len(shown) < 2:
        if shown:
            return shown[0]["text"]
        return ""
    return shown


def _render_part(part: Part) -> JsonMessage:
    if isinstance(part, Text):
        return _make_text(part.text)
    return _copy_recorded(part, _IN_USER) or _render_image(part) or _make_text(describe_part(part))


def _make_text(text: str) -> JsonMessage:
    return {"type": "input_text", "text": text}


def _copy_recorded(part: Opaque, allowed: RecordedParts) -> JsonMessage | None:
    """Copy a recorded item without nulls."""
    copied = copy_recorded(part, allowed, "prompt_cache_breakpoint")
    return copied and {name: value for name, value in copied.items() if value is not None}


def _render_image(part: Opaque) -> JsonMessage | None:
    image = find_image(part)
    if image is None:
        return None
    url = image.url or f"data:{image.media};base64,{image.data}"
    return {"type": "input_image", "detail": "auto", "image_url": url}
