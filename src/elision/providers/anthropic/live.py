"""Anthropic messages, live: in a user message each result is a piece, and the other blocks are one more."""

from __future__ import annotations

from typing import Any

from elision.providers.anthropic.parse import parse_assistant, parse_results, parse_user_words
from elision.providers.live.block_messages import BlockMessageDialect
from elision.providers.live.pieces import Location, Piece
from elision.providers.shared.json_reading import Json, ToolResult, mapping_in, parse_content, text_in
from elision.trajectory.content import Content, Opaque

#: Blocks of a system message that change which tools there are.
_TOOLS = ("tool_addition", "tool_removal")


class LiveAnthropic(BlockMessageDialect):
    """The Messages API."""

    name = "anthropic"
    alternates_roles = True
    takes_breakpoints = True

    def split_message(self, message: Json, index: int) -> list[Piece]:
        role = text_in(message.get("role"))
        spot = Location(index)
        if role == "assistant":
            return [Piece(kind="assistant", location=spot, assistant=parse_assistant(message))]
        if role in ("system", "developer"):
            words = parse_content(message.get("content"))
            changes_tools = any(isinstance(part, Opaque) and part.kind in _TOOLS for part in words)
            return [Piece(kind="system", location=spot, words=words, role="system", is_pinned=changes_tools)]
        return self.split_user_message(message, index)

    def parse_words(self, value: object) -> Content:
        return parse_user_words({"content": value}) if isinstance(value, list) else parse_content(value)

    def parse_block_result(self, block: object) -> ToolResult | None:
        if mapping_in(block).get("type") != "tool_result":
            return None
        return parse_results({"content": [block]})[0]

    def replace_result(self, part: Json, text: str) -> dict[str, Any]:
        if part.get("type") == "tool_result":
            return {**part, "content": text}
        return self.make_block(text)
