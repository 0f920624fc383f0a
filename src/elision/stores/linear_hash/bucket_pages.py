"""Pages of 4 KB that bucket chains are made of: those of a file, mapped, and changed copies of them in memory.

A page has a header with its checksum, the record count, the next page of its chain and its own number, then entries: a
key of 8 bytes and a value of 8 bytes.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

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
