"""Rounds of recall that the client did not see, put back into its messages.

After a recall the client gets one response instead of the model's call, the result and the model's answer. It sends
that response back. Upstream the recall must be in its place, so `RecallExchanged` events name the history that ends
with what the client was shown. That name contains no ids: a response may come again with other ids, and some clients
write their own. So the client's messages keep their own ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter, is_not
from typing import Any, Final

from elision.gateway.json_patch import encode_json, patch_json
from elision.gateway.transcript import TranscriptEntry
from elision.manager.context_options import RECALL_TOOLS, SEARCH_TOOLS
from elision.providers.live.pieces import LiveDialect, digest_pieces
from elision.trajectory.events import RecallExchanged

_RECALL_TOOL_NAMES: Final = RECALL_TOOLS | SEARCH_TOOLS
_JSON: Final = attrgetter("json")


@dataclass(frozen=True, slots=True)
class UpstreamMessage:
    """One message of a request to the provider: as an object, and its bytes."""

    json: dict[str, Any]
    raw: bytes


@dataclass(slots=True)
class _CachedExpansion:
    """What one client message was expanded to. key: what that depends on."""

    key: tuple[TranscriptEntry, bytes, RecallExchanged | None, tuple[str, ...], tuple[UpstreamMessage, ...]]
    messages: tuple[UpstreamMessage, ...]


@dataclass(slots=True)
class HiddenRounds:
    """The hidden rounds of one conversation. A request costs work only for its new messages; known objects are reused.

    dialect: of the conversation.
    """

    dialect: LiveDialect
    events_by_node: dict[str, RecallExchanged] = field(default_factory=dict)
    _expansions: dict[int, _CachedExpansion] = field(default_factory=dict)
    #: The client's newest messages: equal entries keep their objects.
    _entries: Sequence[TranscriptEntry] = ()
    _client_messages: list[UpstreamMessage] = field(default_factory=list)

    def add_events(self, events: Iterable[RecallExchanged]) -> None:
        """Add rounds that the log has."""
        self.events_by_node |= {event.node: event for event in events}

    def expand_messages(self, entries: Sequence[TranscriptEntry]) -> list[UpstreamMessage]:
        """Return the client's messages with everything that the client did not see."""
        shared = count_shared_objects(entries, self._entries)
        self._client_messages[shared:] = [UpstreamMessage(entry.json, entry.raw) for entry in entries[shared:]]
        self._entries = tuple(entries)
        if self.events_by_node:
            return list(self._expand_entries(entries))
        return list(self._client_messages)

    def _expand_entries(self, entries: Sequence[TranscriptEntry]) -> Iterator[UpstreamMessage]:
        pending: tuple[str, ...] = ()
        silent_messages: tuple[UpstreamMessage, ...] = ()
        for place, entry in enumerate(entries):
            event: RecallExchanged | None = None
            joining: tuple[str, ...] = ()
            if entry.is_from_assistant:
                if not entry.content_digest:
                    # Reasoning belongs to the next message, so what was recalled before that comes before both.
                    silent_messages = (*silent_messages, self._client_messages[place])
                    continue
                event = self.events_by_node.get(entry.node.hex())
                if event is not None:
                    # Parallel calls stay together, and all results come after them.
                    pending += event.results
            else:
                joining = pending
                pending = ()
            if event is None and not joining:
                yield from silent_messages
                yield self._client_messages[place]
            else:
                yield from self._expand_entry(place, entry, event, joining, silent_messages)
            silent_messages = ()
        yield from silent_messages
        if not self.dialect.has_blocks:
            yield from _parse_messages(pending)

    def _expand_entry(
        self,
        place: int,
        entry: TranscriptEntry,
        event: RecallExchanged | None,
        pending: tuple[str, ...],
        silent_messages: tuple[UpstreamMessage, ...],
    ) -> Sequence[UpstreamMessage]:
        cached = self._expansions.get(place)
        key = entry, entry.raw, event, pending, silent_messages
        if cached is None or cached.key != key:
            if event is not None:
                messages = self._restore_hidden(place, event, silent_messages)
            else:
                messages = (*silent_messages, *self._join_results(pending, self._client_messages[place]))
            cached = self._expansions[place] = _CachedExpansion(key, messages)
        return cached.messages

    def _restore_hidden(
        self, place: int, event: RecallExchanged, silent_messages: tuple[UpstreamMessage, ...]
    ) -> tuple[UpstreamMessage, ...]:
        """Return what replaces a message that the client was shown."""
        *ahead, last = _parse_messages(event.messages)
        own = self._client_messages[place]
        recorded = {_identify_reasoning(message.json) for message in ahead}
        others = [message for message in silent_messages if _identify_reasoning(message.json) not in recorded]
        if others:
            # The client has other reasoning before it than when it was recorded.
            while ahead and not self._has_content(ahead[-1].json):
                ahead.pop()
        # A message has text and calls, while an item is one of them.
        is_item = self.dialect.joins_assistant_messages and not self.dialect.has_blocks
        return (*ahead, *others, own if is_item else _adopt_call_ids(own.json, last))

    def _has_content(self, message: dict[str, Any]) -> bool:
        return bool(digest_pieces(self.dialect.split_message(message, 0), is_behind_head=True))

    def _join_results(self, pending: tuple[str, ...], own: UpstreamMessage) -> tuple[UpstreamMessage, ...]:
        """Return the client's next message with pending results before it, or in it."""
        if not pending:
            return (own,)
        if not self.dialect.has_blocks:
            return (*_parse_messages(pending), own)
        results = [json.loads(text) for text in pending]
        if own.json.get("role") != "user":
            message = {"role": "user", "content": results}
            return (UpstreamMessage(message, encode_json(message)), own)
        content = own.json.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        message = {**own.json, "content": [*results, *blocks]}
        return (UpstreamMessage(message, patch_json(own.raw, own.json, message)),)


def _identify_reasoning(item: Mapping[str, Any]) -> str:
    """Return what identifies reasoning; some clients leave its id out."""
    return str(item.get("encrypted_content") or item.get("id"))


def _adopt_call_ids(own: Mapping[str, Any], recorded: UpstreamMessage) -> UpstreamMessage:
    """Return the recorded message, with the ids of `own` for the client's calls."""
    ids = [str(call.get("id")) for call in _list_calls(own)]
    calls = [call for call in _list_calls(recorded.json) if _get_call_name(call) not in _RECALL_TOOL_NAMES]
    if len(ids) != len(calls) or ids == [call.get("id") for call in calls]:
        return recorded
    renamed = {id(call): {**call, "id": new} for call, new in zip(calls, ids, strict=True)}
    message = dict(recorded.json)
    for name, value in message.items():
        if isinstance(value, list):
            message[name] = [renamed.get(id(part), part) for part in value]
    return UpstreamMessage(message, encode_json(message))


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


def _parse_messages(texts: Iterable[str]) -> tuple[UpstreamMessage, ...]:
    return tuple(UpstreamMessage(json.loads(text), text.encode()) for text in texts)


def to_plain_messages(messages: Sequence[UpstreamMessage]) -> list[dict[str, Any]]:
    """Return the messages as the library takes them."""
    return list(map(_JSON, messages))


def count_shared_objects(one: Sequence[Any], other: Sequence[Any]) -> int:
    """Count the leading elements that are the very same objects."""
    most = min(len(one), len(other))
    # In C: a long conversation shares nearly all of its messages.
    return next(compress(range(most), map(is_not, one, other)), most)
