"""The default store: one SQLite file, every append one transaction and one sync."""

from __future__ import annotations

import operator
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from elision.errors import ConflictError, UnknownHandle
from elision.stores import sqlite_rows as rows
from elision.stores import sqlite_search
from elision.stores.batch_ids import check_batch_id
from elision.stores.packing import PackedRecords, get_packer
from elision.stores.sqlite_check import find_damage
from elision.stores.sqlite_file import BUSY_SECONDS, SqliteFile
from elision.stores.sqlite_records import SqliteRecords
from elision.stores.sqlite_shown_turns import ShownTurns
from elision.stores.store import Finding, Footprint, NewSession, PurgeResult, SessionInfo
from elision.stores.store_base import StoreBase
from elision.stores.store_errors import missing_session_error
from elision.trajectory.events import Event
from elision.trajectory.turn import Turn


class SqliteStore(StoreBase):
    """Sessions in the file `path` (made with mode 0600 if it is not there; its folder must be).

    busy_seconds: how long a writer waits while another process writes. shows_turns: whether `agent_context_turns` and
    its like are kept, for people who read the file with SQL. What they lack is written now. read_only: the file must be
    there, and nothing is written, no search index either; other processes may write.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_seconds: float = BUSY_SECONDS,
        shows_turns: bool = False,
        read_only: bool = False,
    ) -> None:
        self._file = SqliteFile(path, busy_seconds=busy_seconds, read_only=read_only)
        self._records = SqliteRecords(self._file)
        self._shown_turns = ShownTurns(self._file, self._records, is_on=shows_turns and not read_only)

    # --- logs ----------------------------------------------------------------------------------------------------

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        packed = get_packer().pack_rows(events)
        after = session.shared
        with self._file.write_transaction() as connection:
            if not self._records.has_append(connection, session.key, events, after, batch):
                rows.create_session(connection, session, partial(self._records.split_row, connection))
                if packed:
                    self._append_to_new(connection, session.key, packed, after, at, batch)
                self._shown_turns.show_append(connection, session.key, after, events, at)
        return after + len(events)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        if not events:
            return self.check_length(session, after)
        packed = get_packer().pack_rows(events)
        with self._file.write_transaction() as connection:
            try:
                rows.append_records(connection, session, packed, after, at, batch)
            except ConflictError:
                if not self._records.has_append(connection, session, events, after, batch):
                    raise
            else:
                self._shown_turns.show_append(connection, session, after, events, at)
        return after + len(events)

    def _append_to_new(
        self,
        connection: sqlite3.Connection,
        session: str,
        packed: Sequence[PackedRecords],
        after: int,
        at: float,
        batch: bytes,
    ) -> None:
        """Write the records of a session that was begun in this transaction."""
        try:
            rows.append_records(connection, session, packed, after, at, batch)
        except (UnknownHandle, ConflictError) as error:
            raise self._file.make_damage_error("a row that was written is not found again") from error

    def length(self, session: str) -> int:
        with self._file.read_transaction() as connection:
            return rows.find_session(connection, session)[1]

    def try_length(self, session: str) -> int | None:
        return self._file.try_read(lambda connection: rows.find_session(connection, session)[1])

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        with self._file.read_transaction() as connection:
            identity, records, _ = rows.find_session(connection, session)
            first = rows.record_id(identity, max(after, 0) + 1)
            # A damaged row may have anything else there.
            last = rows.record_id(identity, operator.index(records))
        return self._records.iterate_events(session, first, last)

    # --- turns ---------------------------------------------------------------------------------------------------

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        with self._file.read_transaction() as connection:
            identity, _, _ = rows.find_session(connection, session)
            records = rows.list_turn_records(connection, identity, first, last)
            return [self._records.read_turn(connection, record) for record in records]

    @contextmanager
    def open_newest_turns(self, session: str, words: Sequence[str]) -> Iterator[Iterator[Turn]]:
        self._records.index_session(session)
        with self._file.read_transaction() as connection:
            identity, _, indexed = rows.find_session(connection, session)
            first = rows.record_id(identity, 1)
            last = rows.record_id(identity, indexed)
            candidates = sqlite_search.find_candidates(connection, words, first, last)
            records = rows.iterate_newest_turns(connection, identity, indexed, candidates)
            yield (self._records.read_turn(connection, record) for record in records)

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        with self._file.read_transaction() as connection:
            for node in filter(None, reversed(nodes)):
                place = rows.locate_node(connection, family, node)
                if place is not None:
                    return place
            if rows.has_lost_session(connection, nodes):
                raise self._file.make_corrupt_error("turns of this history are kept, and their session's row is lost")
        return None

    # --- sessions ------------------------------------------------------------------------------------------------

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        since = float("-inf") if changed_since is None else changed_since
        with self._file.read_transaction() as connection:
            return [rows.parse_session_row(row) for row in rows.select_sessions(connection, family_prefix, since)]

    def info(self, session: str) -> SessionInfo:
        with self._file.read_transaction() as connection:
            row = connection.execute(rows.INFO, (rows.encode_key(session),)).fetchone()
            if row is None:
                raise missing_session_error(session)
            return rows.parse_session_row(row)

    def delete(self, session: str) -> None:
        with self._file.write_transaction() as connection:
            rows.delete_session(connection, session)

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> PurgeResult:
        self._file.check_writable()
        before = self._count_used_bytes()
        if max_bytes is not None and before > max_bytes:
            with self._file.write_transaction() as connection:
                # The index can be made again; sessions cannot.
                sqlite_search.drop_index(connection)
        gone = tuple(self._purge_sessions(older_than, max_bytes))
        if not gone:
            return PurgeResult(sessions=(), freed_bytes=0)
        self.compact()
        return PurgeResult(sessions=gone, freed_bytes=max(0, before - self._count_used_bytes()))

    # --- the file ------------------------------------------------------------------------------------------------

    def footprint(self) -> Footprint:
        with self._file.read_transaction() as connection:
            sessions, records, raw, turns, texts = connection.execute(rows.FOOTPRINT).fetchone()
            stored = rows.count_stored_bytes(connection)
        return Footprint(
            sessions=sessions, records=records, turns=turns, texts=texts, raw_bytes=raw, stored_bytes=stored
        )

    def compact(self) -> int:
        self._file.check_writable()
        with self._file.use_connection() as connection:
            before = rows.count_stored_bytes(connection)
            # It takes one page a step, and `execute` takes but one step of what returns no columns.
            connection.executescript("PRAGMA incremental_vacuum")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return max(0, before - rows.count_stored_bytes(connection))

    def check(self) -> list[Finding]:
        with self._file.read_transaction() as connection:
            return list(find_damage(connection, self._file.path, get_packer()))

    def check_writes(self, *, is_tried: bool) -> None:
        self._file.check_writes(is_tried=is_tried)

    def close(self) -> None:
        self._file.close()

    def _purge_sessions(self, older_than: float | None, max_bytes: int | None) -> Iterator[str]:
        """Delete the oldest session as long as it is too old or there is too much; yield each key."""
        while True:
            with self._file.write_transaction() as connection:
                oldest = connection.execute(rows.OLDEST).fetchone()
                if oldest is None:
                    return
                is_old = older_than is not None and oldest[1] < older_than
                is_too_much = max_bytes is not None and rows.count_used_bytes(connection) > max_bytes
                if not is_old and not is_too_much:
                    return
                key = rows.decode_key(oldest[0])
                rows.delete_session(connection, key)
            yield key

    def _count_used_bytes(self) -> int:
        with self._file.read_transaction() as connection:
            return rows.count_used_bytes(connection)
