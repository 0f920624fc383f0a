"""A client's message, read once. The gateway and the library share it, so neither has a copy of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elision.providers.live.pieces import LiveDialect, Piece, digest_pieces
from elision.providers.shared.json_reading import Json
from elision.providers.shared.message_tags import MessageTags, take_tags
from elision.trajectory.foreign_json import parse_object

#: Returns the bytes of a message that was changed: (its bytes, the message, the changed message).
EncodeChanges = Callable[[bytes, Json, Json], bytes]


@dataclass(slots=True, eq=False)
class ParsedMessage:
    """One message of a client. It never changes, so it is compared by identity.

    kept_json:         the message as the client gave it; None where only its bytes are kept.
    raw:               its bytes; b"" where it came as an object.
    digest:            a digest of its content (16 bytes), b"" where it has none.
    opening_digest:    the same for a place before the first answer, where system prompts are left out.
    is_from_assistant: whether the assistant said any of it.
    tags:              those that the client gave it; None without any. untagged: the message without them.
    """

    kept_json: Json | None
    raw: bytes
    digest: bytes
    opening_digest: bytes
    is_from_assistant: bool
    tags: MessageTags | None = None
    untagged: ParsedMessage | None = None

    @property
    def sent(self) -> ParsedMessage:
        """Return the message as it is sent: without tags."""
        return self.untagged or self

    @property
    def json(self) -> Json:
        """Return the message as the client gave it; read again where only its bytes are kept."""
        return self.kept_json or parse_object(self.raw) or {}

    def release_json(self) -> None:
        """Keep only the bytes, unless there are none. A message with cache markers is looked at in every call."""
        message = self.sent
        if self.raw and message.raw and b'"cache_control"' not in self.raw:
            self.kept_json = message.kept_json = None


def parse_message(
    dialect: LiveDialect, json: Json, place: int, raw: bytes = b"", encode: EncodeChanges | None = None
) -> tuple[ParsedMessage, list[Piece]]:
    """Return message `place` (0-based) of a conversation, and its pieces without tags.

    encode: makes the bytes of the message without its tags, if it has any.
    """
    bare, tags = take_tags(json)
    pieces = dialect.split_message(bare, place)
    kinds = {piece.kind for piece in pieces}
    digest = digest_pieces(pieces, is_behind_head=True)
    opening_digest = digest_pieces(pieces) if "system" in kinds else digest
    from_assistant = "assistant" in kinds
    untagged = None
    if tags is not None:
        bare_raw = encode(raw, json, bare) if encode is not None else b""
        untagged = ParsedMessage(bare, bare_raw, digest, opening_digest, from_assistant)
    return ParsedMessage(json, raw, digest, opening_digest, from_assistant, tags, untagged), pieces
