"""What OpenAI's two shapes share live: a message is one piece, whatever parts its content has."""

from __future__ import annotations

from typing import Any

from elision.providers.live.pieces import CHAT_CLIENT_ROLES, CHAT_ROLES, Location, Piece
from elision.providers.shared.json_reading import Json, parse_content, text_in
from elision.trajectory.turn import Message


class WholeMessageDialect:
    """A dialect whose messages are hidden as a whole or not at all."""

    roles = CHAT_ROLES
    client_roles = CHAT_CLIENT_ROLES
    has_blocks = False
    alternates_roles = False
    content_field = "content"
    takes_breakpoints = False

    def parse_system(self, value: object) -> list[Message]:
        words = parse_content(value)
        if words:
            return [Message(role="system", content=words)]
        return []

    def list_blocks(self, message: Json) -> list[Any] | None:
        return None

    def make_block(self, text: str) -> dict[str, Any]:
        return {"type": "text", "text": text}

    def make_user_message(self, text: str) -> dict[str, Any]:
        return {"role": "user", "content": text}


def read_plain_message(message: Json, location: Location) -> list[Piece]:
    """Read a message that is neither the assistant's nor a result."""
    role = text_in(message.get("role"))
    words = parse_content(message.get("content"))
    if role == "system":
        return [Piece(kind="system", location=location, words=words, role="system")]
    if role == "developer":
        return [Piece(kind="system", location=location, words=words, role="developer")]
    return [Piece(kind="user", location=location, words=words)]
