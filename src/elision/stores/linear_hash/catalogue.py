"""What the records of a log add up to: its sessions, and the directory of their places.

A record is entered once, when it is written or when the log is read. The same code does both, so a catalogue made from
the log is the one that the writer had.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, get_args

from elision.errors import CorruptError
from elision.stores.linear_hash.directory import PAGE, Directory, KeyMaker
from elision.stores.linear_hash.records import (
    BEGIN,
    DELETE,
    LogView,
    RecordHeader,
    RecordPacker,
    pack_place,
    unpack_place,
)
from elision.stores.store import NewSession, Relation, SessionInfo


@dataclass(slots=True)
class SessionState:
    """A session.

    number: its own, never used again. records: in its log. newest: its highest turn. turns: that can be read.
    stored_bytes, texts: of the records, and of the large texts in them, that were written for it.
    """

    number: int
    key: str
    family: str
    parent: str
    relation: Relation
    begun: float
    changed: float
    records: int = 0
    newest: int = 0
    turns: int = 0
    raw_bytes: int = 0
    stored_bytes: int = 0
    texts: int = 0

    def info(self) -> SessionInfo:
        return SessionInfo(
            key=self.key,
            family=self.family,
            parent=self.parent,
            relation=self.relation,
            begun=self.begun,
            changed=self.changed,
            records=self.records,
            turns=self.newest,
            raw_bytes=self.raw_bytes,
        )


class Catalogue:
    """The sessions of a log, and the directory. For one thread at a time. secret: of its keys."""

    def __init__(self, secret: int, view: LogView) -> None:
        self.keys = KeyMaker(secret)
        self.directory = Directory()
        self.by_key: dict[str, SessionState] = {}
        self.next_number = 1
        #: Bytes of the log that only deleted sessions used.
        self.unused_bytes = 0
        self.by_number: dict[int, SessionState] = {}
        self._view = view

    # Reading

    def find_record(self, session: int, number: int) -> int | None:
        """Return the offset of record `number` of a session's log."""
        place = self.directory.get(self.keys.make_record_key(session, number))
        return None if place is None else unpack_place(place)[0]

    def find_turn(self, session: SessionState, turn: int) -> int | None:
        """Return the offset of the newest record of a turn."""
        if not 0 < turn <= session.newest:
            return None
        place = self.directory.get(self.keys.make_turn_key(session.number, turn))
        return None if place is None else unpack_place(place)[0]

    def find_mask(self, session: SessionState, turn: int, position: int) -> tuple[int, int] | None:
        """Return the offset of the decision that masked a tool result, and which of its masks that is."""
        if not 0 < position <= 0xFFFF:
            return None
        place = self.directory.get(self.keys.make_mask_key(session.number, turn, position))
        return None if place is None else unpack_place(place)

    def find_holders(self, family: str, node: str) -> list[tuple[SessionState, int]]:
        """Return the sessions that have a history, each with the turn that it names."""
        return [(session, turn) for session, turn in self._iterate_holders(family, node) if session.family == family]

    def find_recovered(self, family: str, nodes: Sequence[str]) -> SessionState | None:
        """Return a session that has one of the histories `nodes` of `family`, and lost its own name and family."""
        for node in filter(None, nodes):
            for session, _ in self._iterate_holders(family, node):
                if self.is_recovered(session):
                    return session
        return None

    def _iterate_holders(self, family: str, node: str) -> Iterator[tuple[SessionState, int]]:
        """Yield the sessions that are entered for a history, each with the turn that it names."""
        for value in self.directory.get_all(self.keys.make_node_key(family, node)):
            session = self.by_number.get(value >> 32)
            if session is not None:
                yield session, value & 0xFFFF_FFFF

    def is_recovered(self, session: SessionState) -> bool:
        """Return whether the record that began a session is lost."""
        return session.key == session.family == _name_recovered(session.number)

    def find_text(self, text: bytes) -> tuple[bytes, int | None]:
        """Return the key of a large text, and the place of the record that contains the same text, if one does."""
        key = self.keys.make_text_key(text)
        place = self.directory.get(key)
        if place is not None:
            try:
                if self._view.read_text(place) == text:
                    return key, place
            except CorruptError:
                # Damage there must not spread to this record.
                place = None
        return key, None

    # Entering

    def enter_record(self, header: RecordHeader, data: bytes) -> None:
        """Enter a record of the log, which follows those entered before. Raises CorruptError."""
        if header.kind == BEGIN:
            self._begin_session(header, data)
        elif header.kind == DELETE:
            self._delete_session(header)
        else:
            session = self.by_number.get(header.session)
            if session is None:
                # Its beginning is lost, and its name with it.
                name = _name_recovered(header.session)
                session = SessionState(header.session, name, name, "", "", header.at, header.at)
                self._add_session(session)
            session.changed = header.at
            self._enter_event(session, header, header.number)
            session.stored_bytes += header.size
            session.texts += len(header.texts)
            for part, key in enumerate(header.texts):
                # A record contains a text only where no other one was found that does.
                self.directory.add(key, pack_place(header.place, part))

    def _begin_session(self, header: RecordHeader, data: bytes) -> None:
        new, parent, shared = unpack_session_facts(self._view.packer, header, data)
        session = SessionState(
            header.session, new.key, new.family, new.parent, new.relation, new.at, new.at, stored_bytes=header.size
        )
        self._add_session(session)
        for number in range(1, shared + 1):
            offset = self.find_record(parent, number)
            if offset is None:
                continue
            try:
                found, _ = self._view.read_record(offset)
            except CorruptError:
                # The fork has the same gap as its parent.
                continue
            self._enter_event(session, found, number)
        session.records = max(session.records, shared)

    def _delete_session(self, header: RecordHeader) -> None:
        self.unused_bytes += header.size
        session = self.by_number.pop(header.session, None)
        if session is not None:
            # Its entries stay until a compaction; its number is not used again.
            del self.by_key[session.key]
            self.unused_bytes += session.stored_bytes

    def _add_session(self, session: SessionState) -> None:
        self.by_key[session.key] = session
        self.by_number[session.number] = session
        self.next_number = max(self.next_number, session.number + 1)

    def _enter_event(self, session: SessionState, header: RecordHeader, number: int) -> None:
        place = pack_place(header.place)
        self.directory.add(self.keys.make_record_key(session.number, number), place)
        session.records = max(session.records, number)
        session.raw_bytes += header.raw_bytes
        if header.turn:
            self._enter_turn(session, header, place)
        for part, mask in enumerate(header.masks):
            self.directory.put(self.keys.make_mask_key(session.number, *mask), place | part)

    def _enter_turn(self, session: SessionState, header: RecordHeader, place: int) -> None:
        key = self.keys.make_turn_key(session.number, header.turn)
        name = session.number << 32 | header.turn
        old = None
        if header.turn <= session.newest:
            old = self.directory.get(key)
        if old is None:
            self.directory.add(key, place)
            session.turns += 1
            session.newest = max(session.newest, header.turn)
        else:
            self._leave_node(old, name)
            self.directory.put(key, place)
        if header.node:
            self.directory.add(header.node, name)

    def _leave_node(self, place: int, name: int) -> None:
        """What a turn was named before names nothing any more."""
        try:
            old, _ = self._view.read_record(unpack_place(place)[0])
        except CorruptError:
            # The old name cannot be read; `find_holders` may still return this turn for it.
            return
        if old.node:
            self.directory.remove(old.node, name)

    # Files

    @property
    def directory_bytes(self) -> int:
        """Return the bytes of the directory's pages."""
        self.directory.settle()
        return self.directory.pages.count * PAGE

    def pack(self) -> bytes:
        """Return the sessions as bytes, for the directory's file."""
        sessions = [astuple(session) for session in self.by_key.values()]
        facts = {"next": self.next_number, "unused": self.unused_bytes, "sessions": sessions}
        return zlib.compress(json.dumps(facts, separators=(",", ":")).encode(), 1)

    def load(self, directory: Directory, packed: bytes) -> None:
        """Take what `pack` returned. Raises CorruptError."""
        try:
            facts = json.loads(zlib.decompress(packed))
            sessions = [SessionState(*each) for each in facts["sessions"]]
            self.next_number, self.unused_bytes = facts["next"], facts["unused"]
        except (ValueError, LookupError, TypeError, zlib.error) as error:
            raise CorruptError(f"the catalogue cannot be read: {error}") from error
        self.directory = directory
        self.by_key = {session.key: session for session in sessions}
        self.by_number = {session.number: session for session in sessions}


def _name_recovered(number: int) -> str:
    return f"recovered {number}"


def pack_session_facts(new: NewSession, parent: int) -> list[Any]:
    """Return what the record that begins a session says. parent: its number, if something is shared."""
    return [new.key, new.family, new.parent, new.relation, new.at, parent, new.shared]


def unpack_session_facts(packer: RecordPacker, header: RecordHeader, data: bytes) -> tuple[NewSession, int, int]:
    """Return the session, its parent's number and the shared records. Raises CorruptError."""
    try:
        key, family, parent, relation, begun, number, shared = packer.unpack_facts(header, data)
        new = NewSession(key=key, family=family, parent=parent, relation=relation, at=begun)
    except (ValueError, TypeError) as error:
        raise CorruptError(f"the beginning of a session cannot be read: {error}") from error
    if relation not in get_args(Relation):
        raise CorruptError(f"session {key!r} came from its parent by {relation!r}, which this version does not know")
    return new, number, shared
