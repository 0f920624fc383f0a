"""Anthropic messages, live: in a user message each result is a piece, and the other blocks are one more."""

from __future__ import annotations

from typing import Any

from elision.providers.anthropic import parse as anthropic
from elision.providers.live.pieces import CHAT_ROLES, Location, Piece
from elision.providers.shared.json_reading import Json, mapping_in, parse_content, text_in
from elision.trajectory.content import Content, Opaque
from elision.trajectory.turn import Message

#: Blocks of a system message that change which tools there are.
_TOOLS = ("tool_addition", "tool_removal")


class LiveAnthropic:
    """The Messages API."""

    name = "anthropic"
    roles = CHAT_ROLES
    joins_assistant_messages = True
    has_blocks = True
    alternates_roles = True
    content_field = "content"
    takes_breakpoints = True

    def split_message(self, message: Json, index: int) -> list[Piece]:
        role = text_in(message.get("role"))
        if role == "assistant":
            return [Piece(kind="assistant", location=Location(index), assistant=anthropic.parse_assistant(message))]
        if role in ("system", "developer"):
            words = parse_content(message.get("content"))
            return [
                Piece(
                    kind="system",
                    location=Location(index),
                    words=words,
                    role="system",
                    is_pinned=_has_tool_changes(words),
                )
            ]
        blocks = self.list_blocks(message)
        if blocks is None:
            return [Piece(kind="user", location=Location(index), words=parse_content(message.get("content")))]
        return list(_split_user_blocks(blocks, index))

    def parse_system(self, value: object) -> list[Message]:
        words = parse_content(value)
        if words:
            return [Message(role="system", content=words)]
        return []

    def list_blocks(self, message: Json) -> list[Any] | None:
        content = message.get("content")
        if isinstance(content, list):
            return content
        return None

    def replace_result(self, part: Json, text: str) -> dict[str, Any]:
        if part.get("type") == "tool_result":
            return {**part, "content": text}
        return self.make_block(text)

    def make_block(self, text: str) -> dict[str, Any]:
        return {"type": "text", "text": text}

    def make_user_message(self, text: str) -> dict[str, Any]:
        return {"role": "user", "content": [self.make_block(text)]}


def _split_user_blocks(blocks: list[Any], message_index: int) -> list[Piece]:
    pieces: list[Piece] = []
    rest: list[int] = []
    for index, block in enumerate(blocks):
        if mapping_in(block).get("type") == "tool_result":
            (result,) = anthropic.parse_results({"content": [block]})
            pieces.append(Piece(kind="result", location=Location(message_index, (index,)), result=result))
        else:
            rest.append(index)
    if rest or not pieces:
        words = anthropic.parse_user_words({"content": [blocks[index] for index in rest]})
        pieces.append(Piece(kind="user", location=Location(message_index, tuple(rest)), words=words))
    return pieces


def _has_tool_changes(words: Content) -> bool:
    return any(isinstance(part, Opaque) and part.kind in _TOOLS for part in words)
