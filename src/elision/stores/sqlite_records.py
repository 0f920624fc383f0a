"""Reads the records of a SQLite store, and keeps its search index."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Final

from elision.errors import CorruptError, StoreError, UnknownHandle
from elision.stores import sqlite_rows as rows
from elision.stores import sqlite_search
from elision.stores.batch_ids import recognize_append
from elision.stores.packing import PackedRecords, extract_turn, get_packer
from elision.stores.sqlite_file import SqliteFile
from elision.stores.store_errors import missing_session_error
from elision.trajectory.events import Event
from elision.trajectory.turn import Turn

#: Records read at a time where a whole log is read, and first, because a reader of the task needs no more.
_CHUNK: Final = 256
_FIRST_CHUNK: Final = 4
#: Records indexed in one transaction.
_INDEXED_AT_ONCE: Final = 1_024


class SqliteRecords:
    """The records in `file`; their ids are those of `sqlite_rows`."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        with file.use_connection() as connection:
            self._can_index = sqlite_search.can_index(connection)

    def iterate_events(self, session: str, first: int, last: int) -> Iterator[Event]:
        """Yield the events of records first ... last, a chunk a transaction; the first is small."""
        start, size = first, _FIRST_CHUNK
        while start <= last:
            chunk = self._read_chunk(session, start, min(start + size - 1, last))
            yield from (event for _, event in chunk)
            start, size = start + size, _CHUNK

    def read_events(self, connection: sqlite3.Connection, first: int, last: int) -> Iterator[tuple[int, Event]]:
        """Yield those of the records first ... last that are there, each with its id. Raises CorruptError."""
        for start, body in connection.execute(rows.ROWS, (first, last)).fetchall():
            for record, event in enumerate(self._unpack(connection, body), start):
                if first <= record <= last:
                    yield record, event

    def read_turn(self, connection: sqlite3.Connection, record: int) -> Turn:
        """Return the turn that a record adds or amends. Raises CorruptError."""
        start, body = connection.execute(rows.ROW, (record,)).fetchone() or (0, b"")
        if rows.session_of_record(start) != rows.session_of_record(record):
            raise self._file.make_corrupt_error(f"record {record % rows.SPAN} of a session is missing")
        (event,) = self._unpack(connection, body, record - start)
        try:
            return extract_turn(event)
        except CorruptError as error:
            raise self._file.make_corrupt_error(str(error)) from error

    def has_append(
        self, connection: sqlite3.Connection, session: str, events: Sequence[Event], after: int, batch: bytes
    ) -> bool:
        """Return whether the append `batch` wrote `events` after record `after`.

        Raises StoreError if it wrote others.
        """
        if not batch or after < 0:
            return False
        try:
            first = rows.record_id(rows.find_session(connection, session)[0], after + 1)
        except UnknownHandle:
            return False
        (mark,) = connection.execute(rows.MARK, (first,)).fetchone() or (None,)

        def read_stored() -> list[Event]:
            return [event for _, event in self.read_events(connection, first, first + len(events) - 1)]

        return recognize_append(session, batch, mark, events, read_stored)

    def split_row(self, connection: sqlite3.Connection, body: bytes, count: int) -> PackedRecords:
        """Return the first `count` records of a row, packed. Raises CorruptError."""
        return get_packer().pack(*self._unpack(connection, body)[:count])

    def _unpack(self, connection: sqlite3.Connection, body: bytes, only: int | None = None) -> list[Event]:
        """Return the events of a row, or one of them. Raises CorruptError, StoreError."""

        def fetch(address: bytes) -> bytes:
            found = connection.execute(rows.FETCH, (address,)).fetchone()
            if found is None:
                raise CorruptError(f"the text {address.hex()[:16]} is missing")
            text: bytes = found[0]
            return text

        try:
            return get_packer().unpack(body, fetch, only)
        except CorruptError as error:
            raise self._file.make_corrupt_error(str(error)) from error
        except StoreError as error:
            raise StoreError(f"{self._file.path}: {error}") from error

    def index_session(self, session: str) -> None:
        """Bring the search index up to a log, where that is worth it and possible. Raises CorruptError."""
        try:
            self._update_index(session)
        except CorruptError:
            raise
        except StoreError:
            # Locked, full or read-only: what can still be read is scanned instead, which finds the same.
            return

    def _update_index(self, session: str) -> None:
        with self._file.read_transaction() as connection:
            identity, records, indexed = rows.find_session(connection, session)
        if records - indexed <= sqlite_search.SCANNED or not self._can_index:
            return
        while indexed < records:
            covered = min(indexed + _INDEXED_AT_ONCE, records)
            chunk = self._read_chunk(session, rows.record_id(identity, indexed + 1), rows.record_id(identity, covered))
            entries = sqlite_search.build_entries(chunk)
            with self._file.write_transaction() as connection:
                now, _, indexed_now = rows.find_session(connection, session)
                if (now, indexed_now) != (identity, indexed):
                    return
                sqlite_search.add_entries(connection, identity, entries, covered)
            indexed = covered

    def _read_chunk(self, session: str, first: int, last: int) -> list[tuple[int, Event]]:
        """Return the records first ... last, each with its id."""
        with self._file.read_transaction() as connection:
            found = list(self.read_events(connection, first, last))
            if len(found) <= last - first:
                if rows.find_session(connection, session)[0] != rows.session_of_record(first):
                    raise missing_session_error(session)
                raise self._file.make_corrupt_error(f"records of session {session!r} are missing")
            return found
