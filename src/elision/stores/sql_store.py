"""The protocol in a database that takes SQL: what SQLite and PostgreSQL do alike, and what each does its own way.

Work within a transaction is a function, because PostgreSQL may run it again: so one that writes recognizes its own
earlier work. Statements have names; each database has a file of them in `sql/`.
"""

from __future__ import annotations

import operator
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from elision.errors import CorruptError
from elision.stores.packing import PackedRecords, check_batch_id, extract_turn, recognize_append
from elision.stores.sql_dialect import SqlDialect, list_changes, load_statements
from elision.stores.store import Footprint, NewSession, PurgeResult, SessionInfo
from elision.stores.store_base import StoreBase
from elision.stores.store_errors import missing_session_error, stale_writer_error
from elision.trajectory.events import Event
from elision.trajectory.turn import Turn

T = TypeVar("T")


class SqlCursor(Protocol):
    """What runs statements within a transaction: a connection of SQLite, a cursor of PostgreSQL."""

    def execute(self, query: Any, params: Any = ..., /) -> Any: ...


C = TypeVar("C", bound=SqlCursor)
C_co = TypeVar("C_co", bound=SqlCursor, covariant=True)


class SqlDatabase(Protocol[C_co]):
    """Transactions of one database, and its errors in our words. patient: without a time limit, where it has one."""

    def read(self, work: Callable[[C_co], T], *, patient: bool = False) -> T:
        """Return what `work` returns, read as of one moment."""
        ...

    def write(self, work: Callable[[C_co], T], *, patient: bool = False) -> T:
        """Return what `work` returns, once it is durable, all or nothing of it."""
        ...

    def check_writable(self) -> None:
        """Raise StoreError where the database was opened for reading alone."""
        ...

    def make_corrupt_error(self, what: str) -> CorruptError: ...

    def make_damage_error(self, what: str) -> CorruptError:
        """Return an error of the whole store."""
        ...

    def close(self) -> None: ...


class SqlAppend(msgspec.Struct, frozen=True, kw_only=True):
    """One append as it is written and recognized. batch: its id, b"" for none."""

    session: str
    events: Sequence[Event]
    packed: Sequence[PackedRecords]
    after: int
    at: float
    batch: bytes


class SqlStore(StoreBase, Generic[C]):
    """Sessions in `database`, in the words of `dialect`. shows_whole: whether rows for people have whole texts."""

    def __init__(self, database: SqlDatabase[C], dialect: SqlDialect, *, shows_whole: bool = True) -> None:
        self._database = database
        self._dialect = dialect
        self._sql = load_statements(dialect.name)
        self._shows_whole = shows_whole

    # --- logs ----------------------------------------------------------------------------------------------------

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        append = self._make_append(session.key, events, session.shared, at, batch)
        # Not the append's own: a fork's copies have it.
        creation = uuid.uuid4()

        def work(cursor: C) -> None:
            if self._has_append(cursor, append):
                return
            self._create_session(cursor, session, creation)
            if events and not self._write_append(cursor, append):
                raise self._database.make_damage_error("a row that was written is not found again")

        self._database.write(work, patient=session.shared > 0)
        return session.shared + len(events)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        if not events:
            check_batch_id(batch)
            return self.check_length(session, after)
        append = self._make_append(session, events, after, at, batch)

        def work(cursor: C) -> None:
            if not self._write_append(cursor, append) and not self._has_append(cursor, append):
                raise stale_writer_error(session, self._find_session(cursor, session)[1], after)

        self._database.write(work)
        return after + len(events)

    def length(self, session: str) -> int:
        return self._database.read(lambda cursor: self._find_session(cursor, session)[1])

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        def find(cursor: C) -> tuple[int, int]:
            id, records = self._find_session(cursor, session)
            # A damaged row may have anything else there.
            return id, operator.index(records)

        id, last = self._database.read(find)
        return self._iterate_events(session, id, max(after, 0), last)

    def _iterate_events(self, session: str, id: int, after: int, last: int) -> Iterator[Event]:
        """Yield the events of records after + 1 ... last of session `id`, so many a transaction."""

        def work(cursor: C) -> Iterable[tuple[int, Event]]:
            if self._find_session(cursor, session)[0] != id:
                raise missing_session_error(session)
            return self._read_batch(cursor, id, after, last)

        while after < last:
            start = after
            for position, event in self._database.read(work):
                if position != after + 1:
                    break
                after = position
                yield event
            if after == start:
                raise self._database.make_corrupt_error(f"record {after + 1} of a log of {last} is missing")

    def _has_append(self, cursor: C, append: SqlAppend) -> bool:
        """Return whether an earlier try of this append, whose answer was lost, was committed.

        Raises StoreError if it wrote other records.
        """
        found = self._find_append(cursor, append)
        if found is None:
            return False
        id, mark = found

        def read_stored() -> list[Event]:
            positions = range(append.after + 1, append.after + len(append.events) + 1)
            return [event for _, event in self._read_records(cursor, id, positions)]

        return recognize_append(append.session, append.batch, mark, append.events, read_stored)

    def _claim_log(self, cursor: C, append: SqlAppend) -> Any:
        """Count an append in its session's row, if the log ends at its place; that keeps other writers out."""
        claim = {
            "key": self._dialect.encode_name(append.session),
            "after": append.after,
            "added": len(append.events),
            "at": append.at,
            "turn": max((turn for row in append.packed for _, turn, _ in row.turns), default=0),
            "size": sum(row.size for row in append.packed),
        }
        return cursor.execute(self._sql["claim"], claim)

    def _show_event(self, cursor: C, id: int, session: str, record: int, event: Event, at: float | None) -> None:
        """Write what record `record` of session `id` changes in the tables for people.

        session: its name. at: when it was written, for a turn without a time of its own; None where nobody knows.
        """
        changes = list_changes(
            self._dialect, event, id=id, session=session, record=record, at=at, shows_whole=self._shows_whole
        )
        for statement, parameters in changes:
            cursor.execute(self._sql[statement], parameters)

    # --- turns ---------------------------------------------------------------------------------------------------

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        biggest = self._dialect.biggest_turn
        span = {"first": max(first, 1), "last": biggest if last is None else min(last, biggest)}

        def work(cursor: C) -> Iterable[tuple[int, Event]]:
            id, _ = self._find_session(cursor, session)
            if span["last"] < span["first"]:
                return []
            found = cursor.execute(self._sql["turns"], {"id": id, **span}).fetchall()
            return self._read_records(cursor, id, [record for (record,) in found])

        return list(self._extract_turns(self._database.read(work)))

    def _extract_turns(self, records: Iterable[tuple[int, Event]]) -> Iterator[Turn]:
        for _, event in records:
            try:
                turn = extract_turn(event)
            except CorruptError as error:
                raise self._database.make_corrupt_error(str(error)) from error
            yield turn

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        def work(cursor: C) -> tuple[str, int] | None:
            row = self._find_node(cursor, family, nodes)
            if row is not None:
                # Once a bit of the file has changed, any column may hold a value of another type.
                return self._dialect.decode_name(row[0]), operator.index(row[1])
            if self._has_lost_session(cursor, nodes):
                what = "turns of this history are kept, and their session's row is lost"
                raise self._database.make_corrupt_error(what)
            return None

        return self._database.read(work)

    # --- sessions ------------------------------------------------------------------------------------------------

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        query = self._sql["sessions_of_family" if family_prefix else "sessions"]
        since = float("-inf") if changed_since is None else changed_since
        parameters = {"prefix": self._dialect.encode_name(family_prefix), "since": since}

        def work(cursor: C) -> list[SessionInfo]:
            return [self._parse_session(row) for row in cursor.execute(query, parameters).fetchall()]

        return self._database.read(work)

    def info(self, session: str) -> SessionInfo:
        def work(cursor: C) -> SessionInfo:
            row = cursor.execute(self._sql["info"], {"key": self._dialect.encode_name(session)}).fetchone()
            if row is None:
                raise missing_session_error(session)
            return self._parse_session(row)

        return self._database.read(work)

    def delete(self, session: str) -> None:
        tries = 0

        def work(cursor: C) -> None:
            nonlocal tries
            tries += 1
            row = self._lock_session(cursor, session)
            if row is not None:
                self._delete_session(cursor, row[0])
            elif tries == 1:
                raise missing_session_error(session)

        self._database.write(work, patient=True)

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> PurgeResult:
        self._database.check_writable()
        stored = 0
        if max_bytes is not None:
            stored = self._database.read(self._count_purged_bytes, patient=True)
        gone: list[str] = []
        freed = 0
        # Of a row that is damaged elsewhere the rest counts: it must not keep what is full from being emptied.
        for changed, key, records in self._database.read(self._list_ages):
            is_old = older_than is not None and changed < older_than
            is_too_much = max_bytes is not None and stored - freed > max_bytes
            if not is_old and not is_too_much:
                break
            freed_bytes = self._purge_session(key, records)
            if freed_bytes is not None:
                gone.append(key)
                freed += freed_bytes
        return PurgeResult(sessions=tuple(gone), freed_bytes=freed)

    def _list_ages(self, cursor: C) -> list[tuple[float, str, int]]:
        """Return when each session changed last, its name and its length, the oldest first."""
        rows = cursor.execute(self._sql["ages"]).fetchall()
        return sorted((changed, self._dialect.decode_name(key), records) for changed, key, records in rows)

    def _purge_session(self, key: str, records: int) -> int | None:
        """Delete a session; return the bytes freed, None if another process wrote to it or deleted it."""

        def work(cursor: C) -> int | None:
            row = self._lock_session(cursor, key)
            if row is None or row[1] != records:
                return None
            return self._delete_session(cursor, row[0])

        return self._database.write(work, patient=True)

    def footprint(self) -> Footprint:
        def work(cursor: C) -> Footprint:
            sessions, records, turns, texts, raw = map(int, cursor.execute(self._sql["footprint"]).fetchone())
            stored = self._count_stored_bytes(cursor)
            return Footprint(
                sessions=sessions, records=records, turns=turns, texts=texts, raw_bytes=raw, stored_bytes=stored
            )

        return self._database.read(work, patient=True)

    def close(self) -> None:
        self._database.close()

    def _find_session(self, cursor: C, session: str) -> tuple[int, int]:
        """Return id and length of a session. Raises UnknownHandle."""
        row: tuple[int, int] | None
        row = cursor.execute(self._sql["session"], {"key": self._dialect.encode_name(session)}).fetchone()
        if row is None:
            raise missing_session_error(session)
        return row

    def _lock_session(self, cursor: C, session: str) -> tuple[int, int] | None:
        """Return id and length of a session that nobody else changes now; None if it is not there."""
        row: tuple[int, int] | None
        row = cursor.execute(self._sql["session_locked"], {"key": self._dialect.encode_name(session)}).fetchone()
        return row

    def _parse_session(self, row: Sequence[Any]) -> SessionInfo:
        key, family, parent, relation, begun, changed, records, turns, raw_bytes = row
        return SessionInfo(
            key=self._dialect.decode_name(key),
            family=self._dialect.decode_name(family),
            parent=self._dialect.decode_name(parent),
            relation=relation,
            begun=begun,
            changed=changed,
            records=records,
            turns=turns,
            raw_bytes=raw_bytes,
        )

    # --- what each database does its own way -----------------------------------------------------------------------

    @abstractmethod
    def _make_append(self, session: str, events: Sequence[Event], after: int, at: float, batch: bytes) -> SqlAppend:
        """Return an append, packed. Raises StoreError for an id that is none."""

    @abstractmethod
    def _create_session(self, cursor: C, session: NewSession, creation: uuid.UUID) -> None:
        """Begin a session with a copy of what it shares, unless the call `creation` did. Raises as `create` does."""

    @abstractmethod
    def _write_append(self, cursor: C, append: SqlAppend) -> bool:
        """Write an append and the rows for people; return False where the log does not end at its place."""

    @abstractmethod
    def _find_append(self, cursor: C, append: SqlAppend) -> tuple[int, bytes | None] | None:
        """Return the session's id and the mark of the record where `append` begins; None if there can be none."""

    @abstractmethod
    def _read_batch(self, cursor: C, id: int, after: int, last: int) -> Iterable[tuple[int, Event]]:
        """Return the next records after `after`, as many as a transaction should read; perhaps unpacked behind it."""

    @abstractmethod
    def _read_records(self, cursor: C, id: int, positions: Sequence[int]) -> Iterable[tuple[int, Event]]:
        """Return the records at `positions`. Raises CorruptError if one is missing."""

    @abstractmethod
    def _find_node(self, cursor: C, family: str, nodes: Sequence[str]) -> Sequence[Any] | None:
        """Return name and turn of what `locate` finds."""

    @abstractmethod
    def _has_lost_session(self, cursor: C, nodes: Sequence[str]) -> bool:
        """Return whether a turn that one of `nodes` names is kept, and its session is not: both go at once."""

    @abstractmethod
    def _delete_session(self, cursor: C, id: int) -> int:
        """Delete a session and the texts that only it used; return the bytes freed."""

    @abstractmethod
    def _count_stored_bytes(self, cursor: C) -> int: ...

    def _count_purged_bytes(self, cursor: C) -> int:
        """Return the stored bytes that deleting sessions can free."""
        return self._count_stored_bytes(cursor)
