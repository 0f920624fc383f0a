"""Render views as Anthropic messages: the system prompt apart, roles alternating, results first in the next message.

Reasoning in clear text is left out: its signature was not recorded, and a thinking block without it is rejected. Sealed
blocks go back as they were recorded. Each mark of the view puts a cache breakpoint on the last block before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from elision.providers.anthropic.breakpoints import THINKING_TYPES
from elision.providers.shared.base_renderer import (
    CONTINUE_TEXT,
    OPENING_TEXT,
    BlockRenderer,
    JsonMessage,
    RecordedParts,
    TurnCalls,
    copy_recorded,
    describe_part,
    find_image,
    parse_input,
)
from elision.trajectory.content import Content, Opaque, Part, Text
from elision.trajectory.turn import Action
from elision.trajectory.view import View

_MEDIA_TYPES = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")

#: Blocks kept as they were recorded, by where they are allowed -> the fields that they need, with their types.
_WITH_SOURCE: RecordedParts = {"image": {"source": dict}, "document": {"source": dict}}
_IN_RESULT: RecordedParts = {
    **_WITH_SOURCE,
    "search_result": {"content": list},
    "tool_reference": {"tool_name": str},
}
_IN_USER: RecordedParts = {
    **_WITH_SOURCE,
    "search_result": {"content": list},
    "container_upload": {"file_id": str},
}
_SERVER_RESULT: Mapping[str, type] = {"tool_use_id": str, "content": object}
_IN_ASSISTANT: RecordedParts = {
    "thinking": {"thinking": str, "signature": str},
    "redacted_thinking": {"data": str},
    "server_tool_use": {"id": str, "name": str, "input": dict},
    "mcp_tool_use": {"id": str, "name": str, "input": dict},
    "mcp_tool_result": _SERVER_RESULT,
    "web_search_tool_result": _SERVER_RESULT,
    "web_fetch_tool_result": _SERVER_RESULT,
    "code_execution_tool_result": _SERVER_RESULT,
    "bash_code_execution_tool_result": _SERVER_RESULT,
    "text_editor_code_execution_tool_result": _SERVER_RESULT,
    "tool_search_tool_result": _SERVER_RESULT,
}


def render_tool(tool: Mapping[str, Any]) -> JsonMessage:
    """Return `tool`, of `name`, `description` and `input_schema`: it is in this API's form."""
    return dict(tool)


class AnthropicRenderer(BlockRenderer):
    """One session's messages; content is always a list of blocks, except a result's that is one text."""

    forbidden_letters = _FORBIDDEN

    def render_messages(self, view: View) -> list[JsonMessage]:
        sent = self.render_unmarked(view)
        for message, block in self._find_marks(view):
            sent[message] = _mark_message(sent[message], block)
        return sent

    def render_unmarked(self, view: View) -> list[JsonMessage]:
        sent = super().render_unmarked(view)
        return sent + self._make_filler(sent)

    def render_system(self, view: View) -> list[JsonMessage]:
        blocks = super().render_system(view)
        # The breakpoints that come before the first message.
        if blocks and any(self._ends[mark - 1] == (0, 0) for mark in view.marks):
            blocks[-1] = _mark_block(blocks[-1])
        return blocks

    # -- what is said ---------------------------------------------------------------------------------------------

    def _render_system(self, parts: Content) -> list[JsonMessage]:
        return list(_render_parts(parts, {}))

    def _render_user(self, parts: Content) -> list[JsonMessage]:
        return self._make_messages("user", list(_render_parts(parts, _IN_USER)))

    def _render_assistant(self, calls: TurnCalls) -> list[JsonMessage]:
        blocks = [
            *_render_parts(calls.turn.content, _IN_ASSISTANT),
            *(_render_call(id, action) for id, action in calls.calls),
        ]
        while blocks and blocks[-1]["type"] in THINKING_TYPES:
            blocks.pop()
        return self._make_messages("assistant", blocks)

    def _render_result(self, id: str, parts: Content, error: bool | None) -> JsonMessage:
        blocks = list(_render_parts(parts, _IN_RESULT))
        result: JsonMessage = {"type": "tool_result", "tool_use_id": id}
        if blocks:
            if len(blocks) == 1 and blocks[0]["type"] == "text":
                result["content"] = blocks[0]["text"]
            else:
                result["content"] = blocks
        # An error must say something, and in text alone.
        if error and blocks and all(block["type"] == "text" for block in blocks):
            result["is_error"] = True
        return {"role": "user", "content": [result]}

    def _append_message(self, message: JsonMessage) -> None:
        if message["role"] == "assistant":
            self._messages += self._make_filler(self._messages)
        elif self._messages and self._messages[-1]["role"] == "user":
            last = self._messages[-1]
            self._messages[-1] = {**last, "content": last["content"] + message["content"]}
            return
        self._messages.append(message)

    def _make_filler(self, messages: list[JsonMessage]) -> list[JsonMessage]:
        """Return the message that must come between `messages` and an assistant message; [] if none must."""
        if messages and messages[-1]["role"] == "user":
            return []
        return [{"role": "user", "content": [_make_text(CONTINUE_TEXT if messages else OPENING_TEXT)]}]

    # -- cache breakpoints ----------------------------------------------------------------------------------------

    def _find_marks(self, view: View) -> set[tuple[int, int]]:
        """Return (message, block) of every breakpoint."""
        found = (self._find_last_block(*self._ends[mark - 1]) for mark in view.marks)
        return {place for place in found if place}

    def _find_last_block(self, count: int, blocks: int) -> tuple[int, int] | None:
        """Return the last block among `count` messages that can bear a breakpoint; None if there is none.

        blocks: of the last message, how many count.
        """
        while count:
            content = self._messages[count - 1]["content"]
            for block in range(blocks - 1, -1, -1):
                if content[block]["type"] not in THINKING_TYPES:
                    return count - 1, block
            count -= 1
            blocks = len(self._messages[count - 1]["content"]) if count else 0
        return None


def _mark_block(block: JsonMessage) -> JsonMessage:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _mark_message(message: JsonMessage, block: int) -> JsonMessage:
    blocks = message["content"]
    return {**message, "content": [*blocks[:block], _mark_block(blocks[block]), *blocks[block + 1 :]]}


# -- blocks ---------------------------------------------------------------------------------------------------------


def _make_text(text: str) -> JsonMessage:
    return {"type": "text", "text": text}


def _render_parts(parts: Content, allowed: RecordedParts) -> Iterator[JsonMessage]:
    """Yield `parts` as blocks. Only `allowed` kinds go as recorded; blank text is left out, as it is rejected."""
    for part in parts:
        block = _render_part(part, allowed)
        if block["type"] != "text" or block["text"].strip():
            yield block


def _render_part(part: Part, allowed: RecordedParts) -> JsonMessage:
    if isinstance(part, Text):
        return _make_text(part.text)
    return (
        copy_recorded(part, allowed, "cache_control")
        or (_render_image(part) if "image" in allowed else None)
        or _make_text(describe_part(part))
    )


def _render_image(part: Opaque) -> JsonMessage | None:
    image = find_image(part)
    if image is None or (image.data and image.media not in _MEDIA_TYPES):
        return None
    if image.data:
        source = {"type": "base64", "media_type": image.media, "data": image.data}
    else:
        source = {"type": "url", "url": image.url}
    return {"type": "image", "source": source}


def _render_call(id: str, action: Action) -> JsonMessage:
    name = _FORBIDDEN.sub("_", action.name) or "unknown"
    return {"type": "tool_use", "id": id, "name": name, "input": parse_input(action.arguments)}
