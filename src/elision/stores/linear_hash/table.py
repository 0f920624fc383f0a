"""Linear hashing: a table that grows, and shrinks, by one bucket at a time.

W. Litwin, "Linear hashing: a new tool for file and table addressing", VLDB 1980. Buckets 0 ... 2**level + split - 1
exist. A key belongs to bucket `hash mod 2**level`, or, where that one was split already, `hash mod 2**(level + 1)`.
When the buckets are fuller than the load limit, the bucket at the split pointer is split in two, whichever overflowed;
so overflow chains are short, and no insertion ever moves more than one bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from elision.errors import CorruptError
from elision.stores.linear_hash import bucket as pages
from elision.stores.linear_hash.bucket import BucketEntry
from elision.stores.linear_hash.changes import DELETE, HEAD, Change, Record
from elision.stores.linear_hash.directory import CAPACITY, Directory
from elision.stores.linear_hash.layout import BUCKET, ROOM, U64, link_page, read_next
from elision.stores.linear_hash.pager import Pager
from elision.stores.linear_hash.value_pages import ValuePages, unpack_pointer

#: Bytes up to which a value is kept in its bucket page.
INLINE: Final = 64
#: Shares of the bucket pages' room: above the first a bucket is split, below the second two are merged. Measured
#: (docs/internals/performance.md): at 0.85 a lookup reads 1.02-1.11 bucket pages; 0.75: 1.02-1.07 of a larger file.
SPLIT_ABOVE: Final = 0.85
MERGE_BELOW: Final = 0.45
#: No chain is this long; one that is runs in a circle.
_LONGEST: Final = 100_000


@dataclass(slots=True)
class Reads:
    """Work done by lookups since the table was opened. bucket_pages: of chains, whether in memory or not."""

    lookups: int = 0
    bucket_pages: int = 0


def make_hasher(file_id: int) -> Callable[[bytes], int]:
    """Return the hash of keys: 64 bits of BLAKE2b, keyed by the file, so that nobody can choose keys that collide."""
    fresh = blake2b(digest_size=8, key=U64.pack(file_id)).copy

    def hash_key(key: bytes) -> int:
        state = fresh()
        state.update(key)
        return int.from_bytes(state.digest(), "little")

    return hash_key


def bucket_of(hashed: int, level: int, split: int) -> int:
    """Return the bucket of a hash: Litwin's address computation."""
    bucket = hashed & ((1 << level) - 1)
    if bucket < split:
        return hashed & ((2 << level) - 1)
    return bucket


class Table:
    """Records by key, in the pages of one pager. split_above: the load limit."""

    def __init__(self, pager: Pager, split_above: float = SPLIT_ABOVE) -> None:
        self._pager = pager
        self._split_above = split_above
        self.meta = pager.meta
        self._directory = Directory(pager)
        self._values = ValuePages(pager)
        self._hash = make_hasher(pager.meta.file_id)
        self.reads = Reads()

    def begin(self) -> None:
        """Make the first bucket of an empty file."""
        self._directory.append(0, self._make_bucket_page(0))
        self.meta.bucket_pages = 1

    def get(self, key: bytes) -> Record | None:
        """Return the record under `key`. Raises CorruptError."""
        found = self._find_entry(key)
        if found:
            return self._make_record(found)
        return None

    def head(self, key: bytes) -> bytes | None:
        """Return its head alone: reads bucket pages only."""
        found = self._find_entry(key)
        if found:
            return found.head
        return None

    def records(self) -> Iterator[Record]:
        """Yield all records, bucket by bucket."""
        return map(self._make_record, self.entries())

    def entries(self) -> Iterator[BucketEntry]:
        """Yield all records as their bucket pages have them; values in other pages are not read."""
        for bucket in range(self.meta.buckets):
            for _, page in self._read_chain(bucket, keep=False):
                yield from pages.read_entries(page)

    def value_of(self, found: BucketEntry) -> bytes:
        """Return the value of a record, from its bucket page or its own pages. Raises CorruptError."""
        if found.is_spilled:
            return self._values.read(unpack_pointer(found.tail))
        return found.tail

    def apply_change(self, change: Change) -> None:
        """Do what `change` says."""
        if change.op == DELETE:
            self._delete_record(change.key)
        elif change.op == HEAD:
            self._set_head(change.key, change.head)
        else:
            self._put_record(change)

    @property
    def value_pages_read(self) -> int:
        return self._values.pages_read

    @property
    def load(self) -> float:
        """Return the share of the first pages' room that records take up."""
        return self.meta.record_bytes / (self.meta.buckets * ROOM)

    # Lookups

    def _find_entry(self, key: bytes) -> BucketEntry | None:
        hashed = self._hash(key)
        self.reads.lookups += 1
        for _, page in self._read_chain(self._find_bucket(hashed)):
            self.reads.bucket_pages += 1
            slot = pages.find_slot(page, hashed, key)
            if slot >= 0:
                return pages.read_entry(page, slot)
        return None

    def _make_record(self, found: BucketEntry) -> Record:
        return Record(found.key, found.head, self.value_of(found))

    def _find_bucket(self, hashed: int) -> int:
        return bucket_of(hashed, self.meta.level, self.meta.split)

    def _read_chain(self, bucket: int, *, keep: bool = True) -> Iterator[tuple[int, bytearray]]:
        number = self._directory.page_of(bucket)
        for _ in range(_LONGEST):
            page = self._pager.read(number, BUCKET, keep=keep)
            yield number, page
            number = read_next(page)
            if not number:
                return
        raise CorruptError(f"bucket {bucket}: its chain runs in a circle; run `elision store fsck`")

    # Changes

    def _put_record(self, change: Change) -> None:
        hashed = self._hash(change.key)
        chain = list(self._read_chain(self._find_bucket(hashed)))
        self._remove_entry(chain, hashed, change.key)
        spilled = len(change.value) > INLINE
        if spilled:
            tail = self._values.write(change.value).pack()
        else:
            tail = change.value
        self._add_entry(chain, BucketEntry(hashed, change.key, change.head, tail, spilled))
        self.meta.records += 1
        if self.load > self._split_above and self.meta.buckets < CAPACITY:
            self._split_bucket()

    def _remove_entry(self, chain: list[tuple[int, bytearray]], hashed: int, key: bytes) -> bool:
        """Remove the record under `key`, its value included; return whether there was one."""
        for number, page in chain:
            slot = pages.find_slot(page, hashed, key)
            if slot >= 0:
                old = pages.read_entry(page, slot)
                if old.is_spilled:
                    self._values.free(unpack_pointer(old.tail))
                pages.remove_entry(self._pager.mark_dirty(number, page), slot)
                self.meta.records -= 1
                self.meta.record_bytes -= old.size
                return True
        return False

    def _add_entry(self, chain: list[tuple[int, bytearray]], new: BucketEntry) -> None:
        """Put a record in the first page of a chain that has room, or in a new one after it."""
        self.meta.record_bytes += new.size
        for number, page in chain:
            if pages.free_bytes(page) >= new.size:
                pages.insert_entry(self._pager.mark_dirty(number, page), new)
                return
        last, page = chain[-1]
        fresh = self._make_bucket_page(self._find_bucket(new.hash))
        pages.insert_entry(self._pager.write(fresh, BUCKET), new)
        link_page(self._pager.mark_dirty(last, page), fresh)
        self.meta.overflow_pages += 1

    def _set_head(self, key: bytes, head: bytes) -> None:
        hashed = self._hash(key)
        chain = list(self._read_chain(self._find_bucket(hashed)))
        for number, page in chain:
            slot = pages.find_slot(page, hashed, key)
            if slot >= 0:
                if not pages.replace_head(self._pager.mark_dirty(number, page), slot, head):
                    self._rewrite_head(chain, page, slot, head)
                return
        raise CorruptError("a record that is to get another head is not there")

    def _rewrite_head(self, chain: list[tuple[int, bytearray]], page: bytearray, slot: int, head: bytes) -> None:
        old = pages.read_entry(page, slot)
        pages.remove_entry(page, slot)
        self.meta.record_bytes -= old.size
        self._add_entry(chain, old._replace(head=head))

    def _delete_record(self, key: bytes) -> None:
        hashed = self._hash(key)
        bucket = self._find_bucket(hashed)
        chain = list(self._read_chain(bucket))
        if not self._remove_entry(chain, hashed, key):
            return
        if len(chain) > 1 and sum(ROOM - pages.free_bytes(page) for _, page in chain) <= (len(chain) - 1) * ROOM:
            self._write_chain(bucket, [number for number, _ in chain], _list_entries(chain))
        if self.load < MERGE_BELOW and self.meta.buckets > 1:
            self._merge_buckets()

    # Growth

    def _split_bucket(self) -> None:
        """Divide the bucket at the split pointer between itself and a new last one."""
        meta = self.meta
        old = meta.split
        new = meta.buckets
        chain = list(self._read_chain(old))
        sides: tuple[list[BucketEntry], list[BucketEntry]] = ([], [])
        for each in _list_entries(chain):
            sides[each.hash >> meta.level & 1].append(each)
        fresh = self._make_bucket_page(new)
        self._directory.append(new, fresh)
        meta.bucket_pages += 1
        self._write_chain(old, [number for number, _ in chain], sides[0])
        self._write_chain(new, [fresh], sides[1])
        meta.split += 1
        if meta.split == 1 << meta.level:
            meta.level = meta.level + 1
            meta.split = 0

    def _merge_buckets(self) -> None:
        """Undo the newest split: the last bucket goes back into the one it came from."""
        meta = self.meta
        last = meta.buckets - 1
        if not meta.split:
            meta.level, meta.split = meta.level - 1, 1 << (meta.level - 1)
        meta.split -= 1
        kept = list(self._read_chain(meta.split))
        gone = list(self._read_chain(last))
        self._directory.pop(last)
        meta.bucket_pages -= 1
        # The first page of the bucket that goes counts as an overflow page of the one that stays, if it is needed.
        meta.overflow_pages += 1
        self._write_chain(
            meta.split, [number for number, _ in (*kept, *gone)], _list_entries(kept) + _list_entries(gone)
        )

    def _write_chain(self, bucket: int, numbers: list[int], records: list[BucketEntry]) -> None:
        """Make pages `numbers` the chain of `bucket` and `records` its content; gives back or takes overflow pages."""
        filled = _fill_pages(records)
        self.meta.overflow_pages += len(filled) - len(numbers)
        while len(numbers) < len(filled):
            numbers.append(self._make_bucket_page(bucket))
        for number in numbers[len(filled) :]:
            self._pager.release(number)
        for place, content in enumerate(filled):
            page = pages.make_bucket(bucket)
            pages.refill_page(page, content)
            link_page(page, numbers[place + 1] if place + 1 < len(filled) else 0)
            self._pager.place_page(numbers[place], page)

    def _make_bucket_page(self, bucket: int) -> int:
        number = self._pager.allocate()
        self._pager.place_page(number, pages.make_bucket(bucket))
        return number


def _list_entries(chain: Iterable[tuple[int, bytearray]]) -> list[BucketEntry]:
    entries: list[BucketEntry] = []
    for _, page in chain:
        entries.extend(pages.read_entries(page))
    return entries


def _fill_pages(records: list[BucketEntry]) -> list[list[BucketEntry]]:
    """Return `records` over as few pages as first-fit needs, the largest first; one page at least."""
    if sum(each.size for each in records) <= ROOM:
        return [records]
    filled: list[list[BucketEntry]] = []
    room: list[int] = []
    for each in sorted(records, key=lambda each: each.size, reverse=True):
        place = 0
        while place < len(room) and room[place] < each.size:
            place += 1
        if place == len(room):
            filled.append([])
            room.append(ROOM)
        filled[place].append(each)
        room[place] -= each.size
    return filled
