"""What the model and the gateway said to each other behind the client's back, put back in its place.

A client that was shown one answer in place of a recall and what came of it sends that answer back. Upstream it must be
what it was: the model's call, our result, the model's answer to it. `Exchanged` events say so by the name of the
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
from elision.gateway.rewriting import rewritten, written
from elision.gateway.transcript import Entry
from elision.manager.context_options import RECALL_TOOLS, SEARCH_TOOLS
from elision.trajectory.events import Exchanged

_OURS: Final = RECALL_TOOLS | SEARCH_TOOLS


@dataclass(frozen=True, slots=True)
class Said:
    """One message as it stands upstream: as an object, and its bytes."""

    json: dict[str, Any]
    raw: bytes


@dataclass(slots=True)
class _Made:
    """What was made of one message of the client, and of which. silent: what stands in front of it and says nothing."""

    entry: Entry
    raw: bytes
    event: Exchanged | None
    waiting: tuple[str, ...]
    silent: tuple[Said, ...]
    said: tuple[Said, ...]


@dataclass(slots=True)
class Exchanges:
    """The exchanges of one conversation. Work per request is what is new, objects of what is known stay the same.

    dialect: of the conversation.
    """

    dialect: LiveDialect
    known: dict[str, Exchanged] = field(default_factory=dict)
    _made: dict[int, _Made] = field(default_factory=dict)
    #: The client's messages as they were last, and as objects of ours: the same entries have the same ones.
    _entries: Sequence[Entry] = ()
    _own: list[Said] = field(default_factory=list)

    def learn(self, events: Iterable[Exchanged]) -> None:
        """Exchanges that the log holds."""
        self.known |= {event.node: event for event in events}

    def expanded(self, entries: Sequence[Entry]) -> list[Said]:
        """The client's messages with everything that it did not see."""
        shared = shared_objects(entries, self._entries)
        self._own[shared:] = [Said(entry.json, entry.raw) for entry in entries[shared:]]
        self._entries = tuple(entries)
        if self.known:
            return list(self._expanded(entries))
        return list(self._own)

    def _expanded(self, entries: Sequence[Entry]) -> Iterator[Said]:
        waiting: tuple[str, ...] = ()
        silent: tuple[Said, ...] = ()
        for place, entry in enumerate(entries):
            if entry.assistant and not entry.says:
                # Reasoning belongs to what is said next: what was recalled in front of that stands in front of both.
                silent = (*silent, self._own[place])
                continue
            if entry.assistant:
                event = self.known.get(entry.node.hex())
            else:
                event = None
            # Calls of one breath stand together, and every result behind all of them.
            joining = () if entry.assistant else waiting
            waiting = (waiting if entry.assistant else ()) + (event.results if event is not None else ())
            if event is None and not joining:
                yield from silent
                yield self._own[place]
            else:
                yield from self._of(place, entry, event, joining, silent)
            silent = ()
        yield from silent
        yield from _parsed(() if self.dialect.has_blocks else waiting)

    def _of(
        self, place: int, entry: Entry, event: Exchanged | None, waiting: tuple[str, ...], silent: tuple[Said, ...]
    ) -> Sequence[Said]:
        made = self._made.get(place)
        of = entry, entry.raw, event, waiting, silent
        if made is None or (made.entry, made.raw, made.event, made.waiting, made.silent) != of:
            if event is not None:
                said = self._in_place(place, event, silent)
            else:
                said = (*silent, *self._joined(waiting, self._own[place]))
            made = self._made[place] = _Made(*of, said)
        return made.said

    def _in_place(self, place: int, event: Exchanged, silent: tuple[Said, ...]) -> tuple[Said, ...]:
        """What stands in place of a message that the client was shown."""
        *ahead, last = _parsed(event.messages)
        own = self._own[place]
        told = {_sealed(said.json) for said in ahead}
        others = [each for each in silent if _sealed(each.json) not in told]
        if others:
            # Other reasoning leads to it than when it was recorded.
            while ahead and not self._says(ahead[-1].json):
                ahead.pop()
        # An item says one thing, while a message holds what was said and calls.
        is_item = self.dialect.joins_assistant_messages and not self.dialect.has_blocks
        return (*ahead, *others, own if is_item else _with_ids_of(own.json, last))

    def _says(self, message: dict[str, Any]) -> bool:
        return bool(digest_pieces(self.dialect.split_message(message, 0), is_behind_head=True))

    def _joined(self, waiting: tuple[str, ...], own: Said) -> tuple[Said, ...]:
        """Results that join the front of what the client says next."""
        if not waiting:
            return (own,)
        if not self.dialect.has_blocks:
            return (*_parsed(waiting), own)
        results = list(map(json.loads, waiting))
        content = own.json.get("content")
        if own.json.get("role") != "user":
            return (Said({"role": "user", "content": results}, written({"role": "user", "content": results})), own)
        if isinstance(content, list):
            blocks = content
        else:
            blocks = [{"type": "text", "text": content}]
        message = {**own.json, "content": [*results, *blocks]}
        return (Said(message, rewritten(own.raw, own.json, message)),)


def _sealed(item: Mapping[str, Any]) -> str:
    """What tells reasoning from other reasoning; some clients leave its id out."""
    return str(item.get("encrypted_content") or item.get("id"))


def _with_ids_of(own: Mapping[str, Any], said: Said) -> Said:
    """What was said, its calls for the client under the ids that the client knows them by."""
    ids = [str(call.get("id")) for call in _calls(own)]
    calls = [call for call in _calls(said.json) if _name(call) not in _OURS]
    if len(ids) != len(calls) or ids == [call.get("id") for call in calls]:
        return said
    known = {id(call): {**call, "id": new} for call, new in zip(calls, ids, strict=True)}
    message = {
        name: [known.get(id(part), part) for part in value] if isinstance(value, list) else value
        for name, value in said.json.items()
    }
    return Said(message, written(message))


def _calls(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A message's calls, in either shape."""
    parts = message.get("tool_calls")
    if isinstance(parts, list):
        return [part for part in parts if isinstance(part, dict)]
    blocks = message.get("content")
    if isinstance(blocks, list):
        return [part for part in blocks if _is_use(part)]
    return []


def _is_use(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") == "tool_use"


def _name(call: Mapping[str, Any]) -> object:
    function = call.get("function")
    if isinstance(function, dict):
        return function.get("name")
    return call.get("name")


def _parsed(texts: Iterable[str]) -> tuple[Said, ...]:
    return tuple(Said(json.loads(text), text.encode()) for text in texts)


def shared_objects(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many leading elements are the very same objects."""
    most = min(len(one), len(other))
    return next(compress(range(most), map(is_not, one, other)), most)
