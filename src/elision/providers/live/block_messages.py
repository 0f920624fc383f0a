"""What Anthropic's and Gemini's shapes share live: each result in a user's message is a piece, the rest is one more."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from elision.providers.live.pieces import LiveDialect, Location, Piece
from elision.providers.shared.json_reading import Json, ToolResult


class BlockMessageDialect(LiveDialect):
    """A dialect whose messages have content in blocks, which are hidden one by one."""

    joins_assistant_messages = True
    has_blocks = True

    @abstractmethod
    def parse_block_result(self, block: object) -> ToolResult | None:
        """Read a block that answers a call; None if it answers none."""

    def make_user_message(self, text: str) -> dict[str, Any]:
        return {"role": "user", self.content_field: [self.make_block(text)]}

    def list_blocks(self, message: Json) -> list[Any] | None:
        content = message.get(self.content_field)
        return content if isinstance(content, list) else None

    def split_user_message(self, message: Json, index: int) -> list[Piece]:
        """Return the pieces of a user's message: of each result, and of its words."""
        blocks = self.list_blocks(message)
        if blocks is None:
            words = self.parse_words(message.get(self.content_field))
            return [Piece(kind="user", location=Location(index), words=words)]
        pieces: list[Piece] = []
        rest: list[int] = []
        for place, block in enumerate(blocks):
            result = self.parse_block_result(block)
            if result is None:
                rest.append(place)
            else:
                pieces.append(Piece(kind="result", location=Location(index, (place,)), result=result))
        if rest or not pieces:
            words = self.parse_words([blocks[place] for place in rest])
            pieces.append(Piece(kind="user", location=Location(index, tuple(rest)), words=words))
        return pieces
