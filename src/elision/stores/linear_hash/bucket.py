"""A bucket page: slots that grow after the header, records that grow from the page's end towards them.

A slot is the key's hash (8 bytes), then offset and size of the record. A record is its sizes, its key, its head, and
its value or where that is. Keys are found by looking for their hash among the slots in one pass of `find_slot`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from elision.errors import CorruptError
from elision.stores.linear_hash.layout import (
    AT_COUNT,
    AT_FREE,
    BODY,
    BUCKET,
    PAGE,
    ROOM,
    U16,
    U64,
    make_page,
    read_count,
)

_SLOT: Final = struct.Struct("<QHH")
SLOT: Final = _SLOT.size
#: Key size, whether the value is in other pages, head size.
_SIZES: Final = struct.Struct("<BBH")
_COUNT_FREE: Final = struct.Struct("<HH")


class BucketEntry(NamedTuple):
    """A record as a page holds it. tail: its value; a pointer to it where `is_spilled`."""

    hash: int
    key: bytes
    head: bytes
    tail: bytes
    is_spilled: bool

    @property
    def size(self) -> int:
        """Return the bytes that it takes up in a page."""
        return SLOT + _SIZES.size + len(self.key) + len(self.head) + len(self.tail)


def make_bucket(bucket: int) -> bytearray:
    return make_page(BUCKET, owner=bucket, free=ROOM)


def free_bytes(page: bytearray) -> int:
    found: int = U16.unpack_from(page, AT_FREE)[0]
    return found


def find_slot(page: bytearray, hashed: int, key: bytes) -> int:
    """Return the slot of `key`, -1 if it is not there."""
    wanted = U64.pack(hashed)
    end = BODY + read_count(page) * SLOT
    at = page.find(wanted, BODY, end)
    while at >= 0:
        slot, odd = divmod(at - BODY, SLOT)
        if not odd and _read_key(page, slot) == key:
            return slot
        at = page.find(wanted, at + 1, end)
    return -1


def read_entry(page: bytearray, slot: int) -> BucketEntry:
    """Return the record of slot `slot`. Raises CorruptError if it does not lie within the page."""
    hashed, start, size = _SLOT.unpack_from(page, BODY + slot * SLOT)
    if start < BODY or start + size > PAGE or size < _SIZES.size:
        raise CorruptError(f"a slot names bytes {start} ... {start + size} of its page")
    key_size, spilled, head_size = _SIZES.unpack_from(page, start)
    key_at = start + _SIZES.size
    tail_at = key_at + key_size + head_size
    data = bytes(page[key_at : start + size])
    return BucketEntry(
        hashed, data[:key_size], data[key_size : tail_at - key_at], data[tail_at - key_at :], bool(spilled)
    )


def read_entries(page: bytearray) -> Iterator[BucketEntry]:
    """Yield all records, in the order of their slots."""
    for slot in range(read_count(page)):
        yield read_entry(page, slot)


def insert_entry(page: bytearray, entry: BucketEntry) -> None:
    """Add a record; the page has room for it (`free_bytes`)."""
    count, free = _COUNT_FREE.unpack_from(page, AT_COUNT)
    data = _encode_entry(entry)
    # Records lie without gaps, so the lowest one begins where the free bytes end.
    start = BODY + count * SLOT + free - len(data)
    page[start : start + len(data)] = data
    _SLOT.pack_into(page, BODY + count * SLOT, entry.hash, start, len(data))
    _COUNT_FREE.pack_into(page, AT_COUNT, count + 1, free - len(data) - SLOT)


def replace_head(page: bytearray, slot: int, head: bytes) -> bool:
    """Give a record another head of the same size in its place; return False if the size differs."""
    start = _SLOT.unpack_from(page, BODY + slot * SLOT)[1]
    key_size, _, head_size = _SIZES.unpack_from(page, start)
    if head_size != len(head):
        return False
    at = start + _SIZES.size + key_size
    page[at : at + head_size] = head
    return True


def remove_entry(page: bytearray, slot: int) -> None:
    """Take a record away and close its gap."""
    count, free = _COUNT_FREE.unpack_from(page, AT_COUNT)
    _, start, size = _SLOT.unpack_from(page, BODY + slot * SLOT)
    low = BODY + count * SLOT + free
    end = BODY + count * SLOT
    # Records lie in the reverse order of their slots: those of later slots are the ones below the gap.
    later = list(_SLOT.iter_unpack(page[BODY + (slot + 1) * SLOT : end]))
    page[BODY + slot * SLOT : end] = b"".join(_SLOT.pack(h, at + size, n) for h, at, n in later) + bytes(SLOT)
    page[low + size : start + size] = page[low:start]
    page[low : low + size] = bytes(size)
    _COUNT_FREE.pack_into(page, AT_COUNT, count - 1, free + size + SLOT)


def refill_page(page: bytearray, records: Iterable[BucketEntry]) -> None:
    """Make `records` the page's content; its bucket and its link stay."""
    slots = bytearray()
    heap = []
    end = PAGE
    for each in records:
        data = _encode_entry(each)
        end -= len(data)
        slots += _SLOT.pack(each.hash, end, len(data))
        heap.append(data)
    heap.reverse()
    page[BODY:] = slots + bytes(end - BODY - len(slots)) + b"".join(heap)
    _COUNT_FREE.pack_into(page, AT_COUNT, len(slots) // SLOT, end - BODY - len(slots))


def _encode_entry(record: BucketEntry) -> bytes:
    sizes = _SIZES.pack(len(record.key), record.is_spilled, len(record.head))
    return b"".join((sizes, record.key, record.head, record.tail))


def _read_key(page: bytearray, slot: int) -> bytes:
    start = _SLOT.unpack_from(page, BODY + slot * SLOT)[1]
    return bytes(page[start + _SIZES.size : start + _SIZES.size + page[start]])
