"""OpenAI chat messages, live: every message is one piece."""

from __future__ import annotations

from typing import Any

from elision.providers.live.pieces import LiveDialect, Location, Piece, read_plain_message
from elision.providers.openai_chat import parse as openai_chat
from elision.providers.shared.json_reading import Json, text_in


class LiveOpenAIChat(LiveDialect):
    """Chat completions, and the many servers that speak it."""

    name = "openai"
    joins_assistant_messages = False

    def split_message(self, message: Json, index: int) -> list[Piece]:
        role = text_in(message.get("role"))
        spot = Location(index)
        if role == "assistant":
            return [Piece(kind="assistant", location=spot, assistant=openai_chat.parse_assistant(message))]
        if role in ("tool", "function"):
            return [Piece(kind="result", location=spot, result=openai_chat.parse_result(message))]
        return read_plain_message(message, spot)

    def replace_result(self, part: Json, text: str) -> dict[str, Any]:
        return {**part, "content": text}
