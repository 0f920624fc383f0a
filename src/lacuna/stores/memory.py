"""The store that forgets: for tests, trials and runs that nobody will ask about."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lacuna.errors import ConflictError, StoreError, UnknownHandle
from lacuna.stores.excerpts import excerpt, words_in
from lacuna.stores.packing import Packer, words_of
from lacuna.stores.store import Finding, Footprint, Hit, NewSession, Purged, SessionInfo
from lacuna.trajectory.events import Amended, Event, TurnAdded
from lacuna.trajectory.plan import Key, handle
from lacuna.trajectory.turn import Observation, Turn


@dataclass(slots=True)
class _Log:
    new: NewSession
    changed: float
    events: list[Event] = field(default_factory=list)
    turns: dict[int, Turn] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)
    bytes: int = 0

    def add(self, events: Sequence[Event], size: int) -> None:
        self.events.extend(events)
        self.bytes += size
        for event in events:
            if isinstance(event, TurnAdded | Amended):
                self.turns[event.turn.index] = event.turn
                if event.node:
                    self.nodes[event.node] = event.turn.index


class MemoryStore:
    """Keeps everything in this process, and loses it with it."""

    def __init__(self) -> None:
        self._logs: dict[str, _Log] = {}
        self._lock = threading.RLock()
        self._packer = Packer()
        self._closed = False

    def create(self, session: NewSession) -> None:
        with self._lock:
            self._open()
            if session.key in self._logs:
                raise ConflictError(f"session {session.key!r} exists already")
            log = _Log(session, session.at)
            if session.parent and session.shared:
                parent = self._log(session.parent)
                log.add(parent.events[: session.shared], 0)
            self._logs[session.key] = log

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float) -> int:
        with self._lock:
            log = self._log(session)
            if len(log.events) != after:
                raise ConflictError(
                    f"session {session!r} has {len(log.events)} records, not {after}: another writer was there first; "
                    "open it again"
                )
            log.add(events, sum(self._packer.pack(event).size for event in events))
            log.changed = at
            return len(log.events)

    def length(self, session: str) -> int:
        with self._lock:
            return len(self._log(session).events)

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        with self._lock:
            return iter(self._log(session).events[after:])

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        with self._lock:
            kept = self._log(session).turns
            return [kept[index] for index in sorted(kept) if first <= index and (last is None or index <= last)]

    def observation(self, session: str, key: Key) -> Observation:
        with self._lock:
            turn = self._log(session).turns.get(key[0])
            if turn is None or not 1 <= key[1] <= len(turn.observations):
                raise UnknownHandle(f"session {session!r} keeps nothing under {handle(key)}")
            return turn.observations[key[1] - 1]

    def search(self, session: str, query: str, limit: int = 20) -> list[Hit]:
        words = words_in(query)
        if not words or limit < 1:
            self._log(session)
            return []
        return [hit for turn in reversed(self.turns(session)) for hit in _hits(session, turn, words)][:limit]

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        with self._lock:
            logs = sorted(self._family(family), key=lambda log: log.changed, reverse=True)
            for node in reversed(nodes):
                for log in logs:
                    if node in log.nodes:
                        return log.new.key, log.nodes[node]
        return None

    def sessions(self) -> list[SessionInfo]:
        with self._lock:
            self._open()
            logs = sorted(self._logs.values(), key=lambda log: (log.changed, log.new.key), reverse=True)
            return [_info(log) for log in logs]

    def info(self, session: str) -> SessionInfo:
        with self._lock:
            return _info(self._log(session))

    def delete(self, session: str) -> None:
        with self._lock:
            self._log(session)
            del self._logs[session]

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> Purged:
        with self._lock:
            before = self._bytes()
            gone: list[str] = []
            for info in reversed(self.sessions()):
                old = older_than is not None and info.changed < older_than
                if old or (max_bytes is not None and self._bytes() > max_bytes):
                    self.delete(info.key)
                    gone.append(info.key)
            return Purged(sessions=tuple(gone), freed_bytes=before - self._bytes())

    def footprint(self) -> Footprint:
        with self._lock:
            self._open()
            return Footprint(
                sessions=len(self._logs),
                records=sum(len(log.events) for log in self._logs.values()),
                turns=sum(len(log.turns) for log in self._logs.values()),
                texts=0,
                raw_bytes=self._bytes(),
                stored_bytes=self._bytes(),
            )

    def compact(self) -> int:
        return 0

    def check(self) -> list[Finding]:
        return []

    def close(self) -> None:
        with self._lock:
            self._logs.clear()
            self._closed = True

    def _bytes(self) -> int:
        return sum(log.bytes for log in self._logs.values())

    def _family(self, family: str) -> list[_Log]:
        return [log for log in self._logs.values() if log.new.family == family]

    def _log(self, session: str) -> _Log:
        self._open()
        if session not in self._logs:
            raise UnknownHandle(f"the store has no session {session!r}")
        return self._logs[session]

    def _open(self) -> None:
        if self._closed:
            raise StoreError("the store is closed")


def _info(log: _Log) -> SessionInfo:
    return SessionInfo(
        key=log.new.key,
        family=log.new.family,
        parent=log.new.parent,
        relation=log.new.relation,
        begun=log.new.at,
        changed=log.changed,
        records=len(log.events),
        turns=max(log.turns, default=0),
    )


def _hits(session: str, turn: Turn, words: Sequence[str]) -> Iterator[Hit]:
    for position, tool, text in words_of(TurnAdded(turn)):
        folded = text.casefold()
        if all(word in folded for word in words):
            yield Hit(session=session, turn=turn.index, position=position, tool=tool, excerpt=excerpt(text, words))
