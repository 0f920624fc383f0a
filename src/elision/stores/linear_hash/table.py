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
from elision.stores.linear_hash.bucket import Entry
from elision.stores.linear_hash.changes import DELETE, HEAD, Change, Record
from elision.stores.linear_hash.directory import CAPACITY, Directory
from elision.stores.linear_hash.layout import BUCKET, ROOM, U64, link, next_of
from elision.stores.linear_hash.pager import Pager
from elision.stores.linear_hash.values import Values, pointer

#: Bytes up to which a value stands in its bucket page.
INLINE: Final = 64
#: Shares of the bucket pages' room: above the first a bucket is split, below the second two are merged. Measured
#: (docs/internals/linear-hash.md): at 0.85 a lookup reads 1.02-1.09 bucket pages; 0.75: 1.02-1.08 of a larger file.
SPLIT_ABOVE: Final = 0.85
MERGE_BELOW: Final = 0.45
#: No chain is this long; one that is runs in a circle.
_LONGEST: Final = 100_000


@dataclass(slots=True)
class Reads:
    """Work done by lookups since the table was opened. bucket_pages: of chains, whether in memory or not."""

    lookups: int = 0
    bucket_pages: int = 0


def hasher(file_id: int) -> Callable[[bytes], int]:
    """The hash of keys: 64 bits of BLAKE2b, keyed by the file, so that nobody can choose keys that collide."""
    fresh = blake2b(digest_size=8, key=U64.pack(file_id)).copy

    def hashed(key: bytes) -> int:
        state = fresh()
        state.update(key)
        return int.from_bytes(state.digest(), "little")

    return hashed


def bucket_of(hashed: int, level: int, split: int) -> int:
    """Litwin's address computation."""
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
        self._values = Values(pager)
        self._hash = hasher(pager.meta.file_id)
        self.reads = Reads()

    def begin(self) -> None:
        """Make the first bucket of an empty file."""
        self._directory.append(0, self._fresh(0))
        self.meta.bucket_pages = 1

    def get(self, key: bytes) -> Record | None:
        """The record under `key`. Raises CorruptError."""
        found = self._entry(key)
        if found:
            return self._record(found)
        return None

    def head(self, key: bytes) -> bytes | None:
        """Its head alone: reads bucket pages only."""
        found = self._entry(key)
        if found:
            return found.head
        return None

    def records(self) -> Iterator[Record]:
        """All records, bucket by bucket."""
        return map(self._record, self.entries())

    def entries(self) -> Iterator[Entry]:
        """All records as they stand in their bucket pages; values that stand elsewhere are not read."""
        for bucket in range(self.meta.buckets):
            for _, page in self._chain(bucket, keep=False):
                yield from pages.entries(page)

    def value_of(self, found: Entry) -> bytes:
        """The value of a record, wherever it stands. Raises CorruptError."""
        if found.spilled:
            return self._values.read(pointer(found.tail))
        return found.tail

    def apply(self, change: Change) -> None:
        """Do what `change` says."""
        if change.op == DELETE:
            self._delete(change.key)
        elif change.op == HEAD:
            self._set_head(change.key, change.head)
        else:
            self._put(change)

    @property
    def value_pages_read(self) -> int:
        return self._values.pages_read

    @property
    def load(self) -> float:
        """Share of the first pages' room that records take up."""
        return self.meta.record_bytes / (self.meta.buckets * ROOM)

    # Lookups

    def _entry(self, key: bytes) -> Entry | None:
        hashed = self._hash(key)
        self.reads.lookups += 1
        for _, page in self._chain(self._bucket(hashed)):
            self.reads.bucket_pages += 1
            slot = pages.find(page, hashed, key)
            if slot >= 0:
                return pages.entry(page, slot)
        return None

    def _record(self, found: Entry) -> Record:
        return Record(found.key, found.head, self.value_of(found))

    def _bucket(self, hashed: int) -> int:
        return bucket_of(hashed, self.meta.level, self.meta.split)

    def _chain(self, bucket: int, *, keep: bool = True) -> Iterator[tuple[int, bytearray]]:
        number = self._directory.page_of(bucket)
        for _ in range(_LONGEST):
            page = self._pager.read(number, BUCKET, keep=keep)
            yield number, page
            number = next_of(page)
            if not number:
                return
        raise CorruptError(f"bucket {bucket}: its chain runs in a circle; run `elision store fsck`")

    # Changes

    def _put(self, change: Change) -> None:
        hashed = self._hash(change.key)
        chain = list(self._chain(self._bucket(hashed)))
        self._take_out(chain, hashed, change.key)
        spilled = len(change.value) > INLINE
        if spilled:
            tail = self._values.write(change.value).packed()
        else:
            tail = change.value
        self._add(chain, Entry(hashed, change.key, change.head, tail, spilled))
        self.meta.records += 1
        if self.load > self._split_above and self.meta.buckets < CAPACITY:
            self._split()

    def _take_out(self, chain: list[tuple[int, bytearray]], hashed: int, key: bytes) -> bool:
        """Remove the record under `key`, its value included; whether there was one."""
        for number, page in chain:
            slot = pages.find(page, hashed, key)
            if slot >= 0:
                old = pages.entry(page, slot)
                if old.spilled:
                    self._values.free(pointer(old.tail))
                pages.remove(self._pager.touch(number, page), slot)
                self.meta.records -= 1
                self.meta.record_bytes -= old.cost
                return True
        return False

    def _add(self, chain: list[tuple[int, bytearray]], new: Entry) -> None:
        """Put a record in the first page of a chain that has room, or in a new one behind it."""
        self.meta.record_bytes += new.cost
        for number, page in chain:
            if pages.free_in(page) >= new.cost:
                pages.insert(self._pager.touch(number, page), new)
                return
        last, page = chain[-1]
        fresh = self._fresh(self._bucket(new.hash))
        pages.insert(self._pager.write(fresh, BUCKET), new)
        link(self._pager.touch(last, page), fresh)
        self.meta.overflow_pages += 1

    def _set_head(self, key: bytes, head: bytes) -> None:
        hashed = self._hash(key)
        chain = list(self._chain(self._bucket(hashed)))
        for number, page in chain:
            slot = pages.find(page, hashed, key)
            if slot >= 0:
                if not pages.replace_head(self._pager.touch(number, page), slot, head):
                    self._rewrite(chain, page, slot, head)
                return
        raise CorruptError("a record that is to get another head is not there")

    def _rewrite(self, chain: list[tuple[int, bytearray]], page: bytearray, slot: int, head: bytes) -> None:
        old = pages.entry(page, slot)
        pages.remove(page, slot)
        self.meta.record_bytes -= old.cost
        self._add(chain, old._replace(head=head))

    def _delete(self, key: bytes) -> None:
        hashed = self._hash(key)
        bucket = self._bucket(hashed)
        chain = list(self._chain(bucket))
        if not self._take_out(chain, hashed, key):
            return
        if len(chain) > 1 and sum(ROOM - pages.free_in(page) for _, page in chain) <= (len(chain) - 1) * ROOM:
            self._lay_out(bucket, [number for number, _ in chain], _all(chain))
        if self.load < MERGE_BELOW and self.meta.buckets > 1:
            self._merge()

    # Growth

    def _split(self) -> None:
        """Divide the bucket at the split pointer between itself and a new last one."""
        meta = self.meta
        old = meta.split
        new = meta.buckets
        chain = list(self._chain(old))
        sides: tuple[list[Entry], list[Entry]] = ([], [])
        for each in _all(chain):
            sides[each.hash >> meta.level & 1].append(each)
        fresh = self._fresh(new)
        self._directory.append(new, fresh)
        meta.bucket_pages += 1
        self._lay_out(old, [number for number, _ in chain], sides[0])
        self._lay_out(new, [fresh], sides[1])
        meta.split += 1
        if meta.split == 1 << meta.level:
            meta.level = meta.level + 1
            meta.split = 0

    def _merge(self) -> None:
        """Undo the newest split: the last bucket goes back into the one it came from."""
        meta = self.meta
        last = meta.buckets - 1
        if not meta.split:
            meta.level, meta.split = meta.level - 1, 1 << (meta.level - 1)
        meta.split -= 1
        kept = list(self._chain(meta.split))
        gone = list(self._chain(last))
        self._directory.pop(last)
        meta.bucket_pages -= 1
        # The first page of the bucket that goes counts as an overflow page of the one that stays, if it is needed.
        meta.overflow_pages += 1
        self._lay_out(meta.split, [number for number, _ in (*kept, *gone)], _all(kept) + _all(gone))

    def _lay_out(self, bucket: int, numbers: list[int], records: list[Entry]) -> None:
        """Make pages `numbers` the chain of `bucket` and `records` its content; gives back or takes overflow pages."""
        filled = _filled(records)
        self.meta.overflow_pages += len(filled) - len(numbers)
        while len(numbers) < len(filled):
            numbers.append(self._fresh(bucket))
        for number in numbers[len(filled) :]:
            self._pager.release(number)
        for place, content in enumerate(filled):
            page = pages.empty(bucket)
            pages.refill(page, content)
            link(page, numbers[place + 1] if place + 1 < len(filled) else 0)
            self._pager.place(numbers[place], page)

    def _fresh(self, bucket: int) -> int:
        number = self._pager.allocate()
        self._pager.place(number, pages.empty(bucket))
        return number


def _all(chain: Iterable[tuple[int, bytearray]]) -> list[Entry]:
    return [each for _, page in chain for each in pages.entries(page)]


def _filled(records: list[Entry]) -> list[list[Entry]]:
    """`records` over as few pages as first-fit needs, the largest first; one page at least."""
    if sum(each.cost for each in records) <= ROOM:
        return [records]
    filled: list[list[Entry]] = [[]]
    room = [ROOM]
    for each in sorted(records, key=lambda each: each.cost, reverse=True):
        place = next((at for at, left in enumerate(room) if left >= each.cost), len(room))
        if place == len(room):
            filled.append([])
            room.append(ROOM)
        filled[place].append(each)
        room[place] -= each.cost
    return filled
