"""Gemini's contents, live: in a user's message each function response is a piece, and the other parts are one more."""

from __future__ import annotations

from typing import Any

from elision.providers.gemini import parse
from elision.providers.live.pieces import Location, Piece
from elision.providers.shared.json_reading import Json, mapping_in, text_in
from elision.trajectory.turn import Message


class LiveGemini:
    """generateContent."""

    name = "gemini"
    roles = frozenset(("", "user", "model", "function"))
    joins_assistant_messages = True
    has_blocks = True
    # Words of the user between responses would not be a turn of their own.
    alternates_roles = False
    content_field = "parts"
    takes_breakpoints = False

    def split_message(self, message: Json, index: int) -> list[Piece]:
        if text_in(message.get("role")) == "model":
            return [Piece(kind="assistant", location=Location(index), assistant=parse.parse_assistant(message))]
        parts = self.list_blocks(message)
        if parts is None:
            return [Piece(kind="user", location=Location(index), words=parse.parse_words(parse.list_parts(message)))]
        return _split_parts(parts, index)

    def parse_system(self, value: object) -> list[Message]:
        words = parse.parse_words(parse.list_parts(value))
        if words:
            return [Message(role="system", content=words)]
        return []

    def list_blocks(self, message: Json) -> list[Any] | None:
        parts = message.get("parts")
        if isinstance(parts, list):
            return parts
        return None

    def replace_result(self, part: Json, text: str) -> dict[str, Any]:
        """Return a response that says `text` in the field in which it said all, or in `output`; media are left out."""
        field = parse.spell_field(part, "functionResponse")
        answer = mapping_in(part.get(field))
        if not answer:
            return self.make_block(text)
        kept = {name: value for name, value in answer.items() if name != "parts"}
        response = {parse.find_text_field(answer.get("response")) or "output": text}
        return {**part, field: {**kept, "response": response}}

    def make_block(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def make_user_message(self, text: str) -> dict[str, Any]:
        return {"role": "user", "parts": [self.make_block(text)]}


def _split_parts(parts: list[Any], message_index: int) -> list[Piece]:
    pieces: list[Piece] = []
    rest: list[int] = []
    for index, part in enumerate(parts):
        if parse.is_response(part):
            result = parse.parse_response(part)
            pieces.append(Piece(kind="result", location=Location(message_index, (index,)), result=result))
        else:
            rest.append(index)
    if rest or not pieces:
        words = parse.parse_words(parse.list_parts([parts[index] for index in rest]))
        pieces.append(Piece(kind="user", location=Location(message_index, tuple(rest)), words=words))
    return pieces
