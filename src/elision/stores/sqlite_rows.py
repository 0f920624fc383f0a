"""The values in the rows of a SQLite store.

A row of `records` has the records of one append as `packing` packs them, or some of a large one. Large texts are kept
once, with a count of their uses, and go with the last of them. A record's id is its session's times 2^32 plus its
number, and a row's that of its first record, so a log is one run of one table. Keys are bytes: SQLite's own text ends
at a NUL in places, and has no lone surrogates.
"""

from __future__ import annotations

import sqlite3
from typing import Final

from elision.errors import CorruptError
from elision.stores.packing import hash_text
from elision.stores.sql_dialect import load_statements

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
    if node:
        return hash_text(encode_key(node))[:_NODE]
    return None


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
