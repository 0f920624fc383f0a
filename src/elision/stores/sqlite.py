"""The default store: one SQLite file, every append one transaction and one sync.

The tables for people, `agent_context_turns` and its like, are there where the store's URL has `?turns=full`. They
follow the log: a process that opens the file without that does not write them, and the next one that has it writes
what they lack.

In a search an index of three-letter runs finds candidate turns, whose texts decide. It is no part of an append. A
search first brings it up to date, for its session alone and only where much is new; so the work is O(new), and a
session that is never searched, or short, has no index. Where SQLite lacks FTS5, or the file cannot be written now,
everything is scanned: the same hits, later.
"""

from __future__ import annotations

import math
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from elision.errors import CorruptError, StoreError, UnknownHandle
from elision.stores.packing import Blob, PackedRecords, check_batch_id, get_packer, is_text, pack_batch_mark
from elision.stores.sql_dialect import SqlDialect, split_statements
from elision.stores.sql_store import SqlAppend, SqlStore
from elision.stores.sqlite_check import (
    SPAN,
    count_stored_bytes,
    count_used_bytes,
    decode_key,
    encode_key,
    fetch_text,
    find_damage,
    record_id,
    shorten_node,
    split_addresses,
)
from elision.stores.sqlite_file import BUSY_SECONDS, SqliteFile
from elision.stores.store import Finding, NewSession, PurgeResult
from elision.stores.store_base import list_texts, split_words
from elision.stores.store_errors import missing_session_error, session_exists_error, short_parent_error
from elision.trajectory.events import Event, TurnAdded, TurnAmended
from elision.trajectory.turn import Turn

#: Records read at a time where a whole log is read.
_CHUNK: Final = 256
#: The first of them are few: a reader of the task needs no more.
_FIRST_CHUNK: Final = 4
#: Records indexed in one transaction.
_INDEXED_AT_ONCE: Final = 1_024

#: Records after the indexed ones that are scanned rather than indexed.
SCANNED: Final = 512
#: Runs of letters asked for at most: more make no query that is longer to answer any sharper.
_ASKED: Final = 64
_RUN: Final = 3

_INSERT: Final = "INSERT INTO trigrams (rowid, letters) VALUES (?, ?)"
_FOUND: Final = "SELECT rowid FROM trigrams WHERE trigrams MATCH ? AND rowid BETWEEN ? AND ?"
_COVERED: Final = "UPDATE sessions SET indexed = ? WHERE id = ?"
_TABLES: Final = ("turns", "placeholders", "summaries", "progress")


def _format_time(at: float) -> str | None:
    if not math.isfinite(at):
        return None
    try:
        return datetime.fromtimestamp(at, UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return None


_DIALECT: Final = SqlDialect(
    name="sqlite",
    encode_name=encode_key,
    decode_name=decode_key,
    biggest_turn=SPAN,
    edits={
        "mask": ("put_placeholder", "mask"),
        "clip": ("put_placeholder",),
        "fold": ("put_placeholder",),
        "whole": ("unfold",),
    },
    convert_time=_format_time,
    describe_turn=lambda event: {},
    list_words=lambda turn: (),
)


class SqliteStore(SqlStore[sqlite3.Connection]):
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
        super().__init__(self._file, _DIALECT)
        with self._file.use_connection() as connection:
            self._can_index = can_index(connection)
        self._shows_turns = shows_turns and not read_only
        if self._shows_turns:
            self._show_all_turns()

    # --- appends -------------------------------------------------------------------------------------------------

    def _make_append(self, session: str, events: Sequence[Event], after: int, at: float, batch: bytes) -> SqlAppend:
        check_batch_id(batch)
        packed = get_packer().pack_rows(events)
        return SqlAppend(session=session, events=events, packed=packed, after=after, at=at, batch=batch)

    def _write_append(self, cursor: sqlite3.Connection, append: SqlAppend) -> bool:
        if not self._claim_log(cursor, append).rowcount:
            return False
        key = encode_key(append.session)
        mark = pack_batch_mark(append.batch, len(append.events)) or None
        position = append.after + 1
        for row in append.packed:
            session = self._write_row(cursor, key, position, row, mark)
            turns = [(session, turn, position + number, shorten_node(node)) for number, turn, node in row.turns]
            cursor.executemany(self._sql["add_turn"], turns)
            position += row.records
            mark = None
        if self._shows_turns:
            self._show_records(cursor, append.session, append.after, append.events, append.at)
        return True

    def _write_row(
        self, cursor: sqlite3.Connection, key: bytes, position: int, row: PackedRecords, mark: bytes | None
    ) -> int:
        """Write records of a session from number `position` on; return the session's id."""
        for blob in row.blobs:
            self._keep_text(cursor, blob)
        texts = b"".join([blob.address for blob in row.blobs]) or None
        written = cursor.execute(self._sql["add_row"], (position, row.body, texts, row.size, mark, key))
        return (written.lastrowid or 0) // SPAN

    def _keep_text(self, cursor: sqlite3.Connection, blob: Blob) -> None:
        if not cursor.execute(self._sql["use_text"], (1, blob.address)).rowcount:
            place = cursor.execute(self._sql["add_body"], (blob.packed,)).lastrowid
            cursor.execute(self._sql["add_text"], (blob.address, place))
            return
        (kept,) = cursor.execute(self._sql["text"], (blob.address,)).fetchone() or (None,)
        if kept != blob.packed and not is_text(kept, blob.address):
            # Damage there must not spread to this record.
            place = cursor.execute(self._sql["add_body"], (blob.packed,)).lastrowid
            cursor.execute(self._sql["move_text"], (place, blob.address))

    def _find_append(self, cursor: sqlite3.Connection, append: SqlAppend) -> tuple[int, bytes | None] | None:
        if not append.batch or append.after < 0:
            return None
        session = self._lock_session(cursor, append.session)
        if session is None:
            return None
        first = record_id(session[0], append.after + 1)
        (mark,) = cursor.execute(self._sql["mark"], (first,)).fetchone() or (None,)
        return session[0], mark

    def try_length(self, session: str) -> int | None:
        return self._file.try_read(lambda connection: self._find_session(connection, session)[1])

    # --- sessions ------------------------------------------------------------------------------------------------

    def _create_session(self, cursor: sqlite3.Connection, session: NewSession, creation: uuid.UUID) -> None:
        if self._lock_session(cursor, session.key) is not None:
            raise session_exists_error(session)
        names = list(map(encode_key, (session.key, session.family, session.parent)))
        row = (*names, session.relation, session.at, session.at, session.shared)
        if session.shared:
            self._copy_records(cursor, session, row)
        else:
            cursor.execute(self._sql["create"], (*row, 0, 0))
        if self._shows_turns:
            self._show_records(cursor, session.key, session.shared, (), None)

    def _copy_records(self, cursor: sqlite3.Connection, session: NewSession, row: tuple[Any, ...]) -> None:
        """Begin a session with what it shares with its parent: whole rows, and the beginning of one."""
        parent, records = self._find_session(cursor, session.parent)
        if session.shared > records:
            raise short_parent_error(session, records)
        first = record_id(parent, 1)
        last = record_id(parent, session.shared)
        cut = None
        (after,) = cursor.execute(self._sql["next_row"], (last,)).fetchone()
        if session.shared < records and after != last + 1:
            start, body = cursor.execute(self._sql["row"], (last,)).fetchone()
            cut = get_packer().pack(*self._unpack(cursor, body)[: last + 1 - start])
            last = start - 1
        raw_bytes = cursor.execute(self._sql["raw_bytes"], (first, last)).fetchone()[0] + (cut.size if cut else 0)
        turns = cursor.execute(self._sql["newest_turn"], (parent, session.shared)).fetchone()[0]
        new = cursor.execute(self._sql["create"], (*row, turns, raw_bytes)).lastrowid or 0
        cursor.execute(self._sql["copy_records"], (record_id(new, 0) - record_id(parent, 0), first, last))
        uses = self._count_uses(cursor, first, last)
        cursor.executemany(self._sql["use_text"], [(count, address) for address, count in uses.items()])
        if cut:
            self._write_row(cursor, encode_key(session.key), last + 1 - record_id(parent, 0), cut, None)
        cursor.execute(self._sql["copy_turns"], (new, parent, session.shared))

    def _delete_session(self, cursor: sqlite3.Connection, id: int) -> int:
        before = count_used_bytes(cursor)
        (indexed,) = cursor.execute(self._sql["indexed"], (id,)).fetchone()
        log = (record_id(id, 1), record_id(id, SPAN - 1))
        uses = self._count_uses(cursor, *log)
        cursor.executemany(self._sql["use_text"], [(-count, address) for address, count in uses.items()])
        cursor.executemany(self._sql["drop_body"], [(address,) for address in uses])
        cursor.executemany(self._sql["drop_text"], [(address,) for address in uses])
        cursor.execute(self._sql["delete_records"], log)
        cursor.execute(self._sql["delete_turns"], (id,))
        cursor.execute(self._sql["delete_session"], (id,))
        if cursor.execute(self._sql["has_tables"]).fetchone():
            for table in _TABLES:
                cursor.execute(f"DELETE FROM agent_context_{table} WHERE session_id = ?", (id,))
        if indexed:
            # An index without content cannot take out one session's words; searches make it again, one by one.
            drop_index(cursor)
        return before - count_used_bytes(cursor)

    def _count_uses(self, cursor: sqlite3.Connection, first: int, last: int) -> Counter[bytes]:
        """Return how often the records first ... last use which texts."""
        uses: Counter[bytes] = Counter()
        for (texts,) in cursor.execute(self._sql["addresses"], (first, last)):
            uses.update(split_addresses(texts))
        return uses

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> PurgeResult:
        self._file.check_writable()
        before = self._file.read(count_used_bytes)
        if max_bytes is not None and before > max_bytes:
            # The index can be made again; sessions cannot.
            self._file.write(drop_index)
        gone = super().purge(older_than=older_than, max_bytes=max_bytes).sessions
        if not gone:
            return PurgeResult(sessions=(), freed_bytes=0)
        self.compact()
        return PurgeResult(sessions=gone, freed_bytes=max(0, before - self._file.read(count_used_bytes)))

    def _find_node(self, cursor: sqlite3.Connection, family: str, nodes: Sequence[str]) -> Sequence[Any] | None:
        for node in filter(None, reversed(nodes)):
            row: Sequence[Any] | None
            row = cursor.execute(self._sql["locate"], (shorten_node(node), encode_key(family))).fetchone()
            if row is not None:
                return row
        return None

    def _has_lost_session(self, cursor: sqlite3.Connection, nodes: Sequence[str]) -> bool:
        query = self._sql["lost_session"]
        return any(cursor.execute(query, (shorten_node(node),)).fetchone() for node in filter(None, nodes))

    # --- records -------------------------------------------------------------------------------------------------

    def _read_batch(self, cursor: sqlite3.Connection, id: int, after: int, last: int) -> Iterable[tuple[int, Event]]:
        size = _CHUNK if after else _FIRST_CHUNK
        return list(self._read_span(cursor, id, after + 1, min(after + size, last)))

    def _read_span(self, cursor: sqlite3.Connection, id: int, first: int, last: int) -> Iterator[tuple[int, Event]]:
        """Yield those of the records first ... last that are there. Raises CorruptError."""
        base = record_id(id, 0)
        for start, body in cursor.execute(self._sql["rows"], (base + first, base + last)).fetchall():
            for position, event in enumerate(self._unpack(cursor, body), start - base):
                if first <= position <= last:
                    yield position, event

    def _read_records(
        self, cursor: sqlite3.Connection, id: int, positions: Iterable[int]
    ) -> Iterable[tuple[int, Event]]:
        return list(self._iterate_records(cursor, id, positions))

    def _iterate_records(
        self, cursor: sqlite3.Connection, id: int, positions: Iterable[int]
    ) -> Iterator[tuple[int, Event]]:
        for position in positions:
            record = record_id(id, position)
            start, body = cursor.execute(self._sql["row"], (record,)).fetchone() or (0, b"")
            if start // SPAN != record // SPAN:
                raise self._file.make_corrupt_error(f"record {position} of a session is missing")
            (event,) = self._unpack(cursor, body, record - start)
            yield position, event

    def _unpack(self, cursor: sqlite3.Connection, body: bytes, only: int | None = None) -> list[Event]:
        """Return the events of a row, or one of them. Raises CorruptError, StoreError."""
        try:
            return get_packer().unpack(body, partial(fetch_text, cursor), only)
        except CorruptError as error:
            raise self._file.make_corrupt_error(str(error)) from error
        except StoreError as error:
            raise StoreError(f"{self._file.path}: {error}") from error

    # --- search --------------------------------------------------------------------------------------------------

    @contextmanager
    def open_newest_turns(self, session: str, words: Sequence[str]) -> Iterator[Iterator[Turn]]:
        try:
            self._update_index(session)
        except CorruptError:
            raise
        except StoreError:
            # Locked, full or read-only: what can still be read is scanned instead, which finds the same.
            pass
        with self._file.read_transaction() as connection:
            id, _, indexed = self._find_indexed(connection, session)
            candidates = find_candidates(connection, words, record_id(id, 1), record_id(id, indexed))
            positions = (position for (position,) in connection.execute(self._sql["turns_back"], (id,)))
            if candidates is not None:
                positions = (each for each in positions if each > indexed or record_id(id, each) in candidates)
            yield self._extract_turns(self._iterate_records(connection, id, positions))

    def _update_index(self, session: str) -> None:
        """Bring the search index up to a log, where that is worth it and possible. Raises StoreError."""
        id, records, indexed = self._file.read(lambda connection: self._find_indexed(connection, session))
        if records - indexed <= SCANNED or not self._can_index:
            return
        while indexed < records:
            covered = min(indexed + _INDEXED_AT_ONCE, records)
            with self._file.read_transaction() as connection:
                if self._find_session(connection, session)[0] != id:
                    raise missing_session_error(session)
                chunk = list(self._read_span(connection, id, indexed + 1, covered))
            if len(chunk) < covered - indexed:
                raise self._file.make_corrupt_error(f"records of session {session!r} are missing")
            entries = build_entries((record_id(id, position), event) for position, event in chunk)
            with self._file.write_transaction() as connection:
                now, _, indexed_now = self._find_indexed(connection, session)
                if (now, indexed_now) != (id, indexed):
                    return
                add_entries(connection, id, entries, covered)
            indexed = covered

    def _find_indexed(self, cursor: sqlite3.Connection, session: str) -> tuple[int, int, int]:
        """Return id, length and indexed records of a session. Raises UnknownHandle."""
        id, records = self._find_session(cursor, session)
        (indexed,) = cursor.execute(self._sql["indexed"], (id,)).fetchone()
        return id, records, indexed

    # --- the tables for people -------------------------------------------------------------------------------------

    def _show_all_turns(self) -> None:
        """Make the tables, and bring them up to every log, a session at a time."""
        with self._file.write_transaction() as connection:
            for statement in split_statements("sqlite_transcripts.sql"):
                connection.execute(statement)
            behind = connection.execute(self._sql["sessions_behind"]).fetchall()
        for (key,) in behind:
            with self._file.write_transaction() as connection, suppress(UnknownHandle):
                self._show_records(connection, decode_key(key), 0, (), None)

    def _show_records(
        self, cursor: sqlite3.Connection, session: str, after: int, events: Sequence[Event], at: float | None
    ) -> None:
        """Show all records of `session`, of which `events` follow record `after`.

        at: when `events` were written, in seconds since the epoch, for turns without a time of their own.
        """
        id, records = self._find_session(cursor, session)
        (shown,) = cursor.execute(self._sql["progress"], (id,)).fetchone() or (0,)
        new: Iterable[tuple[int, Event]] = enumerate(events, start=after + 1)
        if shown != after or after + len(events) != records:
            new = self._read_span(cursor, id, shown + 1, records)
        for record, event in new:
            self._show_event(cursor, id, session, record, event, at if record > after else None)
        cursor.execute(self._sql["set_progress"], (id, records))

    # --- the file ------------------------------------------------------------------------------------------------

    def _count_stored_bytes(self, cursor: sqlite3.Connection) -> int:
        return count_stored_bytes(cursor)

    def _count_purged_bytes(self, cursor: sqlite3.Connection) -> int:
        return count_used_bytes(cursor)

    def compact(self) -> int:
        self._file.check_writable()
        with self._file.use_connection() as connection:
            before = count_stored_bytes(connection)
            # It takes one page a step, and `execute` takes but one step of what returns no columns.
            connection.executescript("PRAGMA incremental_vacuum")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            return max(0, before - count_stored_bytes(connection))

    def check(self) -> list[Finding]:
        return self._file.read(lambda connection: list(find_damage(connection, self._file.path, get_packer())))

    def check_writes(self, *, is_tried: bool) -> None:
        self._file.check_writes(is_tried=is_tried)


# -- the search index -------------------------------------------------------------------------------------------------


def can_index(connection: sqlite3.Connection) -> bool:
    """Return whether this SQLite has FTS5."""
    options = connection.execute("PRAGMA compile_options").fetchall()
    return ("ENABLE_FTS5",) in options


def build_entries(events: Iterable[tuple[int, Event]]) -> list[tuple[int, str]]:
    """Return what the index is to hold of `events` (with their records' ids); long work that needs no lock."""
    entries = []
    for record, event in events:
        if not isinstance(event, TurnAdded | TurnAmended):
            continue
        words: set[str] = set()
        for _, _, text in list_texts(event.turn):
            words.update(split_words(text))
        trigrams = _list_trigrams(words)
        if trigrams:
            entries.append((record, " ".join(trigrams)))
    return entries


def add_entries(connection: sqlite3.Connection, session: int, entries: Iterable[tuple[int, str]], covered: int) -> None:
    """Put `entries` of session `session` into the index, which then covers its first `covered` records."""
    for statement in split_statements("sqlite_search.sql"):
        connection.execute(statement)
    connection.executemany(_INSERT, entries)
    connection.execute(_COVERED, (covered, session))


def find_candidates(connection: sqlite3.Connection, words: Sequence[str], first: int, last: int) -> set[int] | None:
    """Return ids of the records first ... last that may hold all of `words`; None: the index does not know."""
    asked = sorted(_list_trigrams(words))[:_ASKED]
    if last < first or not asked or not can_index(connection):
        return None
    query = " AND ".join(f'"{letters}"' for letters in asked)
    return {record for (record,) in connection.execute(_FOUND, (query, first, last))}


def drop_index(connection: sqlite3.Connection) -> None:
    """Forget the index; searches make it again. Where SQLite cannot, it stays: ids of sessions are never used twice."""
    if can_index(connection):
        connection.execute("DROP TABLE IF EXISTS trigrams")
        connection.execute("UPDATE sessions SET indexed = 0 WHERE indexed > 0")


def _list_trigrams(words: Iterable[str]) -> set[str]:
    trigrams = set()
    for word in set(words):
        for start in range(len(word) - _RUN + 1):
            trigrams.add(word[start : start + _RUN])
    return trigrams
