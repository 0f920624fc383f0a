"""The messages of one request, compared with what its client sent before, and parsed only where they are new.

A message is known by its bytes (a comparison in C), and where those differ by its content, so moved cache markers,
dropped nulls and new ids are no change. A known message keeps its object, which is how the library recognizes it in
constant time.

Rounds of recall that the client did not see are put back into its messages (`HiddenRounds`). After a recall the client
gets one response instead of the model's call, the result and the model's answer. It sends that response back. Upstream
the recall must be in its place, so `RecallExchanged` events name the history that ends with what the client was shown.
That name contains no ids: a response may come again with other ids, and some clients write their own. So the client's
messages keep their own ids.

The tools of a session stay as their client first wrote them (`ToolPins`). Providers put tools at the front of the
prompt in the order and with the keys that a request has. So a client whose tools come from an unordered map loses the
whole prompt cache at every call, and means nothing by it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter, ne
from typing import Any, Final

from elision.gateway.json_bytes import encode_json, patch_json
from elision.gateway.request_body import RequestBody, decode_message
from elision.providers.live.client_messages import LiveDialect, ParsedMessage, parse_message
from elision.providers.live.conversation import Conversation
from elision.trajectory.events import RecallExchanged
from elision.trajectory.tool_definitions import OWN_TOOLS, TOOL_GROUPS

#: Bytes of tools that are compared; larger ones would hold up other requests.
MAX_TOOL_BYTES: Final = 256 * 1024
#: Sets of tools that a session remembers: an agent may have some for planning, and others for work.
MAX_TOOL_SETS: Final = 4
_RAW: Final = attrgetter("raw")


class IncomingMessages:
    """The messages of one request. Each is parsed at most once, for all conversations that are compared with it.

    known: the messages of a conversation that the request probably continues. Where it begins another one with the
    same bytes, they need not be parsed again. Methods raise UnreadableBody where a message is not a JSON object.
    """

    def __init__(self, dialect: LiveDialect, raws: Sequence[bytes], known: Sequence[ParsedMessage] = ()) -> None:
        self.dialect = dialect
        self.raws = raws
        self._known = known
        self._parsed: dict[int, ParsedMessage] = {}

    def __len__(self) -> int:
        return len(self.raws)

    def is_known(self, place: int) -> bool:
        """Return whether message `place` was parsed for the conversation that the request probably continues."""
        return place < len(self._known) and self._known[place].raw == self.raws[place]

    def parse(self, place: int) -> ParsedMessage:
        """Return message `place`."""
        message = self._parsed.get(place)
        if message is None and self.is_known(place):
            message = self._known[place]
        if message is None:
            raw = self.raws[place]
            message, _ = parse_message(self.dialect, decode_message(raw), place, raw, patch_json)
            self._parsed[place] = message
        return message

    def parse_new(self, conversation: Conversation) -> None:
        """Parse the messages that `conversation` does not have, so that `extend_conversation` is quick."""
        for place in range(self.count_shared(conversation), len(self)):
            self.parse(place)

    def count_shared(self, conversation: Conversation) -> int:
        """Count the leading messages that have the same content in `conversation`."""
        shared = min(len(conversation), len(self))
        for place in compress(range(shared), map(ne, map(_RAW, conversation.messages), self.raws)):
            if conversation.choose_digest(self.parse(place), place) != conversation.get_digest(place):
                return place
        return shared

    def trims_front(self, conversation: Conversation, shared: int) -> bool:
        """Return whether these are the messages of `conversation` without some after the first `shared`, and new ones.

        A client that trims its own history sends that. Messages are compared by their bytes.
        """
        known = [message.raw for message in conversation.messages]
        for first in range(max(shared + 1, len(known) + shared - len(self)), len(known)):
            kept = len(known) - first
            if self.raws[shared] == known[first] and list(self.raws[shared : shared + kept]) == known[first:]:
                return True
        return False

    def extend_conversation(self, conversation: Conversation) -> None:
        """Make `conversation` that of this request: drop what is not in it, and add what is new."""
        shared = self.count_shared(conversation)
        conversation.drop_messages(shared)
        for place in compress(range(shared), map(ne, map(_RAW, conversation.messages), self.raws)):
            # It says the same in other bytes, and those are to be sent. A request under way keeps its own.
            conversation.messages[place] = self.parse(place)
        for place in range(shared, len(self)):
            conversation.append_message(self.parse(place))

    def flag_answers(self, conversation: Conversation, shared: int) -> list[bool]:
        """Return for each message whether the assistant said it. shared: how many of them `conversation` has."""
        known = [message.is_from_assistant for message in conversation.messages[:shared]]
        return known + [self.parse(place).is_from_assistant for place in range(shared, len(self))]


@dataclass(slots=True)
class _CachedExpansion:
    """What one client message was expanded to. key: what that depends on."""

    key: tuple[ParsedMessage, RecallExchanged | None, tuple[str, ...], tuple[ParsedMessage, ...]]
    messages: tuple[ParsedMessage, ...]


@dataclass(slots=True)
class HiddenRounds:
    """The hidden rounds of one conversation. A request costs work only for its new messages; known objects are reused.

    dialect: of the conversation.
    """

    dialect: LiveDialect
    events_by_node: dict[str, RecallExchanged] = field(default_factory=dict)
    _expansions: dict[int, _CachedExpansion] = field(default_factory=dict)

    def add_events(self, events: Iterable[RecallExchanged]) -> None:
        """Add rounds that the log has."""
        self.events_by_node |= {event.node: event for event in events}

    def expand_messages(self, conversation: Conversation) -> list[ParsedMessage]:
        """Return the client's messages with everything that the client did not see."""
        if self.events_by_node:
            return list(self._expand_conversation(conversation))
        return conversation.messages.copy()

    def _expand_conversation(self, conversation: Conversation) -> Iterator[ParsedMessage]:
        pending: tuple[str, ...] = ()
        silent_messages: tuple[ParsedMessage, ...] = ()
        for place, message in enumerate(conversation.messages):
            event: RecallExchanged | None = None
            joining: tuple[str, ...] = ()
            if message.is_from_assistant:
                if not message.digest:
                    # Reasoning belongs to the next message, so what was recalled before that comes before both.
                    silent_messages = (*silent_messages, message)
                    continue
                event = self.events_by_node.get(conversation.nodes[place].hex())
                if event is not None:
                    # Parallel calls stay together, and all results come after them.
                    pending += event.results
            else:
                joining = pending
                pending = ()
            if event is None and not joining:
                yield from silent_messages
                yield message
            else:
                yield from self._expand_message(place, message, event, joining, silent_messages)
            silent_messages = ()
        yield from silent_messages
        if not self.dialect.has_blocks:
            yield from self._parse_messages(pending)

    def _expand_message(
        self,
        place: int,
        message: ParsedMessage,
        event: RecallExchanged | None,
        pending: tuple[str, ...],
        silent_messages: tuple[ParsedMessage, ...],
    ) -> Sequence[ParsedMessage]:
        cached = self._expansions.get(place)
        key = message, event, pending, silent_messages
        if cached is None or cached.key != key:
            if event is not None:
                messages = self._restore_hidden(message, event, silent_messages)
            else:
                messages = (*silent_messages, *self._join_results(pending, message))
            cached = self._expansions[place] = _CachedExpansion(key, messages)
        return cached.messages

    def _restore_hidden(
        self, own: ParsedMessage, event: RecallExchanged, silent_messages: tuple[ParsedMessage, ...]
    ) -> tuple[ParsedMessage, ...]:
        """Return what replaces a message that the client was shown."""
        *ahead, last = self._parse_messages(event.messages)
        recorded = {_identify_reasoning(message.json) for message in ahead}
        others = [message for message in silent_messages if _identify_reasoning(message.json) not in recorded]
        if others:
            # The client has other reasoning before it than when it was recorded.
            while ahead and not ahead[-1].digest:
                ahead.pop()
        # A message has text and calls, while an item is one of them.
        is_item = self.dialect.joins_assistant_messages and not self.dialect.has_blocks
        return (*ahead, *others, own if is_item else self._adopt_call_ids(own.json, last))

    def _join_results(self, pending: tuple[str, ...], own: ParsedMessage) -> tuple[ParsedMessage, ...]:
        """Return the client's next message with pending results before it, or in it."""
        if not pending:
            return (own,)
        if not self.dialect.has_blocks:
            return (*self._parse_messages(pending), own)
        results = [json.loads(text) for text in pending]
        if own.json.get("role") != "user":
            message = {"role": "user", self.dialect.content_field: results}
            return (self.make_message(message, encode_json(message)), own)
        content = own.json.get(self.dialect.content_field)
        blocks = content if isinstance(content, list) else [self.dialect.make_block(str(content))]
        message = {**own.json, self.dialect.content_field: [*results, *blocks]}
        return (self.make_message(message, patch_json(own.raw, own.json, message)),)

    def _adopt_call_ids(self, own: Mapping[str, Any], recorded: ParsedMessage) -> ParsedMessage:
        """Return the recorded message, with the ids of `own` for the client's calls."""
        ids = [str(call.get("id")) for call in _list_calls(own)]
        calls = [call for call in _list_calls(recorded.json) if _get_call_name(call) not in OWN_TOOLS]
        if len(ids) != len(calls) or ids == [call.get("id") for call in calls]:
            return recorded
        renamed = {id(call): {**call, "id": new} for call, new in zip(calls, ids, strict=True)}
        message = dict(recorded.json)
        for name, value in message.items():
            if isinstance(value, list):
                message[name] = [renamed.get(id(part), part) for part in value]
        return self.make_message(message, encode_json(message))

    def _parse_messages(self, texts: Iterable[str]) -> tuple[ParsedMessage, ...]:
        return tuple(self.make_message(json.loads(text), text.encode()) for text in texts)

    def make_message(self, message: dict[str, Any], raw: bytes) -> ParsedMessage:
        """Return a message that the client did not send, with its bytes."""
        return parse_message(self.dialect, message, 0, raw)[0]


def _identify_reasoning(item: Mapping[str, Any]) -> str:
    """Return what identifies reasoning; some clients leave its id out."""
    return str(item.get("encrypted_content") or item.get("id"))


def _list_calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a message's calls, in either format."""
    parts = message.get("tool_calls")
    if isinstance(parts, list):
        return [part for part in parts if isinstance(part, dict)]
    blocks = message.get("content")
    if isinstance(blocks, list):
        return [part for part in blocks if isinstance(part, dict) and part.get("type") == "tool_use"]
    return []


def _get_call_name(call: Mapping[str, Any]) -> object:
    function = call.get("function")
    if isinstance(function, dict):
        return function.get("name")
    return call.get("name")


class ToolPins:
    """The tools of one session, by what they say. Never shared by two sessions."""

    def __init__(self) -> None:
        self._first: dict[Hashable, bytes] = {}
        #: What could not be pinned last.
        self._refused = b""

    def knows(self, body: RequestBody) -> bool:
        """Return whether there is nothing to do: the tools have the bytes that are kept, or cannot be pinned."""
        raw = body.get_raw_field("tools")
        return raw is None or len(raw) > MAX_TOOL_BYTES or raw == self._refused or raw in self._first.values()

    def pin_tools(self, body: RequestBody) -> RequestBody:
        """Return `body` with the bytes that its tools had when they first came; `body` itself where they have them."""
        raw = body.get_raw_field("tools")
        if raw is None or self.knows(body):
            return body
        says = read_meaning(raw)
        if says is None or (says not in self._first and len(self._first) >= MAX_TOOL_SETS):
            self._refused = raw
            return body
        # Another request of the session may be the first one in this moment.
        first = self._first.setdefault(says, raw)
        return body if first == raw else body.replace_field("tools", first) or body


def read_meaning(raw: bytes) -> Hashable | None:
    """Return what a list of tools says, whatever their order, white space and order of keys; None where that is unsure.

    A cache breakpoint counts by its place in the list, and not as a part of its tool: all tools before it are cached.
    """
    try:
        tools = json.loads(raw, object_pairs_hook=_read_object, parse_float=_Number, parse_int=_Number)
        if not isinstance(tools, list):
            return None
        controls = []
        for place, tool in enumerate(tools):
            if isinstance(tool, dict) and "cache_control" in tool:
                controls.append((place, _freeze(tool.pop("cache_control"))))
        return _freeze_group(tools), tuple(controls)
    except (ValueError, RecursionError):
        return None


class _Number(str):
    """A number as it is written: what a provider makes of 1.0 is its own matter."""

    __slots__ = ()


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("of keys that come twice it is unsure which counts")
    return found


def _freeze(value: Any) -> Hashable:
    if isinstance(value, dict):
        fields = ((name, _freeze_group(each) if name in TOOL_GROUPS else _freeze(each)) for name, each in value.items())
        return "object", frozenset(fields)
    if isinstance(value, list):
        return "list", tuple(map(_freeze, value))
    return type(value).__name__, value


def _freeze_group(tools: Any) -> Hashable:
    """Return what tools say in any order."""
    if not isinstance(tools, list):
        return _freeze(tools)
    return "tools", frozenset(Counter(map(_freeze, tools)).items())
