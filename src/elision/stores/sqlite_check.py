"""Reading a whole SQLite store and saying what is wrong with it."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from elision.errors import CorruptError
from elision.stores import sqlite_rows as rows
from elision.stores.log_check import LogCheck
from elision.stores.packing import Packer
from elision.stores.sqlite_wal import describe_lost_transactions
from elision.stores.store import Finding
from elision.trajectory.events import TurnAdded, TurnAmended

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
        place = f"session {rows.decode_key(key)!r}"
        yield from _catch_unreadable(place, _check_session(connection, packer, uses, session, records, place))


def _check_session(
    connection: sqlite3.Connection, packer: Packer, uses: Counter[bytes], session: int, records: int, place: str
) -> Iterator[Finding]:
    """Yield what is wrong with one session. uses: gets how often its records use which texts."""
    log = (rows.record_id(session, 1), rows.record_id(session + 1, 0))
    kept = connection.execute(_RECORDS, log).fetchall()
    ends = [row[0] for row in kept[1:]] + [rows.record_id(session, records + 1)]
    turns: dict[int, int] = {}
    unread: set[int] = set()
    found = 0
    log_check = LogCheck()
    for (record, body, texts), end in zip(kept, ends, strict=False):
        position = record % rows.SPAN
        uses.update(rows.split_addresses(texts))
        try:
            events = packer.unpack(body, partial(rows.fetch_text, connection))
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
    for session, turns, kept in connection.execute(_STRAYS, (rows.SPAN,)).fetchall():
        what = f"the row of session {session} is lost: {kept} rows of records and {turns} turns belong to none"
        yield Finding(place=str(path), what=what, lost=True)


def _check_use_counts(connection: sqlite3.Connection, path: Path, uses: Counter[bytes]) -> Iterator[Finding]:
    for address, counted in connection.execute(_USES).fetchall():
        if counted != uses[address]:
            yield Finding(
                place=f"{path}: text {address.hex()[:16]}", what=f"is used {uses[address]} times, not {counted}"
            )
