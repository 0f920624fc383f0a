"""OpenAI chat messages, live: every message is one piece."""

from __future__ import annotations

from typing import Any

from lacuna.dialects import Json, content_of, openai_chat, text_in
from lacuna.dialects.live.pieces import Piece, Spot
from lacuna.trajectory.turn import Message


class OpenAIChat:
    """Chat completions, and the many servers that speak it."""

    name = "openai"
    runs = False
    in_blocks = False

    def pieces(self, message: Json, place: int) -> list[Piece]:
        role, spot = text_in(message.get("role")), Spot(place)
        if role == "assistant":
            return [Piece(kind="assistant", spot=spot, said=openai_chat.said(message))]
        if role in ("tool", "function"):
            return [Piece(kind="result", spot=spot, result=openai_chat.result(message))]
        words = content_of(message.get("content"))
        if role in ("system", "developer"):
            return [Piece(kind="system", spot=spot, words=words, role="system" if role == "system" else "developer")]
        return [Piece(kind="user", spot=spot, words=words)]

    def system(self, value: object) -> list[Message]:
        words = content_of(value)
        return [Message(role="system", content=words)] if words else []

    def blocks(self, message: Json) -> list[Any] | None:
        return None

    def hidden(self, part: Json, text: str) -> dict[str, Any]:
        return {**part, "content": text}

    def spoken(self, text: str) -> dict[str, Any]:
        return {"role": "user", "content": text}
