"""What the model and the gateway said to each other behind the client's back, put back in its place.

A client that was shown one answer in place of a recall and what came of it sends that answer back. Upstream it must be
what it was: the model's call, our result, the model's answer to it. `RecallExchanged` events say so by the name of the
history that ends with what the client was shown. That name knows no ids: an answer may come a second time with others,
and clients write their own. So what was shown goes out as the client has it, or at least under its ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import is_not
from typing import Any, Final

from elision.dialects.live.pieces import LiveDialect, digest_pieces
from elision.gateway.json_patch import encode_json, patch_json
from elision.gateway.transcript import TranscriptEntry
from elision.manager.context_options import RECALL_TOOLS, SEARCH_TOOLS
from elision.trajectory.events import RecallExchanged

_RECALL_TOOL_NAMES: Final = RECALL_TOOLS | SEARCH_TOOLS


@dataclass(frozen=True, slots=True)
class UpstreamMessage:
    """One message as it stands upstream: as an object, and its bytes."""

    json: dict[str, Any]
    raw: bytes


@dataclass(slots=True)
class _CachedExpansion:
    """One client message and what it was expanded to. silent_messages: messages without content before it."""

    entry: TranscriptEntry
    raw: bytes
    event: RecallExchanged | None
    pending_results: tuple[str, ...]
    silent_messages: tuple[UpstreamMessage, ...]
    messages: tuple[UpstreamMessage, ...]


@dataclass(slots=True)
class HiddenRounds:
    """The exchanges of one conversation. Work per request is what is new, objects of what is known stay the same.

    dialect: of the conversation.
    """

    dialect: LiveDialect
    events_by_node: dict[str, RecallExchanged] = field(default_factory=dict)
    _expansions: dict[int, _CachedExpansion] = field(default_factory=dict)
    #: The client's messages as they were last, and as objects of ours: the same entries have the same ones.
    _entries: Sequence[TranscriptEntry] = ()
    _client_messages: list[UpstreamMessage] = field(default_factory=list)

    def add_events(self, events: Iterable[RecallExchanged]) -> None:
        """Exchanges that the log holds."""
        self.events_by_node |= {event.node: event for event in events}

    def expand_messages(self, entries: Sequence[TranscriptEntry]) -> list[UpstreamMessage]:
        """The client's messages with everything that it did not see."""
        shared = count_shared_objects(entries, self._entries)
        self._client_messages[shared:] = [UpstreamMessage(entry.json, entry.raw) for entry in entries[shared:]]
        self._entries = tuple(entries)
        if self.events_by_node:
            return list(self._expand_entries(entries))
        return list(self._client_messages)

    def _expand_entries(self, entries: Sequence[TranscriptEntry]) -> Iterator[UpstreamMessage]:
        waiting: tuple[str, ...] = ()
        silent: tuple[UpstreamMessage, ...] = ()
        for place, entry in enumerate(entries):
            if entry.is_from_assistant and not entry.content_digest:
                # Reasoning belongs to what is said next: what was recalled in front of that stands in front of both.
                silent = (*silent, self._client_messages[place])
                continue
            if entry.is_from_assistant:
                event = self.events_by_node.get(entry.node.hex())
            else:
                event = None
            # Calls of one breath stand together, and every result behind all of them.
            joining = () if entry.is_from_assistant else waiting
            waiting = (waiting if entry.is_from_assistant else ()) + (event.results if event is not None else ())
            if event is None and not joining:
                yield from silent
                yield self._client_messages[place]
            else:
                yield from self._expand_entry(place, entry, event, joining, silent)
            silent = ()
        yield from silent
        yield from _parse_messages(() if self.dialect.has_blocks else waiting)

    def _expand_entry(
        self,
        place: int,
        entry: TranscriptEntry,
        event: RecallExchanged | None,
        waiting: tuple[str, ...],
        silent: tuple[UpstreamMessage, ...],
    ) -> Sequence[UpstreamMessage]:
        made = self._expansions.get(place)
        of = entry, entry.raw, event, waiting, silent
        if made is None or (made.entry, made.raw, made.event, made.pending_results, made.silent_messages) != of:
            if event is not None:
                said = self._restore_hidden(place, event, silent)
            else:
                said = (*silent, *self._join_results(waiting, self._client_messages[place]))
            made = self._expansions[place] = _CachedExpansion(*of, said)
        return made.messages

    def _restore_hidden(
        self, place: int, event: RecallExchanged, silent: tuple[UpstreamMessage, ...]
    ) -> tuple[UpstreamMessage, ...]:
        """What stands in place of a message that the client was shown."""
        *ahead, last = _parse_messages(event.messages)
        own = self._client_messages[place]
        told = {_identify_reasoning(said.json) for said in ahead}
        others = [each for each in silent if _identify_reasoning(each.json) not in told]
        if others:
            # Other reasoning leads to it than when it was recorded.
            while ahead and not self._has_content(ahead[-1].json):
                ahead.pop()
        # An item says one thing, while a message holds what was said and calls.
        is_item = self.dialect.joins_assistant_messages and not self.dialect.has_blocks
        return (*ahead, *others, own if is_item else _adopt_call_ids(own.json, last))

    def _has_content(self, message: dict[str, Any]) -> bool:
        return bool(digest_pieces(self.dialect.split_message(message, 0), is_behind_head=True))

    def _join_results(self, waiting: tuple[str, ...], own: UpstreamMessage) -> tuple[UpstreamMessage, ...]:
        """Results that join the front of what the client says next."""
        if not waiting:
            return (own,)
        if not self.dialect.has_blocks:
            return (*_parse_messages(waiting), own)
        results = list(map(json.loads, waiting))
        content = own.json.get("content")
        if own.json.get("role") != "user":
            return (
                UpstreamMessage(
                    {"role": "user", "content": results}, encode_json({"role": "user", "content": results})
                ),
                own,
            )
        if isinstance(content, list):
            blocks = content
        else:
            blocks = [{"type": "text", "text": content}]
        message = {**own.json, "content": [*results, *blocks]}
        return (UpstreamMessage(message, patch_json(own.raw, own.json, message)),)


def _identify_reasoning(item: Mapping[str, Any]) -> str:
    """What tells reasoning from other reasoning; some clients leave its id out."""
    return str(item.get("encrypted_content") or item.get("id"))


def _adopt_call_ids(own: Mapping[str, Any], said: UpstreamMessage) -> UpstreamMessage:
    """What was said, its calls for the client under the ids that the client knows them by."""
    ids = [str(call.get("id")) for call in _list_calls(own)]
    calls = [call for call in _list_calls(said.json) if _get_call_name(call) not in _RECALL_TOOL_NAMES]
    if len(ids) != len(calls) or ids == [call.get("id") for call in calls]:
        return said
    known = {id(call): {**call, "id": new} for call, new in zip(calls, ids, strict=True)}
    message = {
        name: [known.get(id(part), part) for part in value] if isinstance(value, list) else value
        for name, value in said.json.items()
    }
    return UpstreamMessage(message, encode_json(message))


def _list_calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A message's calls, in either shape."""
    parts = message.get("tool_calls")
    if isinstance(parts, list):
        return [part for part in parts if isinstance(part, dict)]
    blocks = message.get("content")
    if isinstance(blocks, list):
        return [part for part in blocks if _is_tool_use(part)]
    return []


def _is_tool_use(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_use"


def _get_call_name(call: Mapping[str, Any]) -> object:
    function = call.get("function")
    if isinstance(function, dict):
        return function.get("name")
    return call.get("name")


def _parse_messages(texts: Iterable[str]) -> tuple[UpstreamMessage, ...]:
    return tuple(UpstreamMessage(json.loads(text), text.encode()) for text in texts)


def count_shared_objects(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many leading elements are the very same objects."""
    most = min(len(one), len(other))
    return next(compress(range(most), map(is_not, one, other)), most)
