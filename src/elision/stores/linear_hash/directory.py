"""The directory: linear hashing (W. Litwin, VLDB 1980) on pages of 4 KB, from keys of 64 bits to values of 64 bits.

Buckets 0 … 2^level + split - 1 exist. A key's bucket is the key modulo 2^level, or modulo 2^(level + 1) if the
former is below `split`. A bucket is a chain of pages. A page has a header with its checksum, the record count, the next
page of its chain and its own number, then entries: a key of 8 bytes and a value of 8 bytes.

Keys of records, turns and sessions' numbers are mixed one to one, so two of them are never equal. Names and texts are
hashed with BLAKE2b under the store's random number, so that nobody can choose two that are equal.

The directory's file has page 0, the bucket pages, the table of buckets, and the catalogue of sessions.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from elision.errors import CorruptError, StoreError
from elision.stores.linear_hash.log import OsFile, sync_folder

#: What a key names; the three highest bits of a key before it is mixed.
_RECORD: Final = 1 << 61
_TURN: Final = 2 << 61
_WORD: Final = (1 << 64) - 1
#: 2^64 divided by the golden ratio, made odd.
_GOLDEN: Final = 0x9E3779B97F4A7C15
_PACK: Final = struct.Struct("<Q")
_MASK: Final = struct.Struct("<IQH")
#: Records of a log, turns, and sessions that a store can have.
MAX_NUMBER: Final = (1 << 32) - 1
MAX_SESSION: Final = (1 << 29) - 1
PAGE: Final = 4096
#: Checksum of the rest, record count, unused, next page of the chain (0 for none), number of the page.
_HEAD: Final = struct.Struct("<IHHII")
BODY: Final = _HEAD.size
ENTRY: Final = 16
#: Entries of a page.
CAPACITY: Final = (PAGE - BODY) // ENTRY
#: Of a page's header: record count, next page; and where they are.
LINKS: Final = struct.Struct("<HxxI")
LINKS_AT: Final = 4
U32: Final = struct.Struct("<I")
#: What `load_limits` in the benchmarks found to be worth its room.
SPLIT_ABOVE: Final = 0.8
#: Entries that are kept beside the pages.
_MOST_RECENT: Final = 1 << 14
_ENTRY: Final = struct.Struct("<8sQ")
_U64: Final = struct.Struct("<Q")
_VALUE: Final = _U64.size
_MAGIC: Final = b"ELISLHD1"
#: Page 0: checksum, magic, log id, key id, offset of the log, level, split, entries, pages, buckets, catalogue's bytes.
_META: Final = struct.Struct("<I8sQQQIIQIIQ")


class KeyMaker:
    """Makes the keys of one store. secret: its random number."""

    def __init__(self, secret: int) -> None:
        self._number = secret
        self._secret = _PACK.pack(secret)

    def make_record_key(self, session: int, number: int) -> bytes:
        """Return the key of record `number` of the session with that number."""
        return self._mix(_RECORD | session << 32 | number)

    def make_turn_key(self, session: int, turn: int) -> bytes:
        return self._mix(_TURN | session << 32 | turn)

    def make_mask_key(self, session: int, turn: int, position: int) -> bytes:
        return self._hash(b"mask", _MASK.pack(session, turn, position))

    def make_node_key(self, family: str, node: str) -> bytes:
        """Return the key of a history's name; families are kept apart by their length."""
        return self._hash(b"node", f"{len(family)} {family}{node}".encode("utf-8", "surrogatepass"))

    def make_text_key(self, data: bytes) -> bytes:
        return self._hash(b"text", data)

    def _hash(self, kind: bytes, data: bytes) -> bytes:
        return blake2b(data, digest_size=8, key=self._secret, person=kind).digest()

    def _mix(self, number: int) -> bytes:
        # Both steps can be undone, so no two numbers collide: a product with an odd number spreads consecutive numbers
        # over the high bits (D. Knuth, The Art of Computer Programming 3, 6.4), and these come down to the low ones.
        number = (number ^ self._number) * _GOLDEN & _WORD
        return _PACK.pack(number ^ number >> 32)


def check_number(number: int, what: str) -> int:
    """Return `number`. Raises StoreError if it does not fit a key."""
    if 0 <= number <= MAX_NUMBER:
        return number
    raise StoreError(f"{what} {number} does not fit a linear-hash store; the largest is {MAX_NUMBER:,}")


class BucketPages:
    """Pages by number, from 1 on. `mapped` never changes: a change copies its page into `changed`. For one thread."""

    def __init__(self) -> None:
        self.mapped: mmap.mmap | bytes = b""
        self.changed: dict[int, bytearray] = {}
        #: Pages of the file that would be written now, page 0 included.
        self.count = 1
        self._free: list[int] = []

    def load(self, mapped: mmap.mmap, count: int, firsts: Iterable[int]) -> None:
        """Take the pages of a file, which was verified. firsts: the first page of each chain."""
        self.mapped = mapped
        self.count = count
        self.changed = {}
        used = {number for first in firsts for number in self.list_chain(first)}
        self._free = [number for number in range(1, count) if number not in used]

    def close(self) -> None:
        """Give the mapped file back: a mapping holds a descriptor of the process."""
        if isinstance(self.mapped, mmap.mmap):
            self.mapped.close()
        self.mapped = b""

    def locate(self, number: int) -> tuple[bytearray | bytes | mmap.mmap, int]:
        """Return where page `number` is: a buffer, and its offset there."""
        page = self.changed.get(number)
        if page is not None:
            return page, 0
        return self.mapped, number * PAGE

    def change(self, number: int) -> bytearray:
        """Return the copy of page `number` that may be changed."""
        page = self.changed.get(number)
        if page is None:
            page = self.changed[number] = bytearray(self.mapped[number * PAGE : (number + 1) * PAGE])
        return page

    def make_page(self) -> int:
        """Return the number of an empty page that no chain has."""
        if self._free:
            number = self._free.pop()
        else:
            number = self.count
            self.count += 1
        self.fill(number, b"", 0)
        return number

    def fill(self, number: int, entries: bytes | bytearray, after: int) -> None:
        """Make `entries` the content of page `number`. after: the next page of its chain."""
        page = self.changed[number] = bytearray(PAGE)
        _HEAD.pack_into(page, 0, 0, len(entries) // ENTRY, 0, after, number)
        page[BODY : BODY + len(entries)] = entries

    def release(self, numbers: Iterable[int]) -> None:
        """Let pages be used again that no chain has any more."""
        self._free += numbers

    def list_chain(self, number: int) -> Iterator[int]:
        """Yield the pages of the chain that begins with page `number`."""
        while number:
            yield number
            page, start = self.locate(number)
            number = LINKS.unpack_from(page, start + LINKS_AT)[1]

    def read_entries(self, number: int) -> bytes:
        """Return the entries of a page."""
        page, start = self.locate(number)
        count, _ = LINKS.unpack_from(page, start + LINKS_AT)
        return bytes(page[start + BODY : start + BODY + count * ENTRY])

    def iterate_sealed(self) -> Iterator[bytes | bytearray]:
        """Yield all pages but the first, with their checksums, as a file has them."""
        for number in self._free:
            self.fill(number, b"", 0)
        for number in range(1, self.count):
            page = self.changed.get(number)
            if page is None:
                yield self.mapped[number * PAGE : (number + 1) * PAGE]
            else:
                U32.pack_into(page, 0, compute_checksum(page))
                yield page


def find_damaged_pages(mapped: mmap.mmap, count: int) -> list[int]:
    """Return the numbers of pages with a wrong checksum."""
    wrong = []
    with memoryview(mapped) as view:
        for number in range(1, count):
            page = view[number * PAGE : (number + 1) * PAGE]
            checksum, _, _, _, own = _HEAD.unpack_from(page) if len(page) == PAGE else (0, 0, 0, 0, 0)
            if own != number or checksum != zlib.crc32(page[4:]):
                wrong.append(number)
    return wrong


def compute_checksum(page: bytes | bytearray) -> int:
    return zlib.crc32(memoryview(page)[4:])


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDirectory:
    """What a file has. log_id, key_id: of the log. offset: how much of it the directory has."""

    log_id: int
    key_id: int
    offset: int
    directory: Directory
    catalogue: bytes


def save_directory(path: Path, directory: Directory, ids: tuple[int, int], offset: int, catalogue: bytes) -> None:
    """Write the directory of the log up to `offset` to `path`, durably, by renaming. Raises OSError.

    ids: log id and key id.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    directory.settle()
    shape = directory.level, directory.split, directory.entries, directory.pages.count, directory.buckets
    meta = bytearray(PAGE)
    _META.pack_into(meta, 0, 0, _MAGIC, *ids, offset, *shape, len(catalogue))
    U32.pack_into(meta, 0, compute_checksum(meta))
    file = OsFile(fresh, writable=True)
    try:
        with os.fdopen(os.dup(file.descriptor), "wb", 1 << 20) as out:
            out.write(meta)
            for page in directory.pages.iterate_sealed():
                out.write(page)
            for part in (struct.pack(f"<{directory.buckets}I", *directory.table), catalogue):
                out.write(U32.pack(zlib.crc32(part)))
                out.write(part)
        file.fsync()
    finally:
        file.close()
    os.replace(fresh, path)
    sync_folder(path.parent)


def load_directory(path: Path) -> SavedDirectory:
    """Return what `save_directory` wrote.

    Every page is verified. Raises CorruptError, FileNotFoundError where there is none, OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        if size < PAGE:
            raise CorruptError(f"{path}: the directory ends {size} bytes into its first page")
        mapped = mmap.mmap(descriptor, size, prot=mmap.PROT_READ)
    finally:
        os.close(descriptor)
    meta = mapped[:PAGE]
    checksum, magic, log_id, key_id, offset, level, split, entries, pages, buckets, length = _META.unpack_from(meta)
    if checksum != compute_checksum(meta) or magic != _MAGIC:
        raise CorruptError(f"{path}: page 0 of the directory has a wrong checksum")
    damaged = find_damaged_pages(mapped, pages)
    if damaged:
        raise CorruptError(f"{path}: page {damaged[0]} of the directory has a wrong checksum")
    table_at = pages * PAGE
    table = _read_part(path, mapped, table_at, buckets * 4)
    catalogue = _read_part(path, mapped, table_at + 4 + len(table), length)
    directory = Directory()
    directory.load_pages(level, split, entries, list(struct.unpack(f"<{buckets}I", table)), mapped, pages)
    return SavedDirectory(log_id=log_id, key_id=key_id, offset=offset, directory=directory, catalogue=catalogue)


def _read_part(path: Path, mapped: mmap.mmap, at: int, size: int) -> bytes:
    part = mapped[at + 4 : at + 4 + size]
    if mapped[at : at + 4] != U32.pack(zlib.crc32(part)):
        raise CorruptError(f"{path}: the table or the catalogue of the directory has a wrong checksum")
    return part
