"""Search in a SQLite store: an index of three-letter runs finds candidate turns, whose texts decide.

The index is no part of an append. A search first brings it up to date, for its session alone and only where much is
new; so the work is O(new), and a session that is never searched, or short, has no index. Where SQLite lacks FTS5, or
the file cannot be written now, everything is scanned: the same hits, later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from elision.stores.sql_dialect import split_statements
from elision.stores.text_search import list_texts, split_words
from elision.trajectory.events import Event, TurnAdded, TurnAmended

#: Records after the indexed ones that are scanned rather than indexed.
SCANNED: Final = 512
#: Runs of letters asked for at most: more make no query that is longer to answer any sharper.
_ASKED: Final = 64
_RUN: Final = 3

_INSERT: Final = "INSERT INTO trigrams (rowid, letters) VALUES (?, ?)"
_FOUND: Final = "SELECT rowid FROM trigrams WHERE trigrams MATCH ? AND rowid BETWEEN ? AND ?"
_COVERED: Final = "UPDATE sessions SET indexed = ? WHERE id = ?"


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
