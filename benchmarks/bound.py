"""What no durable, exact context manager can do without: counting, appending and hashing what is new, and nothing else.

Each is measured bare: no compression, no index, no objects of ours.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import NamedTuple

from benchmarks.session import Chat, texts
from elision.stores.sqlite_file import _SETTINGS as SETTINGS
from elision.trajectory.tokens import VocabularyCounter
from elision.trajectory.vocabulary import TiktokenEncoder


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Seconds of a whole session. cpu: of the three together, without waiting for the disk."""

    counting: float
    appending: float
    hashing: float
    cpu: float

    @property
    def sum(self) -> float:
        return self.counting + self.appending + self.hashing


def bound(chat: Chat, folder: Path) -> Bound:
    """Measured here and now. chat: in OpenAI's shape."""
    counted, appended, hashed = counting(chat), appending(chat, folder), hashing(chat)
    return Bound(
        counting=counted.wall,
        appending=appended.wall,
        hashing=hashed.wall,
        cpu=counted.cpu + appended.cpu + hashed.cpu,
    )


class Seconds(NamedTuple):
    """Seconds that pass, and seconds of the process's CPU."""

    wall: float
    cpu: float


def read_clocks() -> Seconds:
    return Seconds(perf_counter(), process_time())


def measure_since(start: Seconds) -> Seconds:
    now = read_clocks()
    return Seconds(now.wall - start.wall, now.cpu - start.cpu)


def counting(chat: Chat) -> Seconds:
    """Exact counts of every text once, by a counter that has seen none of them: by tiktoken, whatever is installed."""
    fresh = VocabularyCounter("o200k", TiktokenEncoder)
    fresh.count("load the vocabulary")
    new = [text for turn in [chat.head, *chat.turns] for text in texts(turn)]
    start = read_clocks()
    for text in new:
        fresh.count(text)
    return measure_since(start)


def appending(chat: Chat, folder: Path) -> Seconds:
    """Each turn's messages as JSON, one row, one transaction and one sync a turn, with our store's own settings."""
    rows = [json.dumps(turn).encode() for turn in [chat.head, *chat.turns]]
    connection = sqlite3.connect(folder / "bare.db", isolation_level=None)
    for setting in SETTINGS:
        connection.execute(setting).fetchall()
    connection.execute("CREATE TABLE log (number INTEGER PRIMARY KEY, body BLOB)")
    start = read_clocks()
    for row in rows:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO log (body) VALUES (?)", (row,))
        connection.execute("COMMIT")
    spent = measure_since(start)
    connection.close()
    return spent


def hashing(chat: Chat) -> Seconds:
    """SHA-256 of every text once."""
    new = [text.encode() for turn in [chat.head, *chat.turns] for text in texts(turn)]
    start = read_clocks()
    for data in new:
        hashlib.sha256(data).digest()
    return measure_since(start)
