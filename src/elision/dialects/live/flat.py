"""What OpenAI's two shapes share live: a message is one piece, whatever parts its content has."""

from __future__ import annotations

from typing import Any

from elision.dialects import Json, content_of, text_in
from elision.dialects.live.pieces import Piece, Spot
from elision.trajectory.turn import Message


class Flat:
    """A dialect whose messages are hidden as a whole or not at all."""

    in_blocks = False

    def system(self, value: object) -> list[Message]:
        words = content_of(value)
        if words:
            return [Message(role="system", content=words)]
        return []

    def blocks(self, message: Json) -> list[Any] | None:
        return None

    def spoken(self, text: str) -> dict[str, Any]:
        return {"role": "user", "content": text}


def words_of(message: Json, spot: Spot) -> list[Piece]:
    """A message that is neither the assistant's nor a result."""
    role = text_in(message.get("role"))
    words = content_of(message.get("content"))
    if role == "system":
        return [Piece(kind="system", spot=spot, words=words, role="system")]
    if role == "developer":
        return [Piece(kind="system", spot=spot, words=words, role="developer")]
    return [Piece(kind="user", spot=spot, words=words)]
