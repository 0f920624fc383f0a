"""Gemini's contents, live: in a user's message each function response is a piece, and the other parts are one more."""

from __future__ import annotations

from typing import Any

from elision.providers.gemini import parse
from elision.providers.live.block_messages import BlockMessageDialect
from elision.providers.live.pieces import Location, Piece
from elision.providers.shared.json_reading import Json, ToolResult, mapping_in, text_in
from elision.trajectory.content import Content


class LiveGemini(BlockMessageDialect):
    """generateContent."""

    name = "gemini"
    roles = frozenset(("", "user", "model", "function"))
    client_roles = frozenset(("user", "function"))
    content_field = "parts"

    def split_message(self, message: Json, index: int) -> list[Piece]:
        if text_in(message.get("role")) == "model":
            return [Piece(kind="assistant", location=Location(index), assistant=parse.parse_assistant(message))]
        return self.split_user_message(message, index)

    def parse_words(self, value: object) -> Content:
        return parse.parse_words(parse.list_parts(value))

    def parse_block_result(self, block: object) -> ToolResult | None:
        return parse.parse_response(mapping_in(block)) if parse.is_response(block) else None

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
