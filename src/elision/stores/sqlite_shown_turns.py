"""Keeps `agent_context_turns` and its like up to the logs of a SQLite store."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress

from elision.errors import UnknownHandle
from elision.stores import sqlite_rows as rows
from elision.stores import sqlite_transcripts
from elision.stores.sqlite_file import SqliteFile
from elision.stores.sqlite_records import SqliteRecords
from elision.trajectory.events import Event


class ShownTurns:
    """The tables for people who read `file` with SQL. is_on: whether they are kept; what they lack is written now."""

    def __init__(self, file: SqliteFile, records: SqliteRecords, *, is_on: bool) -> None:
        self._records = records
        self._is_on = is_on
        if is_on:
            self._show_all_turns(file)

    def show_append(
        self, connection: sqlite3.Connection, session: str, after: int, events: Sequence[Event], at: float | None
    ) -> None:
        """Show all records of `session`, of which `events` follow record `after`."""
        if not self._is_on:
            return
        id, records, _ = rows.find_session(connection, session)

        def read_events(shown: int) -> Iterator[tuple[int, Event]]:
            if shown == after and after + len(events) == records:
                yield from enumerate(events, start=after + 1)
                return
            span = rows.record_id(id, shown + 1), rows.record_id(id, records)
            for record, event in self._records.read_events(connection, *span):
                yield record - rows.record_id(id, 0), event

        sqlite_transcripts.show_records(connection, id, session, records, read_events, after=after, at=at)

    def _show_all_turns(self, file: SqliteFile) -> None:
        """Make the tables, and bring them up to every log, a session at a time."""
        with file.write_transaction() as connection:
            sqlite_transcripts.create_tables(connection)
            behind = sqlite_transcripts.list_sessions_behind(connection)
        for key in map(rows.decode_key, behind):
            with file.write_transaction() as connection, suppress(UnknownHandle):
                self.show_append(connection, key, 0, (), None)
