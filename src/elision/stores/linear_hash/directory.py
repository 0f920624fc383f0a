"""The directory: linear hashing (W. Litwin, VLDB 1980) on pages of 4 KB, from keys of 64 bits to values of 64 bits.

Buckets 0 … 2^level + split - 1 exist. A key's bucket is the key modulo 2^level, or modulo 2^(level + 1) if the
former is below `split`. A bucket is a chain of pages: a header with the record count and the next page, then entries.

Pages of the file are mapped and never change; a change copies its page. `save_directory` writes all to a new file.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elision.errors import CorruptError
from elision.stores.linear_hash.file_access import OsFile, sync_folder

PAGE: Final = 4096
#: Checksum of the rest, record count, unused, next page of the chain (0 for none), number of the page.
_HEAD: Final = struct.Struct("<IHHII")
BODY: Final = _HEAD.size
ENTRY: Final = 16
#: Entries of a page.
CAPACITY: Final = (PAGE - BODY) // ENTRY
#: What `load_limits` in the benchmarks found to be worth its room.
SPLIT_ABOVE: Final = 0.8
_MAGIC: Final = b"ELISLHD1"
#: Page 0: checksum, magic, log id, key id, offset of the log, level, split, entries, pages, buckets, catalogue's bytes.
_META: Final = struct.Struct("<I8sQQQIIQIIQ")
#: Of a page's header: record count, next page. An entry: key, value.
_LINKS: Final = struct.Struct("<HxxI")
_LINKS_AT: Final = 4
_ENTRY: Final = struct.Struct("<8sQ")
_U64: Final = struct.Struct("<Q")
_U32: Final = struct.Struct("<I")
_unpack_key: Final = _U64.unpack


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryHeader:
    """Page 0.

    log_id, key_id: of the log. offset: how much of it the directory has. catalogue: bytes after the table.
    """

    log_id: int
    key_id: int
    offset: int
    level: int
    split: int
    entries: int
    pages: int
    buckets: int
    catalogue: int


class Directory:
    """The table in memory: pages of the file, and changed copies of them. For one thread at a time.

    split_above: share of the buckets' first pages that entries fill before a bucket is split.
    """

    def __init__(self, split_above: float = SPLIT_ABOVE) -> None:
        self._split_above = split_above
        self.level = self.split = self.entries = 0
        self.lookups = self.pages_read = 0
        self._mapped: mmap.mmap | bytes = b""
        self._changed: dict[int, bytearray] = {}
        self._pages = 1
        self._free: list[int] = []
        #: Bucket -> its first page.
        self._table = [self._make_page()]
        self._most_entries = self._count_most_entries()

    @property
    def buckets(self) -> int:
        return len(self._table)

    @property
    def pages(self) -> int:
        """Return the pages of the file that `save_directory` would write, page 0 included."""
        return self._pages

    @property
    def load(self) -> float:
        """Return the share of the buckets' first pages that entries fill."""
        return self.entries / (CAPACITY * len(self._table))

    # Reading

    def get(self, key: bytes) -> int | None:
        """Return the value under `key`; of several, any."""
        self.lookups += 1
        number = self._table[self._find_bucket(key)]
        while number:
            self.pages_read += 1
            page, start = self._locate(number)
            count, number = _LINKS.unpack_from(page, start + _LINKS_AT)
            at = _find_entry(page, key, start + BODY, count)
            if at >= 0:
                found: int = _U64.unpack_from(page, at + 8)[0]
                return found
        return None

    def get_all(self, key: bytes) -> list[int]:
        """Return all values under `key`."""
        return [value for found, value in self._iterate_bucket(self._find_bucket(key)) if found == key]

    # Changing

    def put(self, key: bytes, value: int) -> None:
        """Enter `value` under `key`, in the place of the one that is there."""
        for number in self._list_chain(self._find_bucket(key)):
            page, start = self._locate(number)
            at = _find_entry(page, key, start + BODY, _HEAD.unpack_from(page, start)[1])
            if at >= 0:
                _U64.pack_into(self._change(number), at - start + 8, value)
                return
        self.add(key, value)

    def add(self, key: bytes, value: int) -> None:
        """Enter `value` under `key`, beside what is there."""
        number = self._table[self._find_bucket(key)]
        while True:
            page = self._changed.get(number) or self._change(number)
            count, after = _LINKS.unpack_from(page, _LINKS_AT)
            if count < CAPACITY:
                break
            if not after:
                after = self._make_page()
                _LINKS.pack_into(page, _LINKS_AT, count, after)
            number = after
        _LINKS.pack_into(page, _LINKS_AT, count + 1, after)
        _ENTRY.pack_into(page, BODY + count * ENTRY, key, value)
        self.entries += 1
        if self.entries > self._most_entries:
            self._split_bucket()

    def remove(self, key: bytes, value: int) -> None:
        """Remove the entry of `key` with `value`, if there is one; the last entry of its page takes its place."""
        for number in self._list_chain(self._find_bucket(key)):
            page = self._change(number)
            _, count, _, after, _ = _HEAD.unpack_from(page)
            for at in range(BODY, BODY + count * ENTRY, ENTRY):
                if page[at : at + 8] == key and _U64.unpack_from(page, at + 8)[0] == value:
                    last = BODY + (count - 1) * ENTRY
                    page[at : at + ENTRY] = page[last : last + ENTRY]
                    page[last : last + ENTRY] = bytes(ENTRY)
                    _HEAD.pack_into(page, 0, 0, count - 1, 0, after, number)
                    self.entries -= 1
                    return

    # Files

    def load_pages(self, header: DirectoryHeader, mapped: mmap.mmap, table: list[int]) -> None:
        """Take the pages of a file, which was verified."""
        self.level, self.split, self.entries = header.level, header.split, header.entries
        self._mapped = mapped
        self._pages = header.pages
        self._table = table
        self._most_entries = self._count_most_entries()
        self._changed = {}
        used = {number for bucket in range(len(table)) for number in self._list_chain(bucket)}
        self._free = [number for number in range(1, header.pages) if number not in used]

    def iterate_pages(self) -> Iterator[bytes | bytearray]:
        """Yield all pages but the first, sealed."""
        free = set(self._free)
        for number in range(1, self._pages):
            page = self._changed.get(number)
            if number in free:
                page = bytearray(PAGE)
                _HEAD.pack_into(page, 0, 0, 0, 0, 0, number)
            if page is None:
                yield self._mapped[number * PAGE : (number + 1) * PAGE]
            else:
                _U32.pack_into(page, 0, _compute_checksum(page))
                yield page

    def pack_table(self) -> bytes:
        return struct.pack(f"<{len(self._table)}I", *self._table)

    # Inside

    def _find_bucket(self, key: bytes) -> int:
        (hashed,) = _unpack_key(key)
        size = 1 << self.level
        bucket: int = hashed & (size - 1)
        if bucket < self.split:
            bucket |= hashed & size
        return bucket

    def _count_most_entries(self) -> int:
        """Return the entries from which on a bucket is split."""
        return int(self._split_above * CAPACITY * len(self._table))

    def _locate(self, number: int) -> tuple[bytearray | bytes | mmap.mmap, int]:
        """Return where page `number` is: a buffer, and its offset there."""
        page = self._changed.get(number)
        if page is not None:
            return page, 0
        return self._mapped, number * PAGE

    def _change(self, number: int) -> bytearray:
        """Return the copy of page `number` that may be changed."""
        page = self._changed.get(number)
        if page is None:
            page = self._changed[number] = bytearray(self._mapped[number * PAGE : (number + 1) * PAGE])
        return page

    def _make_page(self) -> int:
        if self._free:
            number = self._free.pop()
        else:
            number = self._pages
            self._pages += 1
        page = self._changed[number] = bytearray(PAGE)
        _HEAD.pack_into(page, 0, 0, 0, 0, 0, number)
        return number

    def _list_chain(self, bucket: int) -> Iterator[int]:
        number = self._table[bucket]
        while number:
            yield number
            page, start = self._locate(number)
            number = _HEAD.unpack_from(page, start)[3]

    def _iterate_bucket(self, bucket: int) -> Iterator[tuple[bytes, int]]:
        for number in self._list_chain(bucket):
            page, start = self._locate(number)
            count = _HEAD.unpack_from(page, start)[1]
            for at in range(start + BODY, start + BODY + count * ENTRY, ENTRY):
                yield bytes(page[at : at + 8]), _U64.unpack_from(page, at + 8)[0]

    def iterate_entries(self) -> Iterator[tuple[int, bytes, int]]:
        """Yield (bucket, key, value) of all entries."""
        for bucket in range(len(self._table)):
            for key, value in self._iterate_bucket(bucket):
                yield bucket, key, value

    def is_misplaced(self, bucket: int, key: bytes) -> bool:
        return self._find_bucket(key) != bucket

    def _split_bucket(self) -> None:
        """Divide bucket `split` between itself and a new last one."""
        halves = bytearray(), bytearray()
        byte, bit = divmod(self.level, 8)
        chain = list(self._list_chain(self.split))
        for number in chain:
            page, start = self._locate(number)
            end = start + BODY + _HEAD.unpack_from(page, start)[1] * ENTRY
            for at in range(start + BODY, end, ENTRY):
                halves[page[at + byte] >> bit & 1].extend(page[at : at + ENTRY])
        self._free += chain[1:]
        self._table.append(self._make_page())
        self._fill_chain(chain[0], halves[0])
        self._fill_chain(self._table[-1], halves[1])
        self._most_entries = self._count_most_entries()
        self.split += 1
        if self.split == 1 << self.level:
            self.level += 1
            self.split = 0

    def _fill_chain(self, number: int, entries: bytearray) -> None:
        """Make `entries` the content of the chain that begins with page `number`."""
        for start in range(0, max(1, len(entries)), CAPACITY * ENTRY):
            part = entries[start : start + CAPACITY * ENTRY]
            after = self._make_page() if start + len(part) < len(entries) else 0
            page = self._changed[number] = bytearray(PAGE)
            _HEAD.pack_into(page, 0, 0, len(part) // ENTRY, 0, after, number)
            page[BODY : BODY + len(part)] = part
            number = after


def save_directory(path: Path, directory: Directory, ids: tuple[int, int], offset: int, catalogue: bytes) -> None:
    """Write the directory of the log up to `offset` to `path`, durably, by renaming. Raises OSError.

    ids: log id and key id.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    table = directory.pack_table()
    meta = bytearray(PAGE)
    _META.pack_into(
        meta,
        0,
        0,
        _MAGIC,
        *ids,
        offset,
        directory.level,
        directory.split,
        directory.entries,
        directory.pages,
        directory.buckets,
        len(catalogue),
    )
    _U32.pack_into(meta, 0, _compute_checksum(meta))
    file = OsFile(fresh, writable=True)
    try:
        with os.fdopen(os.dup(file.descriptor), "wb", 1 << 20) as out:
            out.write(meta)
            for page in directory.iterate_pages():
                out.write(page)
            for part in (table, catalogue):
                out.write(_U32.pack(zlib.crc32(part)))
                out.write(part)
        file.fsync()
    finally:
        file.close()
    os.replace(fresh, path)
    sync_folder(path.parent)


def load_directory(path: Path) -> tuple[DirectoryHeader, Directory, bytes]:
    """Return what `save_directory` wrote: header, table and catalogue.

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
    header = _read_header(path, mapped)
    faults = find_faults(header, mapped)
    if faults:
        raise CorruptError(f"{path}: page {faults[0]} of the directory has a wrong checksum")
    at = header.pages * PAGE
    parts = []
    for length in (header.buckets * 4, header.catalogue):
        part = mapped[at + 4 : at + 4 + length]
        if mapped[at : at + 4] != _U32.pack(zlib.crc32(part)):
            raise CorruptError(f"{path}: the table or the catalogue of the directory has a wrong checksum")
        parts.append(part)
        at += 4 + length
    directory = Directory()
    directory.load_pages(header, mapped, list(struct.unpack(f"<{header.buckets}I", parts[0])))
    return header, directory, parts[1]


def find_faults(header: DirectoryHeader, mapped: mmap.mmap) -> list[int]:
    """Return the numbers of pages with a wrong checksum."""
    view = memoryview(mapped)
    try:
        wrong = []
        for number in range(1, header.pages):
            page = view[number * PAGE : (number + 1) * PAGE]
            checksum, _, _, _, own = _HEAD.unpack_from(page) if len(page) == PAGE else (0, 0, 0, 0, 0)
            if own != number or checksum != zlib.crc32(page[4:]):
                wrong.append(number)
        return wrong
    finally:
        view.release()


def _read_header(path: Path, mapped: mmap.mmap) -> DirectoryHeader:
    page = mapped[:PAGE]
    checksum, magic, log_id, key_id, offset, level, split, entries, pages, buckets, catalogue = _META.unpack_from(page)
    if checksum != _compute_checksum(page) or magic != _MAGIC:
        raise CorruptError(f"{path}: page 0 of the directory has a wrong checksum")
    return DirectoryHeader(
        log_id=log_id,
        key_id=key_id,
        offset=offset,
        level=level,
        split=split,
        entries=entries,
        pages=pages,
        buckets=buckets,
        catalogue=catalogue,
    )


def _compute_checksum(page: bytes | bytearray) -> int:
    return zlib.crc32(memoryview(page)[4:])


def _find_entry(page: bytearray | bytes | mmap.mmap, key: bytes, start: int, count: int) -> int:
    """Return the offset of the entry of `key`, -1 if there is none."""
    end = start + count * ENTRY
    at = page.find(key, start, end)
    while at >= 0 and (at - start) % ENTRY:
        at = page.find(key, at + 1, end)
    return at
