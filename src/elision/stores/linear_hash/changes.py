"""What a transaction does to the records, as values and as bytes of the log."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from elision.errors import StoreError

PUT = 1
HEAD = 2
DELETE = 3
#: Bytes. A record's key and head are in its bucket page, whatever its value.
MAX_KEY: Final = 255
MAX_HEAD: Final = 1024
_PREFIX: Final = struct.Struct("<BBHI")


class Record(NamedTuple):
    """One record of the table. The head is in the bucket page; a large value has pages of its own."""

    key: bytes
    head: bytes
    value: bytes


class Change(NamedTuple):
    """PUT writes a record; HEAD gives a record another head and keeps its value; DELETE takes it away."""

    op: int
    key: bytes
    head: bytes = b""
    value: bytes = b""

    def over(self, older: Change | None) -> Change:
        """Return this change after `older` of the same record, as one."""
        if self.op == HEAD and older is not None and older.op == PUT:
            return Change(PUT, self.key, self.head, older.value)
        return self


def check_sizes(change: Change) -> None:
    """Raises StoreError if a record would not fit the format."""
    if not 0 < len(change.key) <= MAX_KEY or len(change.head) > MAX_HEAD or len(change.value) > 0xFFFF_FFFF:
        raise StoreError(
            f"a record of {len(change.key)} + {len(change.head)} + {len(change.value)} bytes (key, head, value) does "
            f"not fit; the limits are {MAX_KEY}, {MAX_HEAD} and 4 GiB"
        )


def encode_changes(changes: list[Change]) -> bytes:
    """Return `changes` as the payload of one frame of the log."""
    parts: list[bytes] = []
    for op, key, head, value in changes:
        parts += (_PREFIX.pack(op, len(key), len(head), len(value)), key, head, value)
    return b"".join(parts)


def decode_changes(payload: bytes) -> Iterator[Change]:
    """Yield what `encode_changes` was given."""
    at = 0
    end = len(payload)
    while at < end:
        op, key_size, head_size, value_size = _PREFIX.unpack_from(payload, at)
        key_at = at + _PREFIX.size
        head_at = key_at + key_size
        value_at = head_at + head_size
        at = value_at + value_size
        yield Change(op, payload[key_at:head_at], payload[head_at:value_at], payload[value_at:at])
