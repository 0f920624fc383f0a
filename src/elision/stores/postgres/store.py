"""The protocol in PostgreSQL: a log that is the truth, and tables made from it for people and for searching.

An append is one transaction of two round trips: the session's row is claimed if it still ends where the writer thinks,
which also keeps other writers out, and everything else follows in one go with the commit. Every record has the token
of its append, which is the append's id where it has one. So a commit whose answer was lost is recognized when it is
tried again, by the store or by its caller.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from elision.errors import CorruptError, StoreError, UnknownHandle
from elision.stores.batch_ids import check_batch_id, pack_batch_mark, recognize_append
from elision.stores.excerpts import split_words
from elision.stores.packing import Blob, PackedEvent, Packer
from elision.stores.postgres.address import parse_address
from elision.stores.postgres.connection import Cursor, PostgresDatabase
from elision.stores.postgres.damage_check import find_damage
from elision.stores.postgres.readable_tables import describe_summary, describe_texts, find_words_apart, list_changes
from elision.stores.postgres.record_batches import RecordBatch, read_batches, read_records
from elision.stores.postgres.schema import ensure_tables
from elision.stores.postgres.session_fork import copy_records
from elision.stores.postgres.statements import find_statement
from elision.stores.postgres.text_escapes import escape_name, unescape_name
from elision.stores.store import Finding, Footprint, Hit, NewSession, PurgeResult, Relation, SessionInfo
from elision.stores.store_errors import (
    missing_observation_error,
    missing_session_error,
    session_exists_error,
    stale_writer_error,
)
from elision.stores.text_search import find_hits
from elision.trajectory.events import Event, PassDecided, TurnAdded, TurnAmended
from elision.trajectory.plan import Key
from elision.trajectory.turn import Observation, Turn

#: Commits that survive a crash of the server.
_DURABLE = frozenset({"on", "remote_apply"})
#: Turns that a search looks at in one go.
_TURNS = 50


def open_postgres(rest: str) -> PostgresStore:
    """Open the store at `postgresql:` + `rest`. Raises StoreError, MissingExtra."""
    database = PostgresDatabase(parse_address(rest))
    try:
        ensure_tables(database)
    except BaseException:
        database.close()
        raise
    return PostgresStore(database)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Append:
    """One append as it is written and recognized. token: its id, or a new one for this call."""

    session: str
    events: Sequence[Event]
    packed: Sequence[PackedEvent]
    after: int
    at: float
    token: uuid.UUID

    @property
    def length(self) -> int:
        return self.after + len(self.packed)


class PostgresStore:
    """Sessions in the tables that `database` reaches; any number of processes at once."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self._local = threading.local()
        self._shows_whole = database.address.shows_whole

    def create(self, session: NewSession) -> None:
        token = uuid.uuid4()
        self._database.write(partial(self._create_session, session=session, token=token), patient=session.shared > 0)

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        append = self._make_append(session.key, events, session.shared, at, batch)
        # Not the append's own: a fork's copies have it.
        creation = uuid.uuid4()

        def work(cursor: Cursor) -> int:
            if not self._has_append(cursor, append):
                self._create_session(cursor, session, creation)
                if events:
                    self._write_append(cursor, append)
            return append.length

        return self._database.write(work, patient=session.shared > 0)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        if not events:
            check_batch_id(batch)
            return self._check_length(session, after)
        append = self._make_append(session, events, after, at, batch)

        def work(cursor: Cursor) -> int:
            if not self._write_append(cursor, append) and not self._has_append(cursor, append):
                raise stale_writer_error(session, _find_row(cursor, session)[7], after)
            return append.length

        return self._database.write(work)

    def length(self, session: str) -> int:
        return self.info(session).records

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        last = self.length(session)
        return self._iterate_events(session, after, last)

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        def work(cursor: Cursor) -> RecordBatch:
            id = _find_id(cursor, session)
            rows = cursor.execute(find_statement("turns"), {"id": id, "first": first, "last": last}).fetchall()
            return read_records(cursor, id, [record for _, record in rows])

        return [_extract_turn(event) for _, event in self._database.read(work).unpack_events(self._packer)]

    def observation(self, session: str, key: Key) -> Observation:
        # The server cannot be asked for a turn beyond a bigint.
        if not (1 <= key[0] < 2**63 and key[1] >= 1):
            self.length(session)
            raise missing_observation_error(session, key)
        turns = self.turns(session, key[0], key[0])
        if not turns or key[1] > len(turns[0].observations):
            raise missing_observation_error(session, key)
        return turns[0].observations[key[1] - 1]

    def search(self, session: str, query: str, limit: int = 20) -> list[Hit]:
        words = list(dict.fromkeys(split_words(query)))
        if not words or limit < 1:
            self.length(session)
            return []
        hits: list[Hit] = []
        before: int | None = None
        while len(hits) < limit:
            turns = self._find_turns(session, words, before)
            for turn in turns:
                hits.extend(find_hits(session, turn, words))
            if len(turns) < _TURNS:
                break
            before = turns[-1].index
        return hits[:limit]

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        names = {"family": escape_name(family), "nodes": [escape_name(node) for node in nodes]}
        row = self._database.read(lambda cursor: cursor.execute(find_statement("locate"), names).fetchone())
        if row is None:
            return None
        return unescape_name(row[0]), row[1]

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        since = float("-inf") if changed_since is None else changed_since
        query = find_statement("sessions_of_family" if family_prefix else "sessions")
        parameters = {"prefix": escape_name(family_prefix), "since": since}
        rows = self._database.read(lambda cursor: cursor.execute(query, parameters).fetchall())
        sessions = [info for info in map(_parse_session_row, rows) if info.changed >= since]
        return sorted(sessions, key=lambda info: (info.changed, info.key), reverse=True)

    def keep_secret(self, fresh: bytes) -> bytes:
        def work(cursor: Cursor) -> bytes:
            cursor.execute(find_statement("keep_secret"), {"secret": fresh})
            row = cursor.execute(find_statement("secret")).fetchone()
            assert row is not None
            return bytes(row[0])

        return self._database.write(work)

    def info(self, session: str) -> SessionInfo:
        return _parse_session_row(self._database.read(lambda cursor: _find_row(cursor, session)))

    def delete(self, session: str) -> None:
        tries = 0

        def work(cursor: Cursor) -> None:
            nonlocal tries
            tries += 1
            row = cursor.execute(find_statement("session_locked"), {"session": escape_name(session)}).fetchone()
            if row is not None:
                _delete_session(cursor, row[0])
            elif tries == 1:
                raise missing_session_error(session)

        self._database.write(work, patient=True)

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> PurgeResult:
        gone: list[str] = []
        freed = 0
        stored = self._count_stored_bytes() if max_bytes is not None else 0
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
            stored = _read_number(cursor, "stored")
            return Footprint(
                sessions=sessions, records=records, turns=turns, texts=texts, raw_bytes=raw, stored_bytes=stored
            )

        return self._database.read(work, patient=True)

    def compact(self) -> int:
        if self._shows_whole:
            self._show_whole_turns()
        self._database.write(lambda cursor: cursor.execute(find_statement("sweep_all")), patient=True)
        before = self._count_disk_bytes()
        self._database.maintain(*_VACUUMS)
        return max(0, before - self._count_disk_bytes())

    def check(self) -> list[Finding]:
        return list(find_damage(self._database, self._packer, self.sessions()))

    def close(self) -> None:
        self._database.close()

    # --- writing ------------------------------------------------------------------------------------------------

    def _make_append(self, session: str, events: Sequence[Event], after: int, at: float, batch: bytes) -> _Append:
        """Return an append to `session`, packed. Raises StoreError for an id that is none."""
        check_batch_id(batch)
        return _Append(
            session=session,
            events=events,
            packed=[self._packer.pack(event) for event in events],
            after=after,
            at=at,
            token=uuid.UUID(bytes=batch) if batch else uuid.uuid4(),
        )

    def _create_session(self, cursor: Cursor, session: NewSession, token: uuid.UUID) -> None:
        """Begin a session, with a copy of what it shares, unless the call with `token` did. Raises ConflictError."""
        names = {"session": escape_name(session.key), "token": token}
        origin = {
            "family": escape_name(session.family),
            "parent": escape_name(session.parent),
            "relation": session.relation,
        }
        row = cursor.execute(find_statement("create"), {**names, **origin, "at": session.at}).fetchone()
        if row is None:
            if cursor.execute(find_statement("created"), names).fetchone() is None:
                raise session_exists_error(session)
        elif session.shared:
            copy_records(cursor, session, row[0], self._packer, shows_whole=self._shows_whole)

    def _write_append(self, cursor: Cursor, append: _Append) -> bool:
        """Write an append; return False where the log does not end at its place."""
        claim = {
            "session": escape_name(append.session),
            "after": append.after,
            "added": len(append.packed),
            "at": append.at,
            "turn": max(record.turn for record in append.packed),
            "size": sum(record.size for record in append.packed),
        }
        row = cursor.execute(find_statement("claim"), claim).fetchone()
        if row is None:
            return False
        _check_durability(row[1], self._database.name)
        self._write_records(cursor, row[0], append)
        return True

    def _write_records(self, cursor: Cursor, session: int, append: _Append) -> None:
        """Write everything of an append but its claim."""
        for blob, words in _collect_texts(append.events, append.packed):
            cursor.execute(find_statement("add_text"), (blob.address, blob.size, blob.packed, words))
            if words:
                cursor.execute(find_statement("add_words_of_text"), (words, blob.address))
            cursor.execute(find_statement("add_use"), (blob.address, session))
        pairs = zip(append.events, append.packed, strict=True)
        for position, (event, record) in enumerate(pairs, start=append.after + 1):
            addresses = [blob.address for blob in record.blobs]
            row = (session, position, record.kind, record.turn, record.size, append.token, addresses, record.body)
            cursor.execute(find_statement("add_record"), row)
            changes = list_changes(event, session=session, record=position, at=append.at, shows_whole=self._shows_whole)
            for change in changes:
                cursor.execute(find_statement(change.statement), change.parameters)

    def _has_append(self, cursor: Cursor, append: _Append) -> bool:
        """Return whether an earlier try of this append, whose answer was lost, was committed.

        Raises StoreError if it wrote other records.
        """
        place = {
            "session": escape_name(append.session),
            "after": append.after,
            "added": len(append.packed),
            "token": append.token,
        }
        rows = cursor.execute(find_statement("claimed"), place).fetchall()
        if not rows or rows[0][0] != append.after + 1:
            return False
        batch = append.token.bytes
        given = [self._packer.decompress(record.body) for record in append.packed]
        stored = [self._packer.decompress(body) for _, body in rows]
        return recognize_append(append.session, batch, pack_batch_mark(batch, len(rows)), given, lambda: stored)

    def _check_length(self, session: str, after: int) -> int:
        length = self.length(session)
        if length != after:
            raise stale_writer_error(session, length, after)
        return length

    # --- reading ------------------------------------------------------------------------------------------------

    def _iterate_events(self, session: str, after: int, last: int) -> Iterator[Event]:
        for batch in read_batches(self._database, lambda cursor: _find_id(cursor, session), after, last):
            yield from (event for _, event in batch.unpack_events(self._packer))

    def _find_turns(self, session: str, words: Sequence[str], before: int | None) -> list[Turn]:
        """Return the newest turns before `before` of which a piece may hold `words`, newest first."""

        def work(cursor: Cursor) -> RecordBatch:
            id = _find_id(cursor, session)
            parameters = {"id": id, "words": list(words), "before": before, "limit": _TURNS}
            rows = cursor.execute(find_statement("search"), parameters).fetchall()
            return read_records(cursor, id, [record for _, record in rows])

        turns = [_extract_turn(event) for _, event in self._database.read(work).unpack_events(self._packer)]
        return turns[::-1]

    # --- space --------------------------------------------------------------------------------------------------

    def _purge_session(self, info: SessionInfo) -> int | None:
        """Delete a session; return the bytes freed, None if another process wrote to it or deleted it."""

        def work(cursor: Cursor) -> int | None:
            row = cursor.execute(find_statement("session_locked"), {"session": escape_name(info.key)}).fetchone()
            if row is None or row[1] != info.records:
                return None
            return _delete_session(cursor, row[0])

        return self._database.write(work, patient=True)

    def _show_whole_turns(self) -> None:
        """Write whole texts into the rows of turns, and the summaries, that an older version or `turns=short` cut."""
        rows = self._database.read(lambda cursor: cursor.execute(find_statement("cut_sessions")).fetchall())
        for (name,) in rows:
            # It may be deleted meanwhile.
            with suppress(UnknownHandle):
                self._show_whole_session(unescape_name(name))

    def _show_whole_session(self, session: str) -> None:
        for batch in read_batches(self._database, partial(_find_id, session=session), 0, self.length(session)):
            self._database.write(partial(self._show_whole_batch, session=session, batch=batch), patient=True)

    def _show_whole_batch(self, cursor: Cursor, session: str, batch: RecordBatch) -> None:
        id = _find_id(cursor, session)
        for position, event in batch.unpack_events(self._packer):
            place = {"id": id, "record": position}
            if isinstance(event, TurnAdded | TurnAmended):
                texts = describe_texts(event.turn)
                cursor.execute(find_statement("show_whole"), {**place, "turn": event.turn.index, **texts})
            elif isinstance(event, PassDecided) and event.summary is not None:
                summary = describe_summary(event.summary)
                cursor.execute(find_statement("put_summary"), {**place, "call": event.call, **summary})

    def _count_stored_bytes(self) -> int:
        return self._database.read(lambda cursor: _read_number(cursor, "stored"), patient=True)

    def _count_disk_bytes(self) -> int:
        return self._database.read(lambda cursor: _read_number(cursor, "disk"), patient=True)

    @property
    def _packer(self) -> Packer:
        """Return this thread's packer."""
        packer: Packer | None = getattr(self._local, "packer", None)
        if packer is None:
            packer = self._local.packer = Packer()
        return packer


_VACUUMS = (
    "vacuum_log",
    "vacuum_texts",
    "vacuum_uses",
    "vacuum_turns",
    "vacuum_summaries",
    "vacuum_words",
    "vacuum_sessions",
)


def _collect_texts(events: Sequence[Event], packed: Sequence[PackedEvent]) -> list[tuple[Blob, str]]:
    """Return each large text once, with its words.

    All writers take them in one order, so that no two of them wait for each other.
    """
    blobs: dict[bytes, Blob] = {}
    for record in packed:
        blobs.update((blob.address, blob) for blob in record.blobs)
    words: dict[bytes, str] = {}
    for event in events:
        words.update(find_words_apart(event))
    return [(blobs[address], words.get(address, "")) for address in sorted(blobs)]


def _check_durability(setting: str, place: str) -> None:
    if setting not in _DURABLE:
        raise StoreError(
            f"{place}: synchronous_commit is {setting!r} in the middle of a session; something between here and the "
            "server (a pooler?) changes settings: give Elision a connection of its own"
        )


def _delete_session(cursor: Cursor, id: int) -> int:
    """Delete a session and the texts that only it used; return the bytes freed."""
    freed = _read_number(cursor, "session_bytes", {"id": id})
    addresses = [row[0] for row in cursor.execute(find_statement("used_by"), {"id": id}).fetchall()]
    cursor.execute(find_statement("delete"), {"id": id})
    return freed + _read_number(cursor, "sweep", {"addresses": addresses})


def _find_id(cursor: Cursor, session: str) -> int:
    id: int = _find_row(cursor, session)[0]
    return id


def _find_row(cursor: Cursor, session: str) -> tuple[Any, ...]:
    row = cursor.execute(find_statement("session"), {"session": escape_name(session)}).fetchone()
    if row is None:
        raise missing_session_error(session)
    return row


def _read_number(cursor: Cursor, name: str, parameters: dict[str, Any] | None = None) -> int:
    row = cursor.execute(find_statement(name), parameters or {}).fetchone()
    if row:
        return int(row[0])
    return 0


def _extract_turn(event: Event) -> Turn:
    if not isinstance(event, TurnAdded | TurnAmended):
        raise CorruptError(f"a record that should hold a turn holds {type(event).__name__}")
    return event.turn


def _parse_session_row(row: Iterable[Any]) -> SessionInfo:
    _, key, family, parent, relation, begun, changed, records, turns, raw_bytes = row
    how: Relation = relation
    return SessionInfo(
        key=unescape_name(key),
        family=unescape_name(family),
        parent=unescape_name(parent),
        relation=how,
        begun=begun,
        changed=changed,
        records=records,
        turns=turns,
        raw_bytes=raw_bytes,
    )
