"""A client's messages, read once: as JSON, in the parts that Elision hides, and under digests that say what they are.

A client holds JSON objects, or the objects of a provider's package; they are never changed, and gateway and library
share what was read, so neither has a copy of its own. Messages of agent frameworks, which are refused, and those of no
known shape are told from those that a provider of the table accepts.
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

from elision.errors import DialectError
from elision.providers.shared.json_reading import (
    AssistantMessage,
    Json,
    MessageTags,
    ToolResult,
    mapping_in,
    mappings_in,
    parse_content,
    take_tags,
    text_in,
)
from elision.trajectory.foreign_text import encode_pieces, parse_object
from elision.trajectory.turn import SEALED_KINDS, Action, Content, Message, Text

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


_LANGCHAIN_TYPES: Final = frozenset(("human", "ai", "system", "tool", "function", "chat"))

_LANGCHAIN: Final = (
    "a LangChain message; give langchain_core.messages.convert_to_openai_messages(messages), or send the requests of "
    "the chain through the gateway (`elision serve`)"
)
_PYDANTIC_AI: Final = (
    "a Pydantic AI message; give the agent the capability of elision.adapters.pydantic_ai, or send its requests "
    "through the gateway (`elision serve`)"
)
_PARTS: Final = (
    "a message of parts (Gemini, AI SDK); give OpenAI chat messages, Responses items, Anthropic messages, or Gemini's "
    'contents with dialect="gemini"'
)
_CONVERSE: Final = (
    "a message of Bedrock's Converse API; give Anthropic messages, as AnthropicBedrock takes them, or use "
    "elision.adapters.strands with Strands Agents"
)


#: Packages whose message objects are no provider's, whatever they are dumped to, and what people call them.
_FRAMEWORKS: Final = {
    "agent_framework": "Microsoft Agent Framework",
    "agno": "Agno",
    "autogen_core": "AutoGen",
    "haystack": "Haystack",
    "inspect_ai": "Inspect",
    "langchain_core": "LangChain",
    "llama_index": "LlamaIndex",
    "openhands": "OpenHands",
    "pydantic_ai": "Pydantic AI",
    "semantic_kernel": "Semantic Kernel",
    "smolagents": "smolagents",
}
#: The adapters of those that have one.
_ADAPTERS: Final = {
    "agno": "elision.adapters.agno",
    "llama_index": "elision.adapters.llama_index",
    "langchain_core": "elision.adapters.langchain or elision.adapters.langgraph",
    "agent_framework": "elision.adapters.agent_framework",
    "inspect_ai": "elision.adapters.inspect_ai",
    "pydantic_ai": "elision.adapters.pydantic_ai",
    "openhands": "elision.adapters.openhands",
    "smolagents": "elision.adapters.smolagents",
}


def describe_foreign_object(value: object) -> str:
    """Return whose message an object is, by the package of its type, and what to do; "" unless it is a framework's."""
    for kind in type(value).__mro__:
        package = kind.__module__.partition(".")[0]
        framework = _FRAMEWORKS.get(package)
        if framework is not None:
            adapter = _ADAPTERS.get(package)
            remedy = f"use {adapter}" if adapter else "translate its messages with elision.adapters.mirror"
            return (
                f"a {type(value).__name__} of {framework}; {remedy}, or send the agent's requests through the gateway "
                "(`elision serve`)"
            )
    return ""


def describe_foreign(message: Json, content_field: str = "content") -> str:
    """Return whose message this plainly is and what to give instead; "" unless it is a framework's.

    content_field: the field in which the client's API has the content of a message.
    """
    if "role" not in message and _is_langchain(message):
        return _LANGCHAIN
    parts = mappings_in(message.get("parts"))
    if any("part_kind" in part for part in parts):
        return _PYDANTIC_AI
    if parts and "content" not in message and (content_field != "parts" or any("type" in part for part in parts)):
        return _PARTS
    blocks = mappings_in(message.get("content"))
    if any("type" not in block and mapping_in(block.get("toolUse") or block.get("toolResult")) for block in blocks):
        return _CONVERSE
    return ""


def _is_langchain(message: Json) -> bool:
    """Return whether a message without a role is LangChain's, as it dumps one or as a dictionary of its own."""
    kind = text_in(message.get("type"))
    return "additional_kwargs" in message or kind in ("human", "ai") or (kind in _LANGCHAIN_TYPES and "data" in message)


def is_known(message: Json, dialect: LiveDialect) -> bool:
    """Return whether a message has a role of its API, or is an item that is known by its type."""
    if text_in(message.get("role")) in dialect.roles:
        return True
    return dialect.joins_assistant_messages and text_in(message.get("type")) not in ("", "message")


def copy_structure(value: Any) -> Any:
    """Copy the structure of `value` and share its texts, to know later what it looked like when it was read."""
    if type(value) is str:
        return value
    if isinstance(value, dict):
        return {key: copy_structure(inner) for key, inner in value.items()}
    if type(value) is list:
        return [copy_structure(inner) for inner in value]
    if type(value) is tuple:
        return tuple(copy_structure(inner) for inner in value)
    copied = getattr(value, "model_copy", None)
    if callable(copied):
        return copied(deep=True)
    return value


def convert_to_json(value: Any) -> Any:
    """Return `value` as JSON alone. Objects of a provider's package become what they send; JSON is copied."""
    kind = type(value)
    if kind is str or value is None or kind in (int, float, bool):
        return value
    if isinstance(value, dict):
        return {key: inner if type(inner) is str else convert_to_json(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [convert_to_json(inner) for inner in value]
    if isinstance(value, ParsedMessage):
        # It never changes, and is JSON already.
        return value.json
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        # Providers send values that are newer than the package's types; pydantic would warn of each.
        if hasattr(value, "__pydantic_serializer__"):
            silent = {"warnings": False}
        else:
            silent = {}
        return convert_to_json(dump(mode="json", exclude_none=True, **silent))
    if isinstance(value, str | int | float):
        return value
    return str(value)


def read_client_message(value: Any, index: int, dialect: LiveDialect) -> Json:
    """Return message `index` (0-based) as a JSON object. Raises DialectError if it is none, or another framework's."""
    if type(value) is not dict and (foreign := describe_foreign_object(value)):
        raise DialectError(f"messages[{index}] is {foreign}")
    found = convert_to_json(value)
    if not isinstance(found, dict):
        raise DialectError(
            f"messages[{index}] is not a message but {type(value).__name__}: give dicts or the provider's own objects"
        )
    # Frameworks' messages have no role, or parts, or blocks as content.
    may_be_foreign = "role" not in found or "parts" in found or isinstance(found.get("content"), list)
    if may_be_foreign and (foreign := describe_foreign(found, dialect.content_field)):
        raise DialectError(f"messages[{index}] is {foreign}")
    return found


def remove_tags(messages: Iterable[Any]) -> list[Any]:
    """Return messages without the fields of their tags; those that have none are the very objects."""
    return list(map(_remove_tags, messages))


def _remove_tags(value: Any) -> Any:
    if isinstance(value, ParsedMessage):
        return value.sent
    try:
        json = convert_to_json(value)
    except Exception:  # noqa: BLE001 - an object that cannot be read is sent as it is
        return value
    if not isinstance(json, dict):
        return value
    bare, tags = take_tags(json)
    if tags is None:
        return value
    return bare
