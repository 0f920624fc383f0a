"""The directory: linear hashing (W. Litwin, VLDB 1980) on pages of 4 KB, from keys of 64 bits to values of 64 bits.

Buckets 0 … 2^level + split - 1 exist. A key's bucket is the key modulo 2^level, or modulo 2^(level + 1) if the
former is below `split`. A bucket is a chain of pages.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from typing import Final

from elision.stores.linear_hash.bucket_pages import BODY, CAPACITY, ENTRY, LINKS, LINKS_AT, BucketPages

#: What `load_limits` in the benchmarks found to be worth its room.
SPLIT_ABOVE: Final = 0.8
#: Entries that are kept beside the pages.
_MOST_RECENT: Final = 1 << 14
_ENTRY: Final = struct.Struct("<8sQ")
_U64: Final = struct.Struct("<Q")
_VALUE: Final = _U64.size


class Directory:
    """The table in memory: its pages, and the newest entries beside them. For one thread at a time.

    split_above: share of the buckets' first pages that entries fill before a bucket is split.
    """

    def __init__(self, split_above: float = SPLIT_ABOVE) -> None:
        self._split_above = split_above
        self.level = self.split = self.entries = 0
        self.lookups = self.pages_read = 0
        self.pages = BucketPages()
        #: What is not in the pages yet: key -> values, 8 bytes each. A bucket changes once for many entries.
        self._recent: dict[bytes, bytes] = {}
        #: Bucket -> its first page.
        self.table = [self.pages.make_page()]
        self._most_entries = self._count_most_entries()

    @property
    def buckets(self) -> int:
        return len(self.table)

    @property
    def load(self) -> float:
        """Return the share of the buckets' first pages that entries fill."""
        return self.entries / (CAPACITY * len(self.table))

    # Reading

    def get(self, key: bytes) -> int | None:
        """Return the value under `key`; of several, any."""
        self.lookups += 1
        recent = self._recent.get(key)
        if recent:
            return int.from_bytes(recent[-_VALUE:], "little")
        number = self.table[self._find_bucket(key)]
        while number:
            self.pages_read += 1
            page, start = self.pages.locate(number)
            count, number = LINKS.unpack_from(page, start + LINKS_AT)
            at = _find_entry(page, key, start + BODY, count)
            if at >= 0:
                found: int = _U64.unpack_from(page, at + 8)[0]
                return found
        return None

    def get_all(self, key: bytes) -> list[int]:
        """Return all values under `key`."""
        paged = [value for found, value in self._iterate_bucket(self._find_bucket(key)) if found == key]
        return paged + [value for (value,) in _U64.iter_unpack(self._recent.get(key, b""))]

    def iterate_entries(self) -> Iterator[tuple[int, bytes, int]]:
        """Yield (bucket, key, value) of all entries."""
        self.settle()
        for bucket in range(len(self.table)):
            for key, value in self._iterate_bucket(bucket):
                yield bucket, key, value

    def is_misplaced(self, bucket: int, key: bytes) -> bool:
        return self._find_bucket(key) != bucket

    # Changing

    def put(self, key: bytes, value: int) -> None:
        """Enter `value` under `key`, in the place of the one that is there."""
        recent = self._recent.get(key)
        if recent:
            self._recent[key] = recent[:-_VALUE] + _U64.pack(value)
            return
        for number in self.pages.list_chain(self.table[self._find_bucket(key)]):
            page, start = self.pages.locate(number)
            at = _find_entry(page, key, start + BODY, LINKS.unpack_from(page, start + LINKS_AT)[0])
            if at >= 0:
                _U64.pack_into(self.pages.change(number), at - start + 8, value)
                return
        self.add(key, value)

    def add(self, key: bytes, value: int) -> None:
        """Enter `value` under `key`, beside what is there."""
        self._recent[key] = self._recent.get(key, b"") + _U64.pack(value)
        self.entries += 1
        if len(self._recent) > _MOST_RECENT:
            self.settle()

    def remove(self, key: bytes, value: int) -> None:
        """Remove the entry of `key` with `value`, if there is one; the last entry of its page takes its place."""
        recent = [each for (each,) in _U64.iter_unpack(self._recent.get(key, b""))]
        if value in recent:
            recent.remove(value)
            self._recent[key] = struct.pack(f"<{len(recent)}Q", *recent)
            self.entries -= 1
            return
        removed = _ENTRY.pack(key, value)
        for number in self.pages.list_chain(self.table[self._find_bucket(key)]):
            entries = self.pages.read_entries(number)
            for at in range(0, len(entries), ENTRY):
                if entries[at : at + ENTRY] == removed:
                    left = bytearray(entries[:-ENTRY])
                    if at < len(left):
                        left[at : at + ENTRY] = entries[-ENTRY:]
                    page, start = self.pages.locate(number)
                    self.pages.fill(number, left, LINKS.unpack_from(page, start + LINKS_AT)[1])
                    self.entries -= 1
                    return

    def settle(self) -> None:
        """Move the entries that were added since into the pages, a bucket at a time."""
        while self.entries > self._most_entries:
            self._split_bucket()
        added: dict[int, bytearray] = {}
        for key, values in self._recent.items():
            bucket = added.setdefault(self._find_bucket(key), bytearray())
            for at in range(0, len(values), _VALUE):
                bucket += key + values[at : at + _VALUE]
        self._recent.clear()
        for bucket_number, entries in added.items():
            *_, last = self.pages.list_chain(self.table[bucket_number])
            self._fill_chain(last, self.pages.read_entries(last) + entries)

    def load_pages(self, level: int, split: int, entries: int, table: list[int], mapped: mmap.mmap, count: int) -> None:
        """Take the table and the `count` pages of a file, which was verified."""
        self.level = level
        self.split = split
        self.entries = entries
        self.table = table
        self.pages.load(mapped, count, table)
        self._most_entries = self._count_most_entries()

    # Inside

    def _find_bucket(self, key: bytes) -> int:
        (hashed,) = _U64.unpack(key)
        size = 1 << self.level
        bucket: int = hashed & (size - 1)
        if bucket < self.split:
            bucket |= hashed & size
        return bucket

    def _count_most_entries(self) -> int:
        """Return the entries from which on a bucket is split."""
        return int(self._split_above * CAPACITY * len(self.table))

    def _iterate_bucket(self, bucket: int) -> Iterator[tuple[bytes, int]]:
        for number in self.pages.list_chain(self.table[bucket]):
            yield from _ENTRY.iter_unpack(self.pages.read_entries(number))

    def _split_bucket(self) -> None:
        """Divide bucket `split` between itself and a new last one."""
        halves = bytearray(), bytearray()
        byte, bit = divmod(self.level, 8)
        chain = list(self.pages.list_chain(self.table[self.split]))
        for number in chain:
            entries = self.pages.read_entries(number)
            for at in range(0, len(entries), ENTRY):
                halves[entries[at + byte] >> bit & 1].extend(entries[at : at + ENTRY])
        self.pages.release(chain[1:])
        self.table.append(self.pages.make_page())
        self._fill_chain(chain[0], halves[0])
        self._fill_chain(self.table[-1], halves[1])
        self._most_entries = self._count_most_entries()
        self.split += 1
        if self.split == 1 << self.level:
            self.level += 1
            self.split = 0

    def _fill_chain(self, number: int, entries: bytes | bytearray) -> None:
        """Make `entries` the content of the chain that begins with page `number`."""
        for start in range(0, max(1, len(entries)), CAPACITY * ENTRY):
            part = entries[start : start + CAPACITY * ENTRY]
            after = self.pages.make_page() if start + len(part) < len(entries) else 0
            self.pages.fill(number, part, after)
            number = after


def _find_entry(page: bytearray | bytes | mmap.mmap, key: bytes, start: int, count: int) -> int:
    """Return the offset of the entry of `key`, -1 if there is none."""
    end = start + count * ENTRY
    at = page.find(key, start, end)
    while at >= 0 and (at - start) % ENTRY:
        at = page.find(key, at + 1, end)
    return at
