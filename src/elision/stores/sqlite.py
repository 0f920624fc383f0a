"""The default store: one SQLite file, every append one transaction and one sync."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from elision.errors import ConflictError, CorruptError, StoreError, UnknownHandle
from elision.stores import sqlite_rows as rows
from elision.stores import sqlite_search, sqlite_transcripts
from elision.stores.batch_ids import check_batch_id
from elision.stores.excerpts import split_words
from elision.stores.packing import Packer
from elision.stores.sqlite_check import find_damage
from elision.stores.sqlite_file import BUSY_SECONDS, SqliteFile
from elision.stores.store import Finding, Footprint, Hit, NewSession, PurgeResult, SessionInfo
from elision.stores.store_errors import missing_observation_error, missing_session_error, stale_writer_error
from elision.stores.text_search import find_hits
from elision.trajectory.events import Event, TurnAdded, TurnAmended
from elision.trajectory.plan import Key
from elision.trajectory.turn import Observation, Turn

#: Records read at a time where a whole log is read.
_CHUNK: Final = 256
#: Records indexed in one transaction.
_INDEXED_AT_ONCE: Final = 1_024


class SqliteStore:
    """Sessions in the file `path` (made with mode 0600 if it is not there; its folder must be).

    busy_seconds: how long a writer waits while another process writes. shows_turns: whether `agent_context_turns` and
    its like are kept, for people who read the file with SQL. What they lack is written now.
    """

    def __init__(self, path: Path, *, busy_seconds: float = BUSY_SECONDS, shows_turns: bool = False) -> None:
        self._file = SqliteFile(path, busy_seconds=busy_seconds)
        self._threads = threading.local()
        with self._file.use_connection() as connection:
            self._can_index = sqlite_search.can_index(connection)
        self._shows_turns = shows_turns
        if shows_turns:
            self._show_all_turns()

    # --- logs ----------------------------------------------------------------------------------------------------

    def create(self, session: NewSession) -> None:
        with self._file.write_transaction() as connection:
            rows.create_session(connection, session)
            self._show_turns(connection, session.key, session.shared, (), None)

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        packer = self._get_packer()
        packed = [packer.pack(event) for event in events]
        after = session.shared
        with self._file.write_transaction() as connection:
            if batch and rows.has_append(connection, session.key, packed, after, batch, packer.decompress):
                return after + len(packed)
            rows.create_session(connection, session)
            if packed:
                rows.append_records(connection, session.key, packed, after, at, batch)
            self._show_turns(connection, session.key, after, events, at)
        return after + len(packed)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        packer = self._get_packer()
        packed = [packer.pack(event) for event in events]
        if not packed:
            return self._check_length(session, after)
        with self._file.write_transaction() as connection:
            try:
                rows.append_records(connection, session, packed, after, at, batch)
            except ConflictError:
                if not rows.has_append(connection, session, packed, after, batch, packer.decompress):
                    raise
            else:
                self._show_turns(connection, session, after, events, at)
        return after + len(packed)

    def length(self, session: str) -> int:
        with self._file.read_transaction() as connection:
            return rows.find_session(connection, session)[1]

    def try_length(self, session: str) -> int | None:
        return self._file.try_read(lambda connection: rows.find_session(connection, session)[1])

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        with self._file.read_transaction() as connection:
            identity, records, _ = rows.find_session(connection, session)
        first = rows.record_id(identity, max(after, 0) + 1)
        return self._iterate_events(session, first, rows.record_id(identity, records))

    # --- turns ---------------------------------------------------------------------------------------------------

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        with self._file.read_transaction() as connection:
            identity, _, _ = rows.find_session(connection, session)
            records = rows.list_turn_records(connection, identity, first, last)
            return [self._read_turn(connection, record) for record in records]

    def observation(self, session: str, key: Key) -> Observation:
        turns = self.turns(session, key[0], key[0])
        if not turns or not 1 <= key[1] <= len(turns[0].observations):
            raise missing_observation_error(session, key)
        return turns[0].observations[key[1] - 1]

    def search(self, session: str, query: str, limit: int = 20) -> list[Hit]:
        words = split_words(query)
        self._try_to_index(session)
        hits: list[Hit] = []
        with self._file.read_transaction() as connection:
            identity, _, indexed = rows.find_session(connection, session)
            if not words or limit < 1:
                return []
            first = rows.record_id(identity, 1)
            last = rows.record_id(identity, indexed)
            candidates = sqlite_search.find_candidates(connection, words, first, last)
            for record in rows.iterate_newest_turns(connection, identity, indexed, candidates):
                hits.extend(find_hits(session, self._read_turn(connection, record), words))
                if len(hits) >= limit:
                    break
        return hits[:limit]

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        with self._file.read_transaction() as connection:
            for node in filter(None, reversed(nodes)):
                place = rows.locate_node(connection, family, node)
                if place is not None:
                    return place
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
        with self._file.use_connection() as connection:
            before = rows.count_stored_bytes(connection)
            # It takes one page a step, and `execute` takes but one step of what returns no columns.
            connection.executescript("PRAGMA incremental_vacuum")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return max(0, before - rows.count_stored_bytes(connection))

    def check(self) -> list[Finding]:
        with self._file.read_transaction() as connection:
            return list(find_damage(connection, self._file.path, self._get_packer()))

    def close(self) -> None:
        self._file.close()

    # --- turns for people ----------------------------------------------------------------------------------------

    def _show_all_turns(self) -> None:
        """Make the tables, and bring them up to every log, a session at a time."""
        with self._file.write_transaction() as connection:
            sqlite_transcripts.create_tables(connection)
            behind = sqlite_transcripts.list_sessions_behind(connection)
        for key in map(rows.decode_key, behind):
            with self._file.write_transaction() as connection, suppress(UnknownHandle):
                self._show_turns(connection, key, 0, (), None)

    def _show_turns(
        self, connection: sqlite3.Connection, session: str, after: int, events: Sequence[Event], at: float | None
    ) -> None:
        """Show all records of `session`, of which `events` follow record `after`."""
        if not self._shows_turns:
            return
        id, records, _ = rows.find_session(connection, session)

        def read_events(shown: int) -> Iterator[tuple[int, Event]]:
            if shown == after and after + len(events) == records:
                yield from enumerate(events, start=after + 1)
                return
            span = rows.record_id(id, shown + 1), rows.record_id(id, records)
            for record, body in connection.execute(rows.BODIES, span):
                yield record - rows.record_id(id, 0), self._unpack_event(connection, body)

        sqlite_transcripts.show_records(connection, id, session, records, read_events, after=after, at=at)

    # --- pieces --------------------------------------------------------------------------------------------------

    def _get_packer(self) -> Packer:
        """Return this thread's packer."""
        packer: Packer | None = getattr(self._threads, "packer", None)
        if packer is None:
            packer = self._threads.packer = Packer()
        return packer

    def _check_length(self, session: str, after: int) -> int:
        records = self.length(session)
        if records != after:
            raise stale_writer_error(session, records, after)
        return records

    def _iterate_events(self, session: str, first: int, last: int) -> Iterator[Event]:
        for start in range(first, last + 1, _CHUNK):
            chunk = self._read_chunk(session, start, min(start + _CHUNK - 1, last))
            yield from (event for _, event in chunk)

    def _read_chunk(self, session: str, first: int, last: int) -> list[tuple[int, Event]]:
        """Return the records first ... last (ids)."""
        with self._file.read_transaction() as connection:
            bodies = connection.execute(rows.BODIES, (first, last)).fetchall()
            if len(bodies) <= last - first:
                if rows.find_session(connection, session)[0] != rows.session_of_record(first):
                    raise missing_session_error(session)
                raise self._file.make_corrupt_error(f"records of session {session!r} are missing")
            return [(record, self._unpack_event(connection, body)) for record, body in bodies]

    def _read_turn(self, connection: sqlite3.Connection, record: int) -> Turn:
        row = connection.execute(rows.BODY, (record,)).fetchone()
        event = self._unpack_event(connection, row[0]) if row else None
        if not isinstance(event, TurnAdded | TurnAmended):
            raise self._file.make_corrupt_error(f"record {record % rows.SPAN} of a session is no turn")
        return event.turn

    def _unpack_event(self, connection: sqlite3.Connection, body: bytes) -> Event:
        def fetch(address: bytes) -> bytes:
            text: bytes = connection.execute(rows.FETCH, (address,)).fetchone()[0]
            return text

        try:
            return self._get_packer().unpack(body, fetch)
        except CorruptError as error:
            raise self._file.make_corrupt_error(str(error)) from error
        except StoreError as error:
            raise StoreError(f"{self._file.path}: {error}") from error

    def _try_to_index(self, session: str) -> None:
        try:
            self._update_index(session)
        except CorruptError:
            raise
        except StoreError:
            # Locked, full or read-only: what can still be read is scanned instead, which finds the same.
            return

    def _update_index(self, session: str) -> None:
        """Bring the search index up to the log, where that is worth it and possible."""
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
