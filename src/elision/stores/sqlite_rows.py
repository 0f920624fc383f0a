"""The rows of a SQLite store: every statement but the search index's, within a transaction that is open.

A row has the records of one append as `packing` packs them, or some of a large one.
Large texts are kept once, with a count of their uses, and go with the last of them. A record's id is its session's
times 2^32 plus its number, and a row's that of its first record, so a log is one run of one table. Keys are bytes:
SQLite's own text ends at a NUL in places, and has no lone surrogates.
"""

from __future__ import annotations

import operator
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from elision.stores import sqlite_search, sqlite_transcripts
from elision.stores.batch_ids import pack_batch_mark
from elision.stores.packing import Blob, PackedRecords, hash_text, is_text
from elision.stores.store import NewSession, SessionInfo
from elision.stores.store_errors import (
    missing_session_error,
    session_exists_error,
    short_parent_error,
    stale_writer_error,
)

#: Records that a session may have.
SPAN: Final = 1 << 32
#: Sessions that a file may have.
MOST_SESSIONS: Final = (1 << 31) - 1
#: Bytes of an address, and of a node's name as it is stored.
_ADDRESS = 32
_NODE = 16

_FOUND: Final = "SELECT id, records, indexed FROM sessions WHERE key = ?"
#: The next id, as AUTOINCREMENT would choose it, but for ids that no session can have: one is damaged then.
_CREATE: Final = f"""
    INSERT INTO sessions (id, key, family, parent, relation, begun, changed, records, turns, raw_bytes)
    VALUES (
      1 + max(
        coalesce((SELECT max(id) FROM sessions WHERE id < {MOST_SESSIONS}), 0),
        coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = 'sessions' AND seq < {MOST_SESSIONS}), 0)),
      ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_ADVANCE: Final = """
    UPDATE sessions SET records = records + ?, turns = max(turns, ?), raw_bytes = raw_bytes + ?, changed = ?
    WHERE key = ? AND records = ?"""
_DELETE_SESSION: Final = "DELETE FROM sessions WHERE id = ?"
_COLUMNS: Final = "SELECT key, family, parent, relation, begun, changed, records, turns, raw_bytes FROM sessions"
INFO: Final = f"{_COLUMNS} WHERE key = ?"
_NEWEST_FIRST: Final = f"{_COLUMNS} WHERE changed >= ? ORDER BY changed DESC, key DESC"
_OF_FAMILY: Final = f"{_COLUMNS} WHERE family >= ? AND family < ? AND changed >= ? ORDER BY changed DESC, key DESC"
OLDEST: Final = "SELECT key, changed FROM sessions ORDER BY changed, key LIMIT 1"
FOOTPRINT: Final = """
    SELECT count(*), coalesce(sum(records), 0), coalesce(sum(raw_bytes), 0),
      (SELECT count(*) FROM (SELECT DISTINCT session, turn FROM turns)), (SELECT count(*) FROM texts)
    FROM sessions"""

_WRITE_ROW: Final = """
    INSERT INTO records (id, body, texts, raw_bytes, batch)
    SELECT (id << 32) + ?, ?, ?, ?, ? FROM sessions WHERE key = ?"""
MARK: Final = "SELECT batch FROM records WHERE id = ?"
#: The row that has a record, if the record is there, and those from it on.
ROW: Final = "SELECT id, body FROM records WHERE id <= ? ORDER BY id DESC LIMIT 1"
ROWS: Final = """
    SELECT id, body FROM records
    WHERE id BETWEEN (SELECT max(id) FROM records WHERE id <= ?) AND ? ORDER BY id"""
_NEXT_ROW: Final = "SELECT min(id) FROM records WHERE id > ?"
_COPY_RECORDS: Final = """
    INSERT INTO records (id, body, texts, raw_bytes)
    SELECT id + ?, body, texts, raw_bytes FROM records WHERE id BETWEEN ? AND ?"""
_RAW_BYTES: Final = "SELECT coalesce(sum(raw_bytes), 0) FROM records WHERE id BETWEEN ? AND ?"
_ADDRESSES: Final = "SELECT texts FROM records WHERE id BETWEEN ? AND ? AND texts IS NOT NULL"
_DELETE_RECORDS: Final = "DELETE FROM records WHERE id BETWEEN ? AND ?"

_TURN: Final = "INSERT INTO turns (session, turn, number, node) VALUES (?, ?, ?, ?)"
_COPY_TURNS: Final = """
    INSERT INTO turns (session, turn, number, node)
    SELECT ?, turn, number, node FROM turns WHERE session = ? AND number <= ?"""
_NEWEST_TURN: Final = "SELECT coalesce(max(turn), 0) FROM turns WHERE session = ? AND number <= ?"
_DELETE_TURNS: Final = "DELETE FROM turns WHERE session = ?"
_NUMBERS: Final = """
    SELECT max(number) FROM turns WHERE session = ? AND turn BETWEEN ? AND ? GROUP BY turn ORDER BY turn"""
_NUMBERS_BACK: Final = "SELECT max(number) FROM turns WHERE session = ? GROUP BY turn ORDER BY turn DESC"
_LOCATE: Final = """
    SELECT sessions.key, turns.turn FROM turns JOIN sessions ON sessions.id = turns.session
    WHERE turns.node = ? AND sessions.family = ? AND NOT EXISTS (
      SELECT 1 FROM turns AS newer
      WHERE newer.session = turns.session AND newer.turn = turns.turn AND newer.number > turns.number)
    ORDER BY sessions.changed DESC, sessions.key DESC, turns.turn DESC LIMIT 1"""
_LOST: Final = """
    SELECT 1 FROM turns WHERE node = ? AND session NOT IN (SELECT id FROM sessions) LIMIT 1"""

_USE: Final = "UPDATE texts SET uses = uses + ? WHERE address = ?"
_MOVE_TEXT: Final = "UPDATE texts SET place = ? WHERE address = ?"
_KEEP_BODY: Final = "INSERT INTO bodies (body) VALUES (?)"
_KEEP_TEXT: Final = "INSERT INTO texts (address, place, uses) VALUES (?, ?, 1)"
FETCH: Final = "SELECT body FROM bodies WHERE place = (SELECT place FROM texts WHERE address = ?)"
_DROP_BODY: Final = "DELETE FROM bodies WHERE place = (SELECT place FROM texts WHERE address = ? AND uses <= 0)"
_DROP_TEXT: Final = "DELETE FROM texts WHERE address = ? AND uses <= 0"


# --- sessions ----------------------------------------------------------------------------------------------------


def find_session(connection: sqlite3.Connection, key: str) -> tuple[int, int, int]:
    """Return id, length and indexed records of a session. Raises UnknownHandle."""
    found: tuple[int, int, int] | None = connection.execute(_FOUND, (encode_key(key),)).fetchone()
    if found is None:
        raise missing_session_error(key)
    return found


def create_session(
    connection: sqlite3.Connection, session: NewSession, split_row: Callable[[bytes, int], PackedRecords]
) -> None:
    """Begin a session with a copy of what it shares.

    split_row: returns the first so many records of a row, from its body. Raises ConflictError, UnknownHandle.
    """
    if connection.execute(_FOUND, (encode_key(session.key),)).fetchone():
        raise session_exists_error(session)
    names = list(map(encode_key, (session.key, session.family, session.parent)))
    row = (*names, session.relation, session.at, session.at, session.shared)
    if not session.shared:
        connection.execute(_CREATE, (*row, 0, 0))
        return
    parent, records, _ = find_session(connection, session.parent)
    if session.shared > records:
        raise short_parent_error(session, records)
    first = record_id(parent, 1)
    last = record_id(parent, session.shared)
    cut = None
    (after,) = connection.execute(_NEXT_ROW, (last,)).fetchone()
    if session.shared < records and after != last + 1:
        start, body = connection.execute(ROW, (last,)).fetchone()
        cut = split_row(body, last + 1 - start)
        last = start - 1
    raw_bytes = connection.execute(_RAW_BYTES, (first, last)).fetchone()[0] + (cut.size if cut else 0)
    turns = connection.execute(_NEWEST_TURN, (parent, session.shared)).fetchone()[0]
    new = connection.execute(_CREATE, (*row, turns, raw_bytes)).lastrowid or 0
    connection.execute(_COPY_RECORDS, (record_id(new, 0) - record_id(parent, 0), first, last))
    uses = _count_uses(connection, first, last)
    connection.executemany(_USE, [(count, address) for address, count in uses.items()])
    if cut:
        _write_row(connection, names[0], last + 1 - record_id(parent, 0), cut, None)
    connection.execute(_COPY_TURNS, (new, parent, session.shared))


def delete_session(connection: sqlite3.Connection, key: str) -> None:
    session, records, indexed = find_session(connection, key)
    log = (record_id(session, 1), record_id(session, records))
    uses = _count_uses(connection, *log)
    connection.executemany(_USE, [(-count, address) for address, count in uses.items()])
    connection.executemany(_DROP_BODY, [(address,) for address in uses])
    connection.executemany(_DROP_TEXT, [(address,) for address in uses])
    connection.execute(_DELETE_RECORDS, log)
    connection.execute(_DELETE_TURNS, (session,))
    connection.execute(_DELETE_SESSION, (session,))
    sqlite_transcripts.delete_rows(connection, session)
    if indexed:
        # An index without content cannot take out one session's words; searches make it again, session by session.
        sqlite_search.drop_index(connection)


def select_sessions(connection: sqlite3.Connection, family_prefix: str, since: float) -> Iterator[Sequence[Any]]:
    """Yield rows for `parse_session_row`, the newest first."""
    if not family_prefix:
        return connection.execute(_NEWEST_FIRST, (since,))
    prefix = encode_key(family_prefix)
    # No byte of UTF-8 is as great.
    return connection.execute(_OF_FAMILY, (prefix, prefix + b"\xff", since))


def locate_node(connection: sqlite3.Connection, family: str, node: str) -> tuple[str, int] | None:
    row = connection.execute(_LOCATE, (_shorten_node(node), encode_key(family))).fetchone()
    if row is None:
        return None
    # Once a bit of the file has changed, any column may hold a value of another type.
    return decode_key(row[0]), operator.index(row[1])


def has_lost_session(connection: sqlite3.Connection, nodes: Sequence[str]) -> bool:
    """Return whether a turn that one of `nodes` names is kept, and its session is not: both are deleted at once."""
    found = (connection.execute(_LOST, (_shorten_node(node),)).fetchone() for node in filter(None, nodes))
    return any(found)


def parse_session_row(row: Sequence[Any]) -> SessionInfo:
    """Return the session of a row of `INFO`."""
    key, family, parent, relation, begun, changed, records, turns, raw_bytes = row
    return SessionInfo(
        key=decode_key(key),
        family=decode_key(family),
        parent=decode_key(parent),
        relation=relation,
        begun=begun,
        changed=changed,
        records=records,
        turns=turns,
        raw_bytes=raw_bytes,
    )


# --- records and turns -------------------------------------------------------------------------------------------


def append_records(
    connection: sqlite3.Connection, key: str, packed: Sequence[PackedRecords], after: int, at: float, batch: bytes
) -> None:
    """Write records after record `after`. Raises UnknownHandle, ConflictError.

    batch: id of the append, b"" for none.
    """
    name = encode_key(key)
    added = sum(row.records for row in packed)
    newest = max((turn for row in packed for _, turn, _ in row.turns), default=0)
    raw_bytes = sum(row.size for row in packed)
    if not connection.execute(_ADVANCE, (added, newest, raw_bytes, at, name, after)).rowcount:
        raise stale_writer_error(key, find_session(connection, key)[1], after)
    mark = pack_batch_mark(batch, added) or None
    position = after + 1
    for row in packed:
        session = _write_row(connection, name, position, row, mark)
        turns = [(session, turn, position + number, _shorten_node(node)) for number, turn, node in row.turns]
        connection.executemany(_TURN, turns)
        position += row.records
        mark = None


def list_turn_records(connection: sqlite3.Connection, session: int, first: int, last: int | None) -> list[int]:
    """Return the ids of the records that hold turns first ... last as they are now."""
    if first >= SPAN:
        return []
    newest = SPAN if last is None else min(last, SPAN)
    positions = connection.execute(_NUMBERS, (session, first, newest))
    return [record_id(session, position) for (position,) in positions]


def iterate_newest_turns(
    connection: sqlite3.Connection, session: int, indexed: int, candidates: Collection[int] | None
) -> Iterator[int]:
    """Yield the ids of the records that hold turns as they are now, the newest turn first.

    candidates: of the leading `indexed` records only these; None for all.
    """
    end = record_id(session, indexed)
    for (position,) in connection.execute(_NUMBERS_BACK, (session,)):
        record = record_id(session, position)
        if candidates is None or record > end or record in candidates:
            yield record


def _write_row(
    connection: sqlite3.Connection, key: bytes, position: int, row: PackedRecords, mark: bytes | None
) -> int:
    """Write records of a session from number `position` on; return the session's id."""
    for blob in row.blobs:
        _keep_text(connection, blob)
    texts = b"".join([blob.address for blob in row.blobs]) or None
    written = connection.execute(_WRITE_ROW, (position, row.body, texts, row.size, mark, key))
    return session_of_record(written.lastrowid or 0)


def _keep_text(connection: sqlite3.Connection, blob: Blob) -> None:
    if not connection.execute(_USE, (1, blob.address)).rowcount:
        place = connection.execute(_KEEP_BODY, (blob.packed,)).lastrowid
        connection.execute(_KEEP_TEXT, (blob.address, place))
        return
    (kept,) = connection.execute(FETCH, (blob.address,)).fetchone() or (None,)
    if kept != blob.packed and not is_text(kept, blob.address):
        # Damage there must not spread to this record.
        place = connection.execute(_KEEP_BODY, (blob.packed,)).lastrowid
        connection.execute(_MOVE_TEXT, (place, blob.address))


def split_addresses(texts: bytes | None) -> list[bytes]:
    """Return the addresses of a record's large texts, from its column `texts`."""
    if not texts:
        return []
    return [texts[start : start + _ADDRESS] for start in range(0, len(texts), _ADDRESS)]


def _count_uses(connection: sqlite3.Connection, first: int, last: int) -> Counter[bytes]:
    """Return how often the records first ... last use which texts."""
    uses: Counter[bytes] = Counter()
    for (texts,) in connection.execute(_ADDRESSES, (first, last)):
        uses.update(split_addresses(texts))
    return uses


# --- values ------------------------------------------------------------------------------------------------------


def record_id(session: int, position: int) -> int:
    """Return the id of a record: 1, 2, ... within its session."""
    return session * SPAN + position


def session_of_record(record: int) -> int:
    return record // SPAN


def encode_key(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def decode_key(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


def _shorten_node(node: str) -> bytes | None:
    """Return half a SHA-256 for a node's name: as sure as the whole, in a quarter of the space of its text."""
    if node:
        return hash_text(encode_key(node))[:_NODE]
    return None


# --- pages -------------------------------------------------------------------------------------------------------


def count_stored_bytes(connection: sqlite3.Connection) -> int:
    """Return bytes of the file once its write-ahead log is folded in."""
    return _read_pragma(connection, "page_count") * _read_pragma(connection, "page_size")


def count_used_bytes(connection: sqlite3.Connection) -> int:
    """Return the same without pages that are free."""
    pages = _read_pragma(connection, "page_count") - _read_pragma(connection, "freelist_count")
    return pages * _read_pragma(connection, "page_size")


def _read_pragma(connection: sqlite3.Connection, name: str) -> int:
    found: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return found
