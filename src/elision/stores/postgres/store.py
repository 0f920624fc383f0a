"""The protocol in PostgreSQL: a log that is the truth, and tables made from it for people and for searching.

An append is one transaction of two round trips: the session's row is claimed if it still ends where the writer thinks,
which also keeps other writers out, and everything else follows in one go with the commit. Every record has the token
of its append, which is the append's id where it has one. So a commit whose answer was lost is recognized when it is
tried again, by the store or by its caller.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from elision.errors import CorruptError, StoreError
from elision.stores.batch_ids import check_batch_id
from elision.stores.packing import extract_turn, get_packer
from elision.stores.postgres.address import parse_address
from elision.stores.postgres.appends import has_append, make_append, write_append
from elision.stores.postgres.connection import Cursor, PostgresDatabase
from elision.stores.postgres.damage_check import find_damage
from elision.stores.postgres.record_batches import RecordBatch, iterate_events, read_records
from elision.stores.postgres.schema import check_tables, ensure_tables
from elision.stores.postgres.session_fork import create_session
from elision.stores.postgres.session_rows import (
    delete_session,
    find_session_id,
    find_session_row,
    parse_session_row,
    read_number,
)
from elision.stores.postgres.statements import find_statement
from elision.stores.postgres.text_escapes import escape_name, is_escaped_name, unescape_name
from elision.stores.postgres.whole_turns import show_whole_turns
from elision.stores.store import Finding, Footprint, NewSession, PurgeResult, SessionInfo, SpendingLease
from elision.stores.store_base import StoreBase
from elision.stores.store_errors import missing_session_error, stale_writer_error
from elision.trajectory.events import Event
from elision.trajectory.turn import Turn

#: The server cannot be asked for a turn from here on: it is no bigint.
_NO_TURN = 2**63
#: Turns that a search looks at in one go.
_TURNS = 50


def open_postgres(rest: str, *, read_only: bool = False) -> PostgresStore:
    """Open the store at `postgresql:` + `rest`. Raises StoreError, MissingExtra.

    read_only: its tables must be there, and nothing is written.
    """
    database = PostgresDatabase(parse_address(rest), read_only=read_only)
    try:
        if read_only:
            check_tables(database)
        else:
            ensure_tables(database)
    except BaseException:
        database.close()
        raise
    return PostgresStore(database)


class PostgresStore(StoreBase):
    """Sessions in the tables that `database` reaches; any number of processes at once."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._shows_whole = database.address.shows_whole

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        append = make_append(session.key, events, session.shared, at, batch)
        # Not the append's own: a fork's copies have it.
        creation = uuid.uuid4()

        def work(cursor: Cursor) -> int:
            if not has_append(cursor, append):
                create_session(cursor, session, creation, shows_whole=self._shows_whole)
                if append.packed:
                    write_append(cursor, append, shows_whole=self._shows_whole)
            return append.length

        return self._database.write(work, patient=session.shared > 0)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        if not events:
            check_batch_id(batch)
            return self.check_length(session, after)
        append = make_append(session, events, after, at, batch)

        def work(cursor: Cursor) -> int:
            written = write_append(cursor, append, shows_whole=self._shows_whole)
            if not written and not has_append(cursor, append):
                raise stale_writer_error(session, find_session_row(cursor, session)[7], after)
            return append.length

        return self._database.write(work)

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        last = self.length(session)
        return iterate_events(self._database, lambda cursor: find_session_id(cursor, session), after, last)

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        def work(cursor: Cursor) -> RecordBatch:
            id = find_session_id(cursor, session)
            newest = _NO_TURN - 1 if last is None else min(last, _NO_TURN - 1)
            if newest < max(first, 1):
                return read_records(cursor, id, [])
            span = {"id": id, "first": max(first, 1), "last": newest}
            rows = cursor.execute(find_statement("turns"), span).fetchall()
            return read_records(cursor, id, [record for _, record in rows])

        return [extract_turn(event) for _, event in self._database.read(work).unpack_events(get_packer())]

    @contextmanager
    def open_newest_turns(self, session: str, words: Sequence[str]) -> Iterator[Iterator[Turn]]:
        yield self._iterate_newest_turns(session, words)

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        names = {"family": escape_name(family), "nodes": [escape_name(node) for node in nodes]}
        row = self._database.read(lambda cursor: cursor.execute(find_statement("locate"), names).fetchone())
        if row is None:
            lost = self._database.read(lambda cursor: cursor.execute(find_statement("lost_session"), names).fetchone())
            if lost is not None:
                what = "turns of this history are kept, and their session's row is lost"
                raise CorruptError(f"{self._database.name}: {what}")
            return None
        key, turns = row
        if not is_escaped_name(key):
            raise CorruptError(f"{self._database.name}: {key!r} in agent_context_sessions is no session's name")
        return unescape_name(key), turns

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        since = float("-inf") if changed_since is None else changed_since
        query = find_statement("sessions_of_family" if family_prefix else "sessions")
        parameters = {"prefix": escape_name(family_prefix), "since": since}
        rows = self._database.read(lambda cursor: cursor.execute(query, parameters).fetchall())
        sessions = [info for info in map(parse_session_row, rows) if info.changed >= since]
        return sorted(sessions, key=lambda info: (info.changed, info.key), reverse=True)

    def keep_secret(self, fresh: bytes) -> bytes:
        def work(cursor: Cursor) -> bytes:
            cursor.execute(find_statement("keep_secret"), {"secret": fresh})
            row = cursor.execute(find_statement("secret")).fetchone()
            assert row is not None
            return bytes(row[0])

        return self._database.write(work)

    def lease_spending(
        self, key: str, what: str, *, charge: float, amount: float, most: float, period: int = 0, spent: float | None
    ) -> SpendingLease | None:
        row = {"key": escape_name(key), "what": what}

        def work(cursor: Cursor) -> SpendingLease | None:
            if spent is not None:
                cursor.execute(find_statement("open_spending"), {**row, "spent": spent})
            found = cursor.execute(find_statement("spending_locked"), {**row, "length": period}).fetchone()
            if found is None:
                return None
            leased, current, seconds = found
            base = max(0.0, leased + charge)
            granted = max(0.0, min(amount, most - base))
            cursor.execute(find_statement("put_spending"), {**row, "period": current, "leased": base + granted})
            return SpendingLease(granted=granted, total=base + granted, seconds=seconds)

        return self._database.write(work)

    def info(self, session: str) -> SessionInfo:
        return parse_session_row(self._database.read(lambda cursor: find_session_row(cursor, session)))

    def delete(self, session: str) -> None:
        tries = 0

        def work(cursor: Cursor) -> None:
            nonlocal tries
            tries += 1
            row = cursor.execute(find_statement("session_locked"), {"session": escape_name(session)}).fetchone()
            if row is not None:
                delete_session(cursor, row[0])
            elif tries == 1:
                raise missing_session_error(session)

        self._database.write(work, patient=True)

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> PurgeResult:
        self._database.check_writable()
        gone: list[str] = []
        freed = 0
        stored = self._read_total("stored") if max_bytes is not None else 0
        for info in reversed(self.sessions()):
            is_old = older_than is not None and info.changed < older_than
            is_too_much = max_bytes is not None and stored - freed > max_bytes
            if not is_old and not is_too_much:
                continue
            freed_bytes = self._purge_session(info)
            if freed_bytes is not None:
                gone.append(info.key)
                freed += freed_bytes
        return PurgeResult(sessions=tuple(gone), freed_bytes=freed)

    def footprint(self) -> Footprint:
        def work(cursor: Cursor) -> Footprint:
            counts = cursor.execute(find_statement("footprint")).fetchone() or (0,) * 5
            sessions, records, turns, texts, raw = map(int, counts)
            stored = read_number(cursor, "stored")
            return Footprint(
                sessions=sessions, records=records, turns=turns, texts=texts, raw_bytes=raw, stored_bytes=stored
            )

        return self._database.read(work, patient=True)

    def compact(self) -> int:
        if self._shows_whole:
            show_whole_turns(self._database)
        self._database.write(lambda cursor: cursor.execute(find_statement("sweep_all")), patient=True)
        before = self._read_total("disk")
        self._database.rewrite_tables(*_TABLES)
        return max(0, before - self._read_total("disk"))

    def check(self) -> list[Finding]:
        return list(find_damage(self._database, get_packer(), self.sessions()))

    def check_writes(self, *, is_tried: bool) -> None:
        # To ask the server for a transaction's number is to try.
        row = self._database.write(lambda cursor: cursor.execute(find_statement("transaction_number")).fetchone())
        if row is None or row[1] != "off":
            raise StoreError(
                f"{self._database.name}: its transactions are read-only; check default_transaction_read_only"
            )

    def close(self) -> None:
        self._database.close()

    def _iterate_newest_turns(self, session: str, words: Sequence[str]) -> Iterator[Turn]:
        before: int | None = None
        while True:
            turns = self._find_turns(session, words, before)
            yield from turns
            if len(turns) < _TURNS:
                return
            before = turns[-1].index

    def _find_turns(self, session: str, words: Sequence[str], before: int | None) -> list[Turn]:
        """Return the newest turns before `before` of which a piece may hold `words`, newest first."""

        def work(cursor: Cursor) -> RecordBatch:
            id = find_session_id(cursor, session)
            parameters = {"id": id, "words": list(words), "before": before, "limit": _TURNS}
            rows = cursor.execute(find_statement("search"), parameters).fetchall()
            return read_records(cursor, id, [record for _, record in rows])

        turns = [extract_turn(event) for _, event in self._database.read(work).unpack_events(get_packer())]
        return turns[::-1]

    # --- space --------------------------------------------------------------------------------------------------

    def _purge_session(self, info: SessionInfo) -> int | None:
        """Delete a session; return the bytes freed, None if another process wrote to it or deleted it."""

        def work(cursor: Cursor) -> int | None:
            row = cursor.execute(find_statement("session_locked"), {"session": escape_name(info.key)}).fetchone()
            if row is None or row[1] != info.records:
                return None
            return delete_session(cursor, row[0])

        return self._database.write(work, patient=True)

    def _read_total(self, name: str) -> int:
        """Return bytes: `stored` by sessions, or on the server's `disk`."""
        return self._database.read(lambda cursor: read_number(cursor, name), patient=True)


#: All that grow.
_TABLES = tuple(f"agent_context_{name}" for name in ("log", "texts", "uses", "turns", "summaries", "words", "sessions"))
