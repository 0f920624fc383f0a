"""The rows of a SQLite store, and a check of all of them and of the write-ahead log.

A row of `records` has the records of one append as `packing` packs them, or some of a large one. Large texts are kept
once, with a count of their uses, and go with the last of them. A record's id is its session's times 2^32 plus its
number, and a row's that of its first record, so a log is one run of one table. Keys are bytes: SQLite's own text ends
at a NUL in places, and has no lone surrogates.

SQLite takes the frames of its write-ahead log up to the first that is wrong, since a power cut leaves such an end.
Where more than one transaction follows that frame, no power cut explains it: each was synced before the next began.
SQLite leaves them out without a word. The format is in https://www.sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import sqlite3
import struct
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from elision.errors import CorruptError
from elision.stores.packing import Packer, hash_text
from elision.stores.sql_dialect import load_statements
from elision.stores.store import Finding
from elision.stores.store_base import LogCheck
from elision.trajectory.events import TurnAdded, TurnAmended

# -- rows -------------------------------------------------------------------------------------------------------------


#: Records that a session may have.
SPAN: Final = 1 << 32
#: Bytes of an address, and of a node's name as it is stored.
_ADDRESS: Final = 32
_NODE: Final = 16


def record_id(session: int, position: int) -> int:
    """Return the id of a record: 1, 2, ... within its session."""
    return session * SPAN + position


def encode_key(key: str) -> bytes:
    return key.encode("utf-8", "surrogatepass")


def decode_key(key: bytes) -> str:
    return key.decode("utf-8", "surrogatepass")


def shorten_node(node: str) -> bytes | None:
    """Return half a SHA-256 for a node's name: as sure as the whole, in a quarter of the space of its text."""
    return hash_text(encode_key(node))[:_NODE] if node else None


def split_addresses(texts: bytes | None) -> list[bytes]:
    """Return the addresses of a record's large texts, from its column `texts`."""
    if not texts:
        return []
    return [texts[start : start + _ADDRESS] for start in range(0, len(texts), _ADDRESS)]


def fetch_text(connection: sqlite3.Connection, address: bytes) -> bytes:
    """Return a large text, packed. Raises CorruptError."""
    found = connection.execute(load_statements("sqlite")["text"], (address,)).fetchone()
    if found is None:
        raise CorruptError(f"the text {address.hex()[:16]} is missing")
    text: bytes = found[0]
    return text


def count_stored_bytes(connection: sqlite3.Connection) -> int:
    """Return bytes of the file once its write-ahead log is folded in."""
    return _read_pragma(connection, "page_count") * _read_pragma(connection, "page_size")


def count_used_bytes(connection: sqlite3.Connection) -> int:
    """Return the bytes in use, free pages excluded."""
    pages = _read_pragma(connection, "page_count") - _read_pragma(connection, "freelist_count")
    return pages * _read_pragma(connection, "page_size")


def _read_pragma(connection: sqlite3.Connection, name: str) -> int:
    found: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return found


# -- the check --------------------------------------------------------------------------------------------------------


#: Findings of SQLite's own check that are listed.
_LISTED: Final = 100
_SESSIONS: Final = "SELECT id, key, records FROM sessions ORDER BY id"
_RECORDS: Final = "SELECT id, body, texts FROM records WHERE id BETWEEN ? AND ? ORDER BY id"
_TURNS: Final = "SELECT number, turn FROM turns WHERE session = ?"
_USES: Final = "SELECT address, uses FROM texts"
_STRAYS: Final = """
    SELECT session, sum(turns), sum(rows) FROM (
      SELECT session, count(*) AS turns, 0 AS rows FROM turns GROUP BY session
      UNION ALL SELECT id / ?, 0, count(*) FROM records GROUP BY 1)
    WHERE session NOT IN (SELECT id FROM sessions) GROUP BY session"""


def find_damage(connection: sqlite3.Connection, path: Path, packer: Packer) -> Iterator[Finding]:
    """Yield what is wrong with the pages, then with every record and text, then with the counts; nothing is changed."""
    if what := describe_lost_transactions(path):
        yield Finding(place=str(path), what=what, lost=True)
    uses: Counter[bytes] = Counter()
    yield from _catch_unreadable(str(path), _check_pages(connection, path))
    yield from _catch_unreadable(str(path), _check_sessions(connection, packer, uses))
    yield from _catch_unreadable(str(path), _check_strays(connection, path))
    yield from _catch_unreadable(str(path), _check_use_counts(connection, path, uses))


def _catch_unreadable(place: str, findings: Iterator[Finding]) -> Iterator[Finding]:
    try:
        yield from findings
    except sqlite3.DatabaseError as error:
        yield Finding(place=place, what=f"cannot be read: {error}", lost=True)


def _check_pages(connection: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    for (text,) in connection.execute(f"PRAGMA integrity_check({_LISTED})"):
        for line in text.splitlines():
            if line != "ok" and not line.startswith("***"):
                yield Finding(place=str(path), what=line, lost=True)


def _check_sessions(connection: sqlite3.Connection, packer: Packer, uses: Counter[bytes]) -> Iterator[Finding]:
    for session, key, records in connection.execute(_SESSIONS).fetchall():
        place = f"session {decode_key(key)!r}"
        yield from _catch_unreadable(place, _check_session(connection, packer, uses, session, records, place))


def _check_session(
    connection: sqlite3.Connection, packer: Packer, uses: Counter[bytes], session: int, records: int, place: str
) -> Iterator[Finding]:
    """Yield what is wrong with one session. uses: gets how often its records use which texts."""
    log = (record_id(session, 1), record_id(session + 1, 0))
    kept = connection.execute(_RECORDS, log).fetchall()
    ends = [row[0] for row in kept[1:]] + [record_id(session, records + 1)]
    turns: dict[int, int] = {}
    unread: set[int] = set()
    found = 0
    log_check = LogCheck()
    for (record, body, texts), end in zip(kept, ends, strict=False):
        position = record % SPAN
        uses.update(split_addresses(texts))
        try:
            events = packer.unpack(body, partial(fetch_text, connection))
        except CorruptError as error:
            unread.update(range(position, position + end - record))
            found += end - record
            log_check.skip()
            yield Finding(place=f"{place}, record {position}", what=str(error), lost=True)
            continue
        found += len(events)
        for number, event in enumerate(events, start=position):
            if what := log_check.find_gap(event):
                yield Finding(place=f"{place}, record {number}", what=what, lost=True)
            if isinstance(event, TurnAdded | TurnAmended):
                turns[number] = event.turn.index
    if found != records:
        yield Finding(place=place, what=f"has {found} records, not {records}", lost=found < records)
    listed = dict(connection.execute(_TURNS, (session,)).fetchall())
    for number in sorted((turns.keys() | listed.keys()) - unread):
        if turns.get(number) != listed.get(number):
            what = f"is listed as turn {listed.get(number)}, and holds {turns.get(number)}"
            yield Finding(place=f"{place}, record {number}", what=what)


def _check_strays(connection: sqlite3.Connection, path: Path) -> Iterator[Finding]:
    for session, turns, kept in connection.execute(_STRAYS, (SPAN,)).fetchall():
        what = f"the row of session {session} is lost: {kept} rows of records and {turns} turns belong to none"
        yield Finding(place=str(path), what=what, lost=True)


def _check_use_counts(connection: sqlite3.Connection, path: Path, uses: Counter[bytes]) -> Iterator[Finding]:
    for address, counted in connection.execute(_USES).fetchall():
        if counted != uses[address]:
            yield Finding(
                place=f"{path}: text {address.hex()[:16]}", what=f"is used {uses[address]} times, not {counted}"
            )


# -- the write-ahead log ----------------------------------------------------------------------------------------------


_HEADER: Final = 32
_FRAME_HEADER: Final = 24
#: The first number of a log whose checksums are of big-endian numbers; that of the others is one less.
_BIG_ENDIAN: Final = 0x377F0683
#: Transactions after a wrong frame that a power cut may leave: the one that was not synced yet.
_UNSYNCED: Final = 1


class _Frame(NamedTuple):
    """One page of a transaction. is_commit: whether it is the last. is_whole: whether its checksum is right.

    is_current: whether it is of the log's newest round; the log is written from its beginning again and again.
    has_schema: whether it is the first page of a database whose `user_version` is set.
    """

    is_current: bool
    has_schema: bool
    is_commit: bool
    is_whole: bool


def describe_lost_transactions(database: Path, *, only_all: bool = False) -> str:
    """Return what is wrong in the log of `database` that SQLite does not report; "" where nothing is, or none is there.

    only_all: return it only where not even the schema is left in the log. Work O(log).
    """
    log = database.with_name(f"{database.name}-wal")
    wrong = lost = 0
    is_schema_near = has_schema = False
    try:
        with log.open("rb") as file:
            for number, frame in enumerate(_iterate_frames(file), start=1):
                if frame.is_whole:
                    is_schema_near = is_schema_near or frame.has_schema
                    has_schema = has_schema or (is_schema_near and frame.is_commit)
                    continue
                wrong = wrong or number
                lost += frame.is_commit and frame.is_current
    except OSError:
        return ""
    if lost <= _UNSYNCED or (only_all and has_schema):
        return ""
    return f"{log.name}: frame {wrong} is damaged, and SQLite leaves out the {lost} transactions from there on"


def _iterate_frames(file: BinaryIO) -> Iterator[_Frame]:
    """Yield the frames; after one that is wrong all are, as each checksum goes on from the one before."""
    header = file.read(_HEADER)
    if len(header) < _HEADER:
        return
    magic, _, size = struct.unpack_from(">III", header)
    order = ">" if magic == _BIG_ENDIAN else "<"
    sums = _add_checksum(header[:-8], order, (0, 0))
    salts = header[16:24]
    is_whole = sums == struct.unpack_from(">II", header, _HEADER - 8)
    if not is_whole:
        # The size of a page and the salts are in the header: where it is damaged, the usual size is tried, and the
        # salts are those of the first frame.
        size = 4096
        salts = b""
    while len(frame := file.read(_FRAME_HEADER + size)) == _FRAME_HEADER + size:
        page = frame[_FRAME_HEADER:]
        salts = salts or frame[8:16]
        is_current = salts == frame[8:16]
        if is_whole:
            sums = _add_checksum(page, order, _add_checksum(frame[:8], order, sums))
            is_whole = is_current and sums == struct.unpack_from(">II", frame, 16)
        has_schema = frame[:4] == b"\0\0\0\1" and page[60:64] != bytes(4)
        yield _Frame(is_current, has_schema, frame[4:8] != bytes(4), is_whole)


def _add_checksum(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    numbers = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
