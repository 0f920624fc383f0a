"""The store that forgets: for tests and trials."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from elision.stores.packing import check_batch_id, measure_event, pack_batch_mark, recognize_append
from elision.stores.store import Finding, Footprint, NewSession, PurgeResult, SessionInfo
from elision.stores.store_base import StoreBase
from elision.stores.store_errors import (
    closed_store_error,
    missing_session_error,
    session_exists_error,
    short_parent_error,
    stale_writer_error,
)
from elision.trajectory.events import Event, TurnAdded, TurnAmended
from elision.trajectory.turn import Turn


@dataclass(slots=True)
class _MemoryLog:
    new: NewSession
    changed: float
    events: list[Event] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    turns: dict[int, Turn] = field(default_factory=dict)
    #: Turn -> the name of its history.
    nodes: dict[int, str] = field(default_factory=dict)
    #: Number of an append's first record -> what is kept of its id.
    marks: dict[int, bytes] = field(default_factory=dict)

    def has_append(self, events: Sequence[Event], after: int, batch: bytes) -> bool:
        """Return whether the append `batch` wrote `events` after record `after`. Raises StoreError for others."""
        mark = self.marks.get(after + 1)
        return recognize_append(self.new.key, batch, mark, events, lambda: self.events[after : after + len(events)])

    def info(self) -> SessionInfo:
        return SessionInfo(
            key=self.new.key,
            family=self.new.family,
            parent=self.new.parent,
            relation=self.new.relation,
            begun=self.new.at,
            changed=self.changed,
            records=len(self.events),
            turns=max(self.turns, default=0),
            raw_bytes=sum(self.sizes),
        )


class _HistoryIndex:
    """The sessions and turns that the names of histories name, by family."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], set[tuple[str, int]]] = {}

    def put(self, log: _MemoryLog, turn: int, node: str) -> None:
        """Let `node` name a turn, and what named it before nothing."""
        self.remove(log, turn)
        log.nodes[turn] = node
        if node:
            self._places.setdefault((log.new.family, node), set()).add((log.new.key, turn))

    def remove(self, log: _MemoryLog, turn: int) -> None:
        """Let nothing name a turn."""
        name = (log.new.family, log.nodes.get(turn, ""))
        places = self._places.get(name, set())
        places.discard((log.new.key, turn))
        if not places:
            self._places.pop(name, None)

    def find(self, family: str, node: str) -> set[tuple[str, int]]:
        return self._places.get((family, node), set())


class MemoryStore(StoreBase):
    """Keeps everything in this process alone."""

    def __init__(self) -> None:
        self._logs: dict[str, _MemoryLog] = {}
        self._histories = _HistoryIndex()
        self._lock = threading.RLock()
        self._closed = False

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        sizes = list(map(measure_event, events))
        with self._lock:
            self._check_open()
            known = self._logs.get(session.key)
            if known is not None:
                if not known.has_append(events, session.shared, batch):
                    raise session_exists_error(session)
                return session.shared + len(events)
            log = _MemoryLog(session, session.at)
            if session.shared:
                parent = self._find_log(session.parent)
                if session.shared > len(parent.events):
                    raise short_parent_error(session, len(parent.events))
                shared = slice(session.shared)
                self._add_events(log, parent.events[shared], parent.sizes[shared], session.at, b"")
            self._logs[session.key] = log
            return self._add_events(log, events, sizes, at, batch)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        sizes = list(map(measure_event, events))
        with self._lock:
            log = self._find_log(session)
            if len(log.events) == after:
                return self._add_events(log, events, sizes, at, batch)
            if not log.has_append(events, after, batch):
                raise stale_writer_error(session, len(log.events), after)
            return after + len(events)

    def length(self, session: str) -> int:
        with self._lock:
            return len(self._find_log(session).events)

    def try_length(self, session: str) -> int | None:
        return self.length(session)

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        with self._lock:
            return iter(self._find_log(session).events[max(after, 0) :])

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        with self._lock:
            kept = self._find_log(session).turns
            return [kept[index] for index in sorted(kept) if first <= index and (last is None or index <= last)]

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        with self._lock:
            self._check_open()
            for node in filter(None, reversed(nodes)):
                places = self._histories.find(family, node)
                if places:
                    return max(places, key=lambda place: (self._logs[place[0]].changed, *place))
        return None

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        since = float("-inf") if changed_since is None else changed_since
        with self._lock:
            self._check_open()
            found = [
                log.info()
                for log in self._logs.values()
                if log.changed >= since and log.new.family.startswith(family_prefix)
            ]
        return sorted(found, key=lambda info: (info.changed, info.key), reverse=True)

    def info(self, session: str) -> SessionInfo:
        with self._lock:
            return self._find_log(session).info()

    def delete(self, session: str) -> None:
        with self._lock:
            log = self._find_log(session)
            for turn in log.nodes:
                self._histories.remove(log, turn)
            del self._logs[session]

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> PurgeResult:
        with self._lock:
            before = self._count_bytes()
            gone: list[str] = []
            for info in reversed(self.sessions()):
                old = older_than is not None and info.changed < older_than
                if old or (max_bytes is not None and self._count_bytes() > max_bytes):
                    self.delete(info.key)
                    gone.append(info.key)
            return PurgeResult(sessions=tuple(gone), freed_bytes=before - self._count_bytes())

    def footprint(self) -> Footprint:
        with self._lock:
            self._check_open()
            return Footprint(
                sessions=len(self._logs),
                records=sum(len(log.events) for log in self._logs.values()),
                turns=sum(len(log.turns) for log in self._logs.values()),
                texts=0,
                raw_bytes=self._count_bytes(),
                stored_bytes=self._count_bytes(),
            )

    def compact(self) -> int:
        self._check_open()
        return 0

    def check(self) -> list[Finding]:
        self._check_open()
        return []

    def close(self) -> None:
        with self._lock:
            self._logs.clear()
            self._histories = _HistoryIndex()
            self._closed = True

    def _add_events(
        self, log: _MemoryLog, events: Sequence[Event], sizes: Sequence[int], at: float, batch: bytes
    ) -> int:
        """Append `events`; return the new length."""
        if events:
            if batch:
                log.marks[len(log.events) + 1] = pack_batch_mark(batch, len(events))
            log.changed = at
        log.events.extend(events)
        log.sizes.extend(sizes)
        for event in events:
            if isinstance(event, TurnAdded | TurnAmended):
                log.turns[event.turn.index] = event.turn
                self._histories.put(log, event.turn.index, event.node)
        return len(log.events)

    def _count_bytes(self) -> int:
        self._check_open()
        return sum(sum(log.sizes) for log in self._logs.values())

    def _find_log(self, session: str) -> _MemoryLog:
        self._check_open()
        if session not in self._logs:
            raise missing_session_error(session)
        return self._logs[session]

    def _check_open(self) -> None:
        if self._closed:
            raise closed_store_error("memory")
