"""OpenAI chat messages, live: every message is one piece."""

from __future__ import annotations

from typing import Any

from elision.dialects import Json, openai_chat, text_in
from elision.dialects.live.flat import Flat, words_of
from elision.dialects.live.pieces import Piece, Spot


class OpenAIChat(Flat):
    """Chat completions, and the many servers that speak it."""

    name = "openai"
    runs = False

    def pieces(self, message: Json, place: int) -> list[Piece]:
        role = text_in(message.get("role"))
        spot = Spot(place)
        if role == "assistant":
            return [Piece(kind="assistant", spot=spot, said=openai_chat.said(message))]
        if role in ("tool", "function"):
            return [Piece(kind="result", spot=spot, result=openai_chat.result(message))]
        return words_of(message, spot)

    def hidden(self, part: Json, text: str) -> dict[str, Any]:
        return {**part, "content": text}
