"""A client's message, read once. The gateway and the library share it, so neither has a copy of its own.

The parts of a client's message, and digests that identify messages by what they say.

What Anthropic's and Gemini's shapes share live: each result in a user's message is a piece, the rest is one more.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from elision.providers.shared.json_reading import AssistantMessage, Json, ToolResult, parse_content
from elision.providers.shared.message_tags import MessageTags, take_tags
from elision.trajectory.content import SEALED_KINDS, Content, Text
from elision.trajectory.foreign_text import encode_pieces, parse_object
from elision.trajectory.turn import Action, Message

#: Roles of messages at OpenAI, and at Anthropic, where some of them do not occur.
CHAT_ROLES: Final = frozenset(("system", "developer", "user", "assistant", "tool", "function"))
#: Those of them that are not the assistant's.
CHAT_CLIENT_ROLES: Final = CHAT_ROLES - {"assistant"}
PieceKind: TypeAlias = Literal["system", "user", "assistant", "result"]
#: Fields that say nothing to the model, or differ each time the same is sent.
_PASSING = frozenset(("cache_control", "prompt_cache_breakpoint", "id", "call_id", "tool_use_id", "status"))


class Location(msgspec.Struct, frozen=True, gc=False):
    """Where a piece is: in message `message` (0-based), in which of its content blocks; None for the whole message."""

    message: int
    blocks: tuple[int, ...] | None = None


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """One atom: all that an assistant message (or item) says, one result, or what a user or system message says.

    words:  of a user or system piece. role: its role. assistant: of an assistant piece. result: of a result.
    is_silent: whether no history is known by it: an item of reasoning, which some clients send back and some leave out.
    is_pinned: whether a summary must leave it: it sets what tools there are from there on.
    tags: that the client gave it. call_tags: those of single calls of an assistant's piece, by the call's id.
    """

    kind: PieceKind
    location: Location
    words: Content = ()
    role: Literal["system", "developer", "user"] = "user"
    assistant: AssistantMessage | None = None
    result: ToolResult | None = None
    is_silent: bool = False
    is_pinned: bool = False
    tags: frozenset[str] = frozenset()
    call_tags: tuple[tuple[str, frozenset[str]], ...] = ()


class LiveDialect(ABC):
    """What one provider's shape needs to be read and to be sent on. Never raises, whatever a message holds.

    What is not abstract is as at OpenAI, where a message is hidden as a whole or not at all.

    name: of the API; another one than that of the class where several APIs have the same messages.
    """

    name: str
    #: Roles that a message may have; "" where it may leave its role out.
    roles: frozenset[str] = CHAT_ROLES
    #: Those of them that are never the assistant's, unless an item's type says otherwise.
    client_roles: frozenset[str] = CHAT_CLIENT_ROLES
    #: Whether consecutive messages of the assistant are one turn: the API combines them, or they are items.
    joins_assistant_messages: bool
    #: Whether content comes in blocks.
    has_blocks = False
    #: Whether roles must take turns.
    alternates_roles = False
    #: Field of a message that holds its content.
    content_field = "content"
    #: Whether a client may mark where entries of the prompt cache end.
    takes_breakpoints = False

    def __init__(self, name: str = "") -> None:
        if name:
            self.name = name

    @abstractmethod
    def split_message(self, message: Json, index: int) -> list[Piece]:
        """Return the pieces of message `index`, in order; each block belongs to one."""

    @abstractmethod
    def replace_result(self, part: Json, text: str) -> dict[str, Any]:
        """Return a result (a message, or one block of it) with `text` in place of its content."""

    def parse_words(self, value: object) -> Content:
        """Read what a user or a system prompt says: a text, or blocks that are no results."""
        return parse_content(value)

    def parse_system(self, value: object) -> list[Message]:
        """Read a system prompt that is not among the messages."""
        words = self.parse_words(value)
        return [Message(role="system", content=words)] if words else []

    def list_blocks(self, message: Json) -> list[Any] | None:
        """Return the content blocks if pieces may be single blocks; None if a message is one piece."""
        return None

    def make_block(self, text: str) -> dict[str, Any]:
        """Return a block that says `text`, where content comes in blocks."""
        return {"type": "text", "text": text}

    def make_user_message(self, text: str) -> dict[str, Any]:
        """Return a message in the user's role that says `text`."""
        return {"role": "user", "content": text}


def read_plain_message(message: Json, location: Location) -> list[Piece]:
    """Read a message of OpenAI's that is neither the assistant's nor a result."""
    words = parse_content(message.get("content"))
    match message.get("role"):
        case "system" | "developer" as role:
            return [Piece(kind="system", location=location, words=words, role=role)]
    return [Piece(kind="user", location=location, words=words)]


def tag_pieces(pieces: Sequence[Piece], tags: MessageTags) -> list[Piece]:
    """Return the pieces of one message with its tags.

    What is said of a message that holds tool results is said of those; its other words are the user's.
    """
    has_results = any(piece.kind == "result" for piece in pieces)
    return [_tag_piece(piece, tags, has_results=has_results) for piece in pieces]


def _tag_piece(piece: Piece, tags: MessageTags, *, has_results: bool) -> Piece:
    if piece.kind == "assistant":
        return replace(piece, tags=tags.of_text, call_tags=tuple(tags.calls.items()))
    if piece.location.blocks is None:
        return replace(piece, tags=tags.of_text)
    own = tags.select_blocks(piece.location.blocks)
    if piece.kind == "result" or not has_results:
        own |= tags.whole
    return replace(piece, tags=own)


def digest_pieces(pieces: Iterable[Piece], *, is_behind_head: bool = False) -> bytes:
    """Return a digest (16 bytes) of what a message says; b"" for nothing.

    Cache markers, ids, nulls, reasoning and system prompts are left out.

    is_behind_head: whether the message comes after the head; a system message is then words of the conversation.
    """
    kept = [piece for piece in pieces if (is_behind_head or piece.kind != "system") and not piece.is_silent]
    if not kept:
        return b""
    digest = hashlib.blake2b(digest_size=16)
    for piece in kept:
        for word in _list_words(piece):
            size = len(word) if word.isascii() else sum(map(len, encode_pieces(word)))
            digest.update(size.to_bytes(8, "little"))
            for data in encode_pieces(word):
                digest.update(data)
    return digest.digest()


def _list_words(piece: Piece) -> list[str]:
    words: list[str] = [piece.kind]
    content = piece.words
    actions: tuple[Action, ...] = ()
    if piece.assistant is not None:
        content = piece.assistant.content
        actions = piece.assistant.actions
    elif piece.result is not None:
        content = piece.result.content
    for part in content:
        if isinstance(part, Text):
            words.append(part.text)
        elif part.kind not in SEALED_KINDS:
            words.append(f"{part.kind} {json.dumps(strip_passing(part.data), sort_keys=True, default=str)}")
    for action in actions:
        decoded = action.decoded_arguments
        words += (f"call {action.name}", json.dumps(decoded, sort_keys=True) if decoded else action.arguments)
    return words


def strip_passing(value: object) -> object:
    """Return `value` without nulls, ids and cache markers."""
    if isinstance(value, Mapping):
        return {key: strip_passing(inner) for key, inner in value.items() if inner is not None and key not in _PASSING}
    if isinstance(value, list | tuple):
        return [strip_passing(inner) for inner in value]
    return value


def chain_digest(node: bytes, message_digest: bytes) -> bytes:
    """Return the digest of a history: of the history before its last message, and of what that message says."""
    if message_digest:
        return hashlib.blake2b(node + message_digest, digest_size=16).digest()
    return node


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
