"""Anthropic messages, live: in a user message each result is a piece, and all that stands beside them is one more."""

from __future__ import annotations

from typing import Any

from elision.dialects import Json, anthropic, content_of, mapping_in, text_in
from elision.dialects.live.pieces import Piece, Spot
from elision.trajectory.content import Content, Opaque
from elision.trajectory.turn import Message

#: Blocks of a system message that change which tools there are.
_TOOLS = ("tool_addition", "tool_removal")


class Anthropic:
    """The Messages API."""

    name = "anthropic"
    runs = True
    in_blocks = True

    def pieces(self, message: Json, place: int) -> list[Piece]:
        role = text_in(message.get("role"))
        if role == "assistant":
            return [Piece(kind="assistant", spot=Spot(place), said=anthropic.said(message))]
        if role in ("system", "developer"):
            words = content_of(message.get("content"))
            return [Piece(kind="system", spot=Spot(place), words=words, role="system", pinned=_sets_tools(words))]
        blocks = self.blocks(message)
        if blocks is None:
            return [Piece(kind="user", spot=Spot(place), words=content_of(message.get("content")))]
        return list(_user(blocks, place))

    def system(self, value: object) -> list[Message]:
        words = content_of(value)
        if words:
            return [Message(role="system", content=words)]
        return []

    def blocks(self, message: Json) -> list[Any] | None:
        content = message.get("content")
        if isinstance(content, list):
            return content
        return None

    def hidden(self, part: Json, text: str) -> dict[str, Any]:
        if part.get("type") == "tool_result":
            return {**part, "content": text}
        return {"type": "text", "text": text}

    def spoken(self, text: str) -> dict[str, Any]:
        return {"role": "user", "content": [{"type": "text", "text": text}]}


def _user(blocks: list[Any], place: int) -> list[Piece]:
    pieces: list[Piece] = []
    rest: list[int] = []
    for index, block in enumerate(blocks):
        if mapping_in(block).get("type") == "tool_result":
            (result,) = anthropic.results({"content": [block]})
            pieces.append(Piece(kind="result", spot=Spot(place, (index,)), result=result))
        else:
            rest.append(index)
    if rest or not pieces:
        words = anthropic.remarks({"content": [blocks[index] for index in rest]})
        pieces.append(Piece(kind="user", spot=Spot(place, tuple(rest)), words=words))
    return pieces


def _sets_tools(words: Content) -> bool:
    return any(isinstance(part, Opaque) and part.kind in _TOOLS for part in words)
