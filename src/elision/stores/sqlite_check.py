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
        name = rows.decode_key(key)
        findings = _SessionCheck(connection, packer, session, name, uses).find_damage(records)
        yield from _catch_unreadable(f"session {name!r}", findings)


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


class _SessionCheck:
    """One session while it is read."""

    def __init__(
        self, connection: sqlite3.Connection, packer: Packer, session: int, key: str, uses: Counter[bytes]
    ) -> None:
        self._connection = connection
        self._packer = packer
        self._session = session
        self._key = key
        self._uses = uses

    def find_damage(self, records: int) -> Iterator[Finding]:
        log = (rows.record_id(self._session, 1), rows.record_id(self._session + 1, 0))
        kept = self._connection.execute(_RECORDS, log).fetchall()
        ends = [row[0] for row in kept[1:]] + [rows.record_id(self._session, records + 1)]
        turns: dict[int, int] = {}
        unread: set[int] = set()
        found = 0
        log_check = LogCheck()
        for (record, body, texts), end in zip(kept, ends, strict=False):
            position = record % rows.SPAN
            self._uses.update(rows.split_addresses(texts))
            try:
                events = self._packer.unpack(body, partial(rows.fetch_text, self._connection))
            except CorruptError as error:
                unread.update(range(position, position + end - record))
                found += end - record
                log_check.skip()
                yield self._make_finding(position, str(error), lost=True)
                continue
            found += len(events)
            for number, event in enumerate(events, start=position):
                if what := log_check.find_gap(event):
                    yield self._make_finding(number, what, lost=True)
                if isinstance(event, TurnAdded | TurnAmended):
                    turns[number] = event.turn.index
        if found != records:
            yield self._make_finding(0, f"has {found} records, not {records}", lost=found < records)
        yield from self._check_turn_list(turns, unread)

    def _check_turn_list(self, turns: dict[int, int], unread: set[int]) -> Iterator[Finding]:
        listed = dict(self._connection.execute(_TURNS, (self._session,)).fetchall())
        for position in sorted((turns.keys() | listed.keys()) - unread):
            if turns.get(position) != listed.get(position):
                yield self._make_finding(
                    position, f"is listed as turn {listed.get(position)}, and holds {turns.get(position)}"
                )

    def _make_finding(self, position: int, what: str, *, lost: bool = False) -> Finding:
        place = f"session {self._key!r}" + (f", record {position}" if position else "")
        return Finding(place=place, what=what, lost=lost)
