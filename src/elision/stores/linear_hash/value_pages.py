"""Large values: whole pages in a chain, and what is left over in a cell of a page that several values share."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from elision.errors import CorruptError
from elision.stores.linear_hash.cells import LARGEST, CellPages
from elision.stores.linear_hash.layout import (
    AT_COUNT,
    BODY,
    ROOM,
    U16,
    VALUE,
    link_page,
    make_page,
    read_count,
    read_next,
)
from elision.stores.linear_hash.pager import Pager

_POINTER: Final = struct.Struct("<IIIB")


class Pointer(NamedTuple):
    """Where a value is.

    size: its bytes. chain: its first whole page, 0 for none. page, cell: where its rest is; page 0 for none.
    """

    size: int
    chain: int
    page: int
    cell: int

    def pack(self) -> bytes:
        return _POINTER.pack(*self)

    @property
    def rest(self) -> int:
        """Return how many bytes are in the cell."""
        if self.page:
            return self.size % ROOM
        return 0


def unpack_pointer(data: bytes) -> Pointer:
    """Return what `Pointer.pack` made. Raises CorruptError."""
    if len(data) != _POINTER.size:
        raise CorruptError(f"a pointer to a value has {len(data)} bytes instead of {_POINTER.size}")
    return Pointer(*_POINTER.unpack(data))


class ValuePages:
    """Writes, reads and frees values that are not in their bucket page."""

    def __init__(self, pager: Pager) -> None:
        self._pager = pager
        self._cells = CellPages(pager)
        self.pages_read = 0

    def write(self, value: bytes) -> Pointer:
        rest = len(value) % ROOM
        in_cell = 0 < rest <= LARGEST
        chain = self._write_chain(value[: len(value) - rest] if in_cell else value)
        if in_cell:
            page, cell = self._cells.write(value[len(value) - rest :])
        else:
            page, cell = (0, 0)
        return Pointer(len(value), chain, page, cell)

    def read(self, at: Pointer) -> bytes:
        """Return the value at `at`. Raises CorruptError."""
        parts: list[bytes] = []
        number = at.chain
        missing = at.size - at.rest
        while missing > 0:
            page = self._pager.read(number, VALUE, keep=False)
            used = read_count(page)
            if not 0 < used <= min(ROOM, missing):
                raise CorruptError(f"page {number}: it holds {used} bytes of a value that lacks {missing}")
            parts.append(bytes(page[BODY : BODY + used]))
            missing -= used
            number = read_next(page)
        if at.page:
            parts.append(self._cells.read(at.page, at.cell, at.rest))
        self.pages_read += len(parts)
        if len(parts) == 1:
            return parts[0]
        return b"".join(parts)

    def free(self, at: Pointer) -> None:
        number = at.chain
        left = -((at.rest - at.size) // ROOM)
        for _ in range(left):
            after = read_next(self._pager.read(number, VALUE, keep=False))
            self._pager.release(number)
            self._pager.meta.value_pages -= 1
            number = after
        if at.page:
            self._cells.free(at.page, at.cell)

    def _write_chain(self, data: bytes) -> int:
        """Write `data` over whole pages; return the first one's number."""
        number = 0
        # From the end on, so that each page knows its successor.
        for start in reversed(range(0, len(data), ROOM)):
            part = data[start : start + ROOM]
            page = make_page(VALUE)
            page[BODY : BODY + len(part)] = part
            U16.pack_into(page, AT_COUNT, len(part))
            link_page(page, number)
            number = self._pager.allocate()
            self._pager.place_page(number, page)
            self._pager.meta.value_pages += 1
        return number
