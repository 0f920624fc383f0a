"""The protocol in PostgreSQL: a log that is the truth, and tables made from it for people and for searching.

An append is one transaction of two round trips: the session's row is claimed if it still ends where the writer thinks,
which also keeps other writers out, and everything else follows in one go with the commit. Every record has the token
of its append, which is the append's id where it has one. So a commit whose answer was lost is recognized when it is
tried again, by the store or by its caller.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from elision.errors import StoreError, UnknownHandle
from elision.stores.packing import Blob, check_batch_id, get_packer, pack_batch_mark
from elision.stores.postgres.address import parse_address
from elision.stores.postgres.column_values import (
    convert_time,
    describe_turn,
    escape_name,
    find_damage,
    find_words_apart,
    is_escaped_name,
    list_words,
    read_batch,
    read_records,
    unescape_name,
)
from elision.stores.postgres.connection import Cursor, PostgresDatabase, create_schema
from elision.stores.sql_dialect import SqlDialect, describe_summary, describe_texts, load_statements, split_statements
from elision.stores.sql_store import SqlAppend, SqlStore
from elision.stores.store import Finding, NewSession, SessionInfo, SpendingLease
from elision.stores.store_errors import (
    missing_session_error,
    missing_store_error,
    session_exists_error,
    short_parent_error,
)
from elision.trajectory.events import Event, PassDecided, TurnAdded, TurnAmended
from elision.trajectory.turn import Turn

SCRIPT = "postgres_schema.sql"
#: Raised with each change of `SCRIPT` once it was released.
VERSION = 1
_SQL: Final = load_statements("postgres")
#: Turns that a search looks at in one go.
_TURNS = 50
#: All tables that grow.
_TABLES = tuple(f"agent_context_{name}" for name in ("log", "texts", "uses", "turns", "summaries", "words", "sessions"))

_DIALECT: Final = SqlDialect(
    name="postgres",
    encode_name=escape_name,
    decode_name=unescape_name,
    # The server cannot be asked for a greater one: it is no bigint.
    biggest_turn=2**63 - 1,
    edits={"mask": ("mask",), "clip": ("clip",), "fold": ("fold",), "whole": ("unfold",)},
    convert_time=convert_time,
    describe_turn=describe_turn,
    list_words=list_words,
)


def open_postgres(rest: str, *, read_only: bool = False) -> PostgresStore:
    """Open the store at `postgresql:` + `rest`. Raises StoreError, MissingExtra.

    read_only: its tables must be there, and nothing is written.
    """
    database = PostgresDatabase(parse_address(rest), read_only=read_only)
    try:
        ensure_tables(database, read_only=read_only)
    except BaseException:
        database.close()
        raise
    return PostgresStore(database)


class PostgresStore(SqlStore[Cursor]):
    """Sessions in the tables that `database` reaches; any number of processes at once."""

    _database: PostgresDatabase

    def __init__(self, database: PostgresDatabase) -> None:
        super().__init__(database, _DIALECT, shows_whole=database.address.shows_whole)

    # --- appends -------------------------------------------------------------------------------------------------

    def _make_append(self, session: str, events: Sequence[Event], after: int, at: float, batch: bytes) -> SqlAppend:
        check_batch_id(batch)
        packer = get_packer()
        packed = [packer.pack(event) for event in events]
        # Without an id it gets one for this call, which may try more than once.
        batch = batch or uuid.uuid4().bytes
        return SqlAppend(session=session, events=events, packed=packed, after=after, at=at, batch=batch)

    def _write_append(self, cursor: Cursor, append: SqlAppend) -> bool:
        claimed = self._claim_log(cursor, append).fetchone()
        if claimed is None:
            return False
        id = claimed[0]
        for blob, words in _collect_texts(append):
            text = {"address": blob.address, "size": blob.size, "packed": blob.packed, "words": words}
            cursor.execute(self._sql["add_text"], text)
            if words:
                cursor.execute(self._sql["add_words_of_text"], (words, blob.address))
            cursor.execute(self._sql["add_use"], (blob.address, id))
        token = uuid.UUID(bytes=append.batch)
        added: int | None = len(append.events)
        pairs = zip(append.events, append.packed, strict=True)
        for position, (event, record) in enumerate(pairs, start=append.after + 1):
            addresses = [blob.address for blob in record.blobs]
            turn = record.turns[0][1] if record.turns else 0
            row = (event.__struct_config__.tag, turn, record.size, token, addresses, record.body, added)
            cursor.execute(self._sql["add_record"], (id, position, *row))
            self._show_event(cursor, id, append.session, position, event, append.at)
            added = None
        return True

    def _find_append(self, cursor: Cursor, append: SqlAppend) -> tuple[int, bytes | None] | None:
        token = uuid.UUID(bytes=append.batch)
        place = {"session": escape_name(append.session), "after": append.after, "token": token}
        row = cursor.execute(self._sql["claimed"], place).fetchone()
        if row is None:
            return None
        return row[0], pack_batch_mark(append.batch, row[1])

    # --- sessions ------------------------------------------------------------------------------------------------

    def _create_session(self, cursor: Cursor, session: NewSession, creation: uuid.UUID) -> None:
        names = {"session": escape_name(session.key), "token": creation}
        origin = {
            "family": escape_name(session.family),
            "parent": escape_name(session.parent),
            "relation": session.relation,
        }
        row = cursor.execute(self._sql["create"], {**names, **origin, "at": session.at}).fetchone()
        if row is None:
            if cursor.execute(self._sql["created"], names).fetchone() is None:
                raise session_exists_error(session)
        elif session.shared:
            self._copy_records(cursor, session, row[0])

    def _copy_records(self, cursor: Cursor, session: NewSession, id: int) -> None:
        """Fill session `id`, new and empty, with what it shares with its parent. The server copies rows."""
        names = {"session": escape_name(session.parent), "id": id}
        parent = cursor.execute(self._sql["parent"], names).fetchone()
        if parent is None:
            raise missing_session_error(session.parent)
        if session.shared > parent[1]:
            raise short_parent_error(session, parent[1])
        asked = {"id": id, "parent": parent[0], "shared": session.shared, "session": escape_name(session.key)}
        for name in ("fork_log", "fork_uses", "fork_counts", "fork_turns", "fork_words", "fork_summaries"):
            cursor.execute(self._sql[name], asked)
        # Turns that the parent amended or hid after the shared records are made again, from the log.
        stale = cursor.execute(self._sql["fork_stale"], {"id": id}).fetchall()
        if not stale:
            return
        decisions = cursor.execute(self._sql["fork_decisions"], {"id": id}).fetchall()
        positions = sorted([position for _, position in stale] + [position for (position,) in decisions])
        for position, event in self._read_records(cursor, id, positions):
            self._show_event(cursor, id, session.key, position, event, session.at)

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        # The server would sort names as they are written there.
        found = super().sessions(family_prefix=family_prefix, changed_since=changed_since)
        return sorted(found, key=lambda info: (info.changed, info.key), reverse=True)

    def _delete_session(self, cursor: Cursor, id: int) -> int:
        freed = self._read_number(cursor, "session_bytes", {"id": id})
        addresses = [row[0] for row in cursor.execute(self._sql["used_by"], {"id": id}).fetchall()]
        cursor.execute(self._sql["delete"], {"id": id})
        return freed + self._read_number(cursor, "sweep", {"addresses": addresses})

    def _find_node(self, cursor: Cursor, family: str, nodes: Sequence[str]) -> Sequence[Any] | None:
        names = {"family": escape_name(family), "nodes": [escape_name(node) for node in nodes]}
        row = cursor.execute(self._sql["locate"], names).fetchone()
        if row is not None and not is_escaped_name(row[0]):
            what = f"{row[0]!r} in agent_context_sessions is not a session name"
            raise self._database.make_corrupt_error(what)
        return row

    def _has_lost_session(self, cursor: Cursor, nodes: Sequence[str]) -> bool:
        names = {"nodes": [escape_name(node) for node in nodes]}
        return cursor.execute(self._sql["lost_session"], names).fetchone() is not None

    # --- records -------------------------------------------------------------------------------------------------

    def _read_batch(self, cursor: Cursor, id: int, after: int, last: int) -> Iterable[tuple[int, Event]]:
        return read_batch(cursor, id, after, last).unpack_events()

    def _read_records(self, cursor: Cursor, id: int, positions: Sequence[int]) -> Iterable[tuple[int, Event]]:
        return read_records(cursor, id, positions).unpack_events()

    @contextmanager
    def open_newest_turns(self, session: str, words: Sequence[str]) -> Iterator[Iterator[Turn]]:
        yield self._iterate_newest_turns(session, words)

    def _iterate_newest_turns(self, session: str, words: Sequence[str]) -> Iterator[Turn]:
        """Yield turns of which a piece may hold `words`, newest first, so many a transaction."""
        before: int | None = None

        def work(cursor: Cursor) -> Iterable[tuple[int, Event]]:
            id, _ = self._find_session(cursor, session)
            asked = {"id": id, "words": list(words), "before": before, "limit": _TURNS}
            rows = cursor.execute(self._sql["search"], asked).fetchall()
            return self._read_records(cursor, id, [record for (record,) in rows])

        while True:
            turns = list(self._extract_turns(self._database.read(work)))
            # Records are read in the order of the log.
            yield from reversed(turns)
            if len(turns) < _TURNS:
                return
            before = turns[0].index

    # --- for all gateways ------------------------------------------------------------------------------------------

    def keep_secret(self, fresh: bytes) -> bytes:
        def work(cursor: Cursor) -> bytes:
            cursor.execute(self._sql["keep_secret"], {"secret": fresh})
            row = cursor.execute(self._sql["secret"]).fetchone()
            assert row is not None
            return bytes(row[0])

        return self._database.write(work)

    def lease_spending(
        self, key: str, what: str, *, charge: float, amount: float, most: float, period: int = 0, spent: float | None
    ) -> SpendingLease | None:
        row = {"key": escape_name(key), "what": what}

        def work(cursor: Cursor) -> SpendingLease | None:
            if spent is not None:
                cursor.execute(self._sql["open_spending"], {**row, "spent": spent})
            found = cursor.execute(self._sql["spending_locked"], {**row, "length": period}).fetchone()
            if found is None:
                return None
            leased, current, seconds = found
            base = max(0.0, leased + charge)
            granted = max(0.0, min(amount, most - base))
            cursor.execute(self._sql["put_spending"], {**row, "period": current, "leased": base + granted})
            return SpendingLease(granted=granted, total=base + granted, seconds=seconds)

        return self._database.write(work)

    # --- the server ------------------------------------------------------------------------------------------------

    def check_writes(self, *, is_tried: bool) -> None:
        # To ask the server for a transaction's number is to try.
        row = self._database.write(lambda cursor: cursor.execute(self._sql["transaction_number"]).fetchone())
        if row is None or row[1] != "off":
            raise StoreError(
                f"{self._database.name}: its transactions are read-only; check default_transaction_read_only"
            )

    def compact(self) -> int:
        if self._shows_whole:
            self._show_whole_turns()
        self._database.write(lambda cursor: cursor.execute(self._sql["sweep_all"]), patient=True)
        before = self._read_disk_bytes()
        self._database.rewrite_tables(*_TABLES)
        return max(0, before - self._read_disk_bytes())

    def _show_whole_turns(self) -> None:
        """Write whole texts into the rows of turns, and the summaries, that `turns=short` cut."""
        names = self._database.read(lambda cursor: cursor.execute(self._sql["cut_sessions"]).fetchall())
        for session in [unescape_name(name) for (name,) in names]:
            # It may be deleted meanwhile.
            with suppress(UnknownHandle):
                done, after = -1, 0
                while done < after:
                    work = partial(self._show_whole_batch, session=session, after=after)
                    done, after = after, self._database.write(work, patient=True)

    def _show_whole_batch(self, cursor: Cursor, session: str, after: int) -> int:
        """Show the next records after `after`; return the last one shown, or `after` where there are no more."""
        id, last = self._find_session(cursor, session)
        for position, event in self._read_batch(cursor, id, after, last):
            place = {"id": id, "record": position}
            if isinstance(event, TurnAdded | TurnAmended):
                texts = describe_texts(event.turn)
                cursor.execute(self._sql["show_whole"], {**place, "turn": event.turn.index, **texts})
            elif isinstance(event, PassDecided) and event.summary is not None:
                summary = describe_summary(event.summary)
                cursor.execute(self._sql["put_summary"], {**place, "call": event.call, **summary})
            after = position
        return after

    def check(self) -> list[Finding]:
        return list(find_damage(self._database, get_packer(), self.sessions()))

    def _count_stored_bytes(self, cursor: Cursor) -> int:
        return self._read_number(cursor, "stored")

    def _read_disk_bytes(self) -> int:
        return self._database.read(lambda cursor: self._read_number(cursor, "disk"), patient=True)

    def _read_number(self, cursor: Cursor, name: str, parameters: Mapping[str, Any] | None = None) -> int:
        row = cursor.execute(self._sql[name], parameters or {}).fetchone()
        return int(row[0]) if row else 0


def _collect_texts(append: SqlAppend) -> list[tuple[Blob, str]]:
    """Return each large text once, with its words.

    All writers take them in one order, so that no two of them wait for each other.
    """
    blobs: dict[bytes, Blob] = {}
    for record in append.packed:
        blobs.update((blob.address, blob) for blob in record.blobs)
    words: dict[bytes, str] = {}
    for event in append.events:
        words.update(find_words_apart(event))
    return [(blobs[address], words.get(address, "")) for address in sorted(blobs)]


# -- the tables -------------------------------------------------------------------------------------------------------


def ensure_tables(database: PostgresDatabase, *, read_only: bool) -> None:
    """Make the tables, unless they are there; any number of processes may do so at once.

    read_only: nothing is written. Raises StoreError for tables of another version, and MissingStore for none.
    """
    schema = database.address.schema
    version = database.read(lambda cursor: _read_version(cursor, schema))
    if version == 0 and read_only:
        raise missing_store_error(f"{database.name}, schema {schema!r}")
    if version == 0:
        version = database.write(lambda cursor: _make_tables(cursor, schema), patient=True)
    if version != VERSION:
        raise StoreError(
            f"{database.name}: the tables in schema {schema!r} are version {version}, this Elision knows {VERSION}; "
            "use the elision that made them, or name another schema: ?schema=NAME"
        )


def _read_version(cursor: Cursor, schema: str) -> int:
    """Return the version of the tables in `schema`; 0 if there are none."""
    if not _read_value(cursor, "schema_versioned", schema):
        return 0
    return int(_read_value(cursor, "schema_version", schema) or 0)


def _make_tables(cursor: Cursor, schema: str) -> int:
    """Make them under a lock that other processes wait for; the second one finds them made. Return their version."""
    cursor.execute(_SQL["schema_lock"], {"schema": schema})
    found = _read_version(cursor, schema)
    if found:
        return found
    if not _read_value(cursor, "schema_exists", schema):
        create_schema(cursor, schema)
    for statement in split_statements(SCRIPT):
        cursor.execute(statement)
    cursor.execute(_SQL["schema_set_version"], {"version": VERSION})
    return VERSION


def _read_value(cursor: Cursor, name: str, schema: str) -> Any:
    row = cursor.execute(_SQL[name], {"schema": schema}).fetchone()
    return row[0] if row else None
