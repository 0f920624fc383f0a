"""Pages by number: those changed since the last checkpoint, a limited number of others, and the two files.

Nothing changed reaches the page file before a checkpoint writes it (no-steal), so the file is always as the last
checkpoint left it, and the log redoes what came after.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from elision.errors import CorruptError
from elision.stores.linear_hash.file_access import File
from elision.stores.linear_hash.layout import AT_KIND, FREE, KINDS, PAGE, link_page, make_page, read_next, verify_page
from elision.stores.linear_hash.meta import Meta

#: Clean pages kept by default: 8 MB.
CACHE = 2048


class Pager:
    """One process's pages.

    images: page number -> offset in `log` of an image that is newer than the page file (a checkpoint not finished).
    """

    def __init__(
        self, pages: File, log: File, meta: Meta, *, images: Mapping[int, int] | None = None, cache: int = CACHE
    ) -> None:
        self.meta = meta
        self.dirty: dict[int, bytearray] = {}
        self._pages = pages
        self._log = log
        self._images = images or {}
        self._clean: OrderedDict[int, bytearray] = OrderedDict()
        self._cache = cache

    def read(self, number: int, kind: int, *, keep: bool = True) -> bytearray:
        """Return page `number`, not to be changed.

        keep: whether it may push others out of the cache. Raises CorruptError if it is damaged or of another kind.
        """
        page = self.dirty.get(number)
        if page is None and (page := self._clean.get(number)) is not None:
            self._clean.move_to_end(number)
        if page is None:
            page = self.fetch(number)
            if keep:
                self._keep_page(number, page)
        if page[AT_KIND] != kind:
            raise CorruptError(f"page {number}: a {KINDS[page[AT_KIND]]} page where a {KINDS[kind]} page should be")
        return page

    def write(self, number: int, kind: int) -> bytearray:
        """Return page `number`, to be changed: it goes into the next checkpoint."""
        page = self.dirty.get(number)
        if page is None:
            page = self.read(number, kind)
            self._clean.pop(number, None)
            self.dirty[number] = page
        return page

    def mark_dirty(self, number: int, page: bytearray) -> bytearray:
        """Return `page`, which was read as `number` before, to be changed: as `write`, and surely this very object."""
        self.place_page(number, page)
        return page

    def place_page(self, number: int, page: bytearray) -> None:
        """Put a whole new page in the place of `number`."""
        self._clean.pop(number, None)
        self.dirty[number] = page

    def allocate(self) -> int:
        """Allocate a page that nothing uses, to be filled with `place_page`; return its number."""
        meta = self.meta
        if not meta.free:
            meta.pages += 1
            return meta.pages - 1
        number = meta.free
        meta.free = read_next(self.read(number, FREE))
        meta.free_pages -= 1
        return number

    def release(self, number: int) -> None:
        """Give page `number` to the free list."""
        page = make_page(FREE)
        link_page(page, self.meta.free)
        self.place_page(number, page)
        self.meta.free = number
        self.meta.free_pages += 1

    def clear_dirty(self) -> None:
        """What was changed is in the page file now."""
        for number, page in self.dirty.items():
            self._keep_page(number, page)
        self.dirty = {}
        self._images = {}

    @property
    def cached(self) -> int:
        """Return how many pages are in memory."""
        return len(self.dirty) + len(self._clean)

    def _keep_page(self, number: int, page: bytearray) -> None:
        self._clean[number] = page
        if len(self._clean) > self._cache:
            self._clean.popitem(last=False)

    def fetch(self, number: int) -> bytearray:
        """Return page `number` as it was at the last checkpoint. Raises CorruptError."""
        image = self._images.get(number)
        if image is not None:
            return verify_page(self._log.read_at(image, PAGE), number)
        if not 0 < number < self.meta.pages:
            raise CorruptError(f"page {number} is referred to, and the file has {self.meta.pages} pages")
        return verify_page(self._pages.read_at(number * PAGE, PAGE), number)
