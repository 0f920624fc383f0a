"""The layout of a page: 4 KB, a header of 32 bytes that begins with a checksum, then the content of its kind.

All numbers are little-endian. `docs/internals/linear-hash-files.md` draws every kind. Page numbers count from 0, and 0
in a link means "none", since page 0 is the meta page and nothing links to it.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

from elision.errors import CorruptError

PAGE: Final = 4096
#: checksum, magic, kind, cell class, LSN, next page, previous page, count, free bytes, owner.
HEADER: Final = struct.Struct("<IHBBQIIHHI")
BODY: Final = HEADER.size
#: Bytes of a page after its header.
ROOM: Final = PAGE - BODY
MAGIC: Final = 0x484C

META, DIRECTORY, BUCKET, VALUE, CELLS, FREE = range(1, 7)
KINDS: Final = {META: "meta", DIRECTORY: "directory", BUCKET: "bucket", VALUE: "value", CELLS: "cells", FREE: "free"}

U16: Final = struct.Struct("<H")
U32: Final = struct.Struct("<I")
U64: Final = struct.Struct("<Q")
#: Offsets of header fields that are read or written alone.
AT_KIND = 6
AT_CLASS = 7
AT_LSN = 8
AT_NEXT = 16
AT_PREVIOUS = 20
AT_COUNT = 24
AT_FREE = 26
AT_OWNER = 28


def make_page(kind: int, *, owner: int = 0, free: int = 0, cell_class: int = 0) -> bytearray:
    """Return an empty page of `kind`, unsealed."""
    page = bytearray(PAGE)
    HEADER.pack_into(page, 0, 0, MAGIC, kind, cell_class, 0, 0, 0, 0, free, owner)
    return page


def seal_page(page: bytearray, number: int, lsn: int) -> None:
    """Stamp `page` with its LSN and checksum; the checksum covers the number, so that a misplaced page is seen."""
    U64.pack_into(page, AT_LSN, lsn)
    U32.pack_into(page, 0, checksum(page, number))


def checksum(page: bytes | bytearray, number: int) -> int:
    """Return the CRC-32 of everything after the checksum, seeded with the page's number."""
    return zlib.crc32(memoryview(page)[4:], number)


def find_fault(page: bytes | bytearray, number: int) -> str:
    """Return what is wrong with a page as read from the file; "" if nothing."""
    if len(page) != PAGE:
        return f"the file ends {len(page)} bytes into the page"
    if U32.unpack_from(page)[0] != checksum(page, number):
        return "its checksum is wrong"
    if U16.unpack_from(page, 4)[0] != MAGIC or page[AT_KIND] not in KINDS:
        return "it is no page of a linear-hash store"
    return ""


def verify_page(page: bytes, number: int) -> bytearray:
    """Verify `page` and return a copy to be changed. Raises CorruptError."""
    if wrong := find_fault(page, number):
        raise CorruptError(f"page {number}: {wrong}; run `elision store fsck`")
    return bytearray(page)


def read_next(page: bytearray) -> int:
    found: int = U32.unpack_from(page, AT_NEXT)[0]
    return found


def read_count(page: bytearray) -> int:
    found: int = U16.unpack_from(page, AT_COUNT)[0]
    return found


def link_page(page: bytearray, number: int) -> None:
    """Make page `number` the next one."""
    U32.pack_into(page, AT_NEXT, number)
