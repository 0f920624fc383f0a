"""Cells: value pages cut into equal pieces, so that values of a few hundred bytes do not take 4 KB each.

The first eight bytes after the header are a bitmap of the cells in use. The pages of a class that have a free cell are
a doubly linked list that begins in the meta page; a page whose last cell goes is released.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from elision.errors import CorruptError
from elision.stores.linear_hash.layout import (
    AT_CLASS,
    AT_NEXT,
    AT_PREVIOUS,
    BODY,
    CELLS,
    PAGE,
    U32,
    U64,
    make_page,
    read_next,
)
from elision.stores.linear_hash.pager import Pager

_FIRST: Final = BODY + U64.size
#: Cells per page, by class; each size wastes at most a fifth of the next smaller one.
PER_PAGE: Final = (63, 32, 21, 16, 12, 10, 8, 7, 6, 5, 4, 3, 2)
SIZES: Final = tuple((PAGE - _FIRST) // count for count in PER_PAGE)
#: Bytes of the largest cell.
LARGEST: Final = SIZES[-1]


class CellPages:
    """Takes and gives back cells."""

    def __init__(self, pager: Pager) -> None:
        self._pager = pager

    def write(self, data: bytes) -> tuple[int, int]:
        """Put `data`, at most `LARGEST` bytes, in a cell; return (page, index)."""
        kind = bisect_left(SIZES, len(data))
        number = self._pager.meta.cells[kind] or self._make_page(kind)
        page = self._pager.write(number, CELLS)
        free = ~read_bitmap(page) & full_bitmap(kind)
        index = (free & -free).bit_length() - 1
        start = _FIRST + index * SIZES[kind]
        page[start : start + len(data)] = data
        if not self._set_used(page, read_bitmap(page) | 1 << index):
            self._remove_from_list(page, kind)
        return number, index

    def read(self, number: int, index: int, size: int) -> bytes:
        """Return `size` bytes of a cell. Raises CorruptError if the cell is free or smaller."""
        page = self._pager.read(number, CELLS)
        kind = page[AT_CLASS]
        if not read_bitmap(page) >> index & 1 or size > SIZES[kind]:
            raise CorruptError(f"page {number}: {size} bytes are looked for in cell {index}, which does not hold them")
        start = _FIRST + index * SIZES[kind]
        return bytes(page[start : start + size])

    def free(self, number: int, index: int) -> None:
        page = self._pager.write(number, CELLS)
        kind = page[AT_CLASS]
        used = read_bitmap(page)
        was_full = used == full_bitmap(kind)
        if not used >> index & 1:
            raise CorruptError(f"page {number}: cell {index} is given back and was free already")
        self._set_used(page, used & ~(1 << index))
        if not read_bitmap(page):
            self._drop_page(number, page, kind, listed=not was_full)
        elif was_full:
            self._add_to_list(number, page, kind)

    def _make_page(self, kind: int) -> int:
        number = self._pager.allocate()
        page = make_page(CELLS, cell_class=kind)
        self._pager.place_page(number, page)
        self._pager.meta.cell_pages += 1
        self._add_to_list(number, page, kind)
        return number

    def _drop_page(self, number: int, page: bytearray, kind: int, *, listed: bool) -> None:
        if listed:
            self._remove_from_list(page, kind)
        self._pager.release(number)
        self._pager.meta.cell_pages -= 1

    def _set_used(self, page: bytearray, used: int) -> int:
        """Note which cells are in use; return the free ones."""
        U64.pack_into(page, BODY, used)
        return ~used & full_bitmap(page[AT_CLASS])

    def _add_to_list(self, number: int, page: bytearray, kind: int) -> None:
        after = self._pager.meta.cells[kind]
        _set_links(page, after, 0)
        if after:
            U32.pack_into(self._pager.write(after, CELLS), AT_PREVIOUS, number)
        self._pager.meta.cells[kind] = number

    def _remove_from_list(self, page: bytearray, kind: int) -> None:
        after = read_next(page)
        before = U32.unpack_from(page, AT_PREVIOUS)[0]
        if after:
            U32.pack_into(self._pager.write(after, CELLS), AT_PREVIOUS, before)
        if before:
            U32.pack_into(self._pager.write(before, CELLS), AT_NEXT, after)
        else:
            self._pager.meta.cells[kind] = after
        _set_links(page, 0, 0)


def read_bitmap(page: bytearray) -> int:
    """Return which cells are in use, the first in the lowest bit."""
    found: int = U64.unpack_from(page, BODY)[0]
    return found


def full_bitmap(kind: int) -> int:
    """Return the bitmap of a page of class `kind` without a free cell."""
    return (1 << PER_PAGE[kind]) - 1


def _set_links(page: bytearray, after: int, before: int) -> None:
    U32.pack_into(page, AT_NEXT, after)
    U32.pack_into(page, AT_PREVIOUS, before)
