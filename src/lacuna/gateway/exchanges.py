"""What the model and the gateway said to each other behind the client's back, put back in its place.

A client that was shown one answer in place of a recall and what came of it sends that answer back. Upstream it must be
what it was: the model's call, our result, the model's answer to it. `Exchanged` events say so by the name of the
history that ends with what the client was shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import is_not
from typing import Any

from lacuna.gateway.rewriting import rewritten
from lacuna.gateway.transcript import Entry
from lacuna.trajectory.events import Exchanged


@dataclass(frozen=True, slots=True)
class Said:
    """One message as it stands upstream: as an object, and its bytes."""

    json: dict[str, Any]
    raw: bytes


@dataclass(slots=True)
class _Made:
    """What was made of one message of the client, and of which."""

    entry: Entry
    raw: bytes
    event: Exchanged | None
    waiting: tuple[str, ...]
    said: tuple[Said, ...]


@dataclass(slots=True)
class Exchanges:
    """The exchanges of one conversation. Work per request is what is new, objects of what is known stay the same."""

    blocks: bool
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
        return list(self._expanded(entries)) if self.known else list(self._own)

    def _expanded(self, entries: Sequence[Entry]) -> Iterator[Said]:
        waiting: tuple[str, ...] = ()
        for place, entry in enumerate(entries):
            event = self.known.get(entry.node.hex()) if entry.assistant else None
            # Calls of one breath stand together, and every result behind all of them.
            joining = () if entry.assistant else waiting
            waiting = (waiting if entry.assistant else ()) + (event.results if event is not None else ())
            if event is None and not joining:
                yield self._own[place]
            else:
                yield from self._of(place, entry, event, joining)
        yield from _parsed(() if self.blocks else waiting)

    def _of(self, place: int, entry: Entry, event: Exchanged | None, waiting: tuple[str, ...]) -> Sequence[Said]:
        made = self._made.get(place)
        if made is None or (made.entry, made.raw, made.event, made.waiting) != (entry, entry.raw, event, waiting):
            own = _parsed(event.messages) if event is not None else (self._own[place],)
            said = self._joined(waiting, own)
            made = self._made[place] = _Made(entry, entry.raw, event, waiting, said)
        return made.said

    def _joined(self, waiting: tuple[str, ...], own: tuple[Said, ...]) -> tuple[Said, ...]:
        """Results that join the front of what the client says next."""
        if not waiting:
            return own
        if not self.blocks:
            return (*_parsed(waiting), *own)
        first = own[0]
        content = first.json.get("content")
        if first.json.get("role") != "user":
            return own
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
        message = {**first.json, "content": [*map(json.loads, waiting), *blocks]}
        return (Said(message, rewritten(first.raw, first.json, message)), *own[1:])


def _parsed(texts: Iterable[str]) -> tuple[Said, ...]:
    return tuple(Said(json.loads(text), text.encode()) for text in texts)


def shared_objects(one: Sequence[Any], other: Sequence[Any]) -> int:
    """How many leading elements are the very same objects."""
    most = min(len(one), len(other))
    return next(compress(range(most), map(is_not, one, other)), most)
