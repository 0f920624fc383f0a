"""The bucket directory: which page a bucket begins with.

Buckets are numbered without gaps but their pages lie anywhere, between overflow and value pages. So directory pages
(Larson 1988 calls them segments) have the numbers of their first pages, 1,016 each, and the meta page has the numbers
of the directory pages.
"""

from __future__ import annotations

from typing import Final

from elision.errors import CorruptError
from elision.stores.linear_hash.layout import BODY, DIRECTORY, ROOM, U32, make_page
from elision.stores.linear_hash.meta import MAX_DIRECTORY
from elision.stores.linear_hash.pager import Pager

#: Buckets per directory page.
PER_PAGE: Final = ROOM // U32.size
#: Buckets that the directory has room for: about a million, 4 GB of bucket pages.
CAPACITY: Final = MAX_DIRECTORY * PER_PAGE


class Directory:
    """First pages of buckets 0, 1, ..."""

    def __init__(self, pager: Pager) -> None:
        self._pager = pager

    def page_of(self, bucket: int) -> int:
        """Return the first page of `bucket`. Raises CorruptError if there is none."""
        part, slot = divmod(bucket, PER_PAGE)
        if part >= len(self._pager.meta.directory):
            raise CorruptError(f"bucket {bucket} stands in no directory page")
        page = self._pager.read(self._pager.meta.directory[part], DIRECTORY)
        found: int = U32.unpack_from(page, BODY + slot * U32.size)[0]
        return found

    def append(self, bucket: int, number: int) -> None:
        """Bucket `bucket`, the next one, begins with page `number`."""
        part, slot = divmod(bucket, PER_PAGE)
        directory = self._pager.meta.directory
        if part == len(directory):
            directory.append(self._pager.allocate())
            self._pager.place_page(directory[part], make_page(DIRECTORY))
        U32.pack_into(self._pager.write(directory[part], DIRECTORY), BODY + slot * U32.size, number)

    def pop(self, bucket: int) -> None:
        """Bucket `bucket`, the last one, is no more."""
        part, slot = divmod(bucket, PER_PAGE)
        directory = self._pager.meta.directory
        U32.pack_into(self._pager.write(directory[part], DIRECTORY), BODY + slot * U32.size, 0)
        if not slot:
            self._pager.release(directory.pop())
