"""Reads every page of a store and reports what is wrong, by page number; changes nothing.

Each page must be of use to exactly one owner: the meta page, the directory, a bucket's chain, a value, a list of cells,
the free list. What no owner claims is lost room; what two claim is damage waiting to happen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from elision.errors import CorruptError
from elision.stores.linear_hash import bucket as buckets
from elision.stores.linear_hash.bucket import BucketEntry
from elision.stores.linear_hash.cells import PER_PAGE, SIZES, full_bitmap, read_bitmap
from elision.stores.linear_hash.directory import PER_PAGE as BUCKETS_PER_PAGE
from elision.stores.linear_hash.file_access import File
from elision.stores.linear_hash.layout import (
    AT_CLASS,
    AT_KIND,
    AT_OWNER,
    AT_PREVIOUS,
    BODY,
    BUCKET,
    CELLS,
    DIRECTORY,
    FREE,
    KINDS,
    PAGE,
    ROOM,
    U32,
    VALUE,
    find_fault,
    read_count,
    read_next,
)
from elision.stores.linear_hash.meta import Meta
from elision.stores.linear_hash.snapshot import LogTail, read_log, read_state
from elision.stores.linear_hash.table import bucket_of, make_hasher
from elision.stores.linear_hash.value_pages import Pointer, unpack_pointer
from elision.stores.store import Finding

#: Findings after which no more are listed.
MOST = 1_000


@dataclass(slots=True)
class PageReport:
    """What a check of the pages found.

    kinds: pages by kind. records: in the page file, before the log's changes. tail: the log, None if it is unreadable.
    """

    findings: list[Finding] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    records: int = 0
    tail: LogTail | None = None


def check_pages(pages: File, log: File) -> PageReport:
    """Check the page file as of the last checkpoint, and the log since then."""
    report = PageReport()
    try:
        report.tail = read_log(log)
        meta = read_state(pages, log, report.tail)
    except CorruptError as error:
        report.findings.append(Finding(place="page 0 or log", what=str(error), lost=True))
        return report
    if meta:
        _PageCheck(pages, log, report.tail, meta, report).run()
    return report


class _PageCheck:
    """One run over all pages. Pages are read once each; what they claim of each other is compared."""

    def __init__(self, pages: File, log: File, tail: LogTail, meta: Meta, report: PageReport) -> None:
        self._pages = pages
        self._log = log
        self._images = tail.images
        self._meta = meta
        self._report = report
        self._hash = make_hasher(meta.file_id)
        self._owners: dict[int, str] = {0: "meta"}
        self._cells: Counter[tuple[int, int]] = Counter()
        self._damaged: set[int] = set()
        self._seen: set[int] = set()
        self._bytes = 0
        self._overflow = 0

    def run(self) -> None:
        bound = self._read_directory()
        for bucket, number in enumerate(bound):
            self._check_chain(bucket, number)
        self._check_free_list()
        self._check_cell_pages()
        self._check_unclaimed()
        self._check_totals(len(bound))

    def _read_directory(self) -> list[int]:
        """Return the first page of each bucket."""
        found: list[int] = []
        for number in self._meta.directory:
            page = self._claim_page(number, DIRECTORY, "directory")
            if page:
                numbers = _read_numbers(page)
            else:
                numbers = [0] * BUCKETS_PER_PAGE
            found += numbers
        if len(found) < self._meta.buckets:
            self._add_finding("page 0", f"{self._meta.buckets} buckets, and a directory of {len(found)}", lost=True)
        for bucket, number in enumerate(found[self._meta.buckets :], start=self._meta.buckets):
            if number:
                self._add_finding(
                    f"bucket {bucket}", f"it does not exist, and the directory names page {number} for it"
                )
        return found[: self._meta.buckets]

    def _check_chain(self, bucket: int, number: int) -> None:
        first = True
        if not number:
            self._add_finding(f"bucket {bucket}", "the directory names no page for it", lost=True)
        while number:
            page = self._claim_page(number, BUCKET, f"bucket {bucket}")
            if page is None:
                return
            self._check_bucket_page(bucket, number, page)
            self._overflow += not first
            first = False
            number = read_next(page)

    def _check_bucket_page(self, bucket: int, number: int, page: bytearray) -> None:
        place = f"page {number}"
        used = 0
        if U32.unpack_from(page, AT_OWNER)[0] != bucket:
            self._add_finding(place, f"it stands in the chain of bucket {bucket} and names another one as its own")
        try:
            for entry in buckets.read_entries(page):
                used += entry.size
                self._check_entry(bucket, place, entry)
        except CorruptError as error:
            self._add_finding(place, str(error), lost=True)
            return
        if used + buckets.free_bytes(page) != ROOM:
            self._add_finding(place, f"its records take {used} bytes, which does not go with the free ones it states")
        self._bytes += used

    def _check_entry(self, bucket: int, place: str, entry: BucketEntry) -> None:
        self._report.records += 1
        key = entry.key.hex()
        if entry.hash != self._hash(entry.key):
            self._add_finding(place, f"the hash beside key {key} is not the key's")
        elif bucket_of(entry.hash, self._meta.level, self._meta.split) != bucket:
            self._add_finding(place, f"key {key} belongs to another bucket, where alone it is looked for", lost=True)
        if entry.is_spilled:
            self._check_value(place, key, unpack_pointer(entry.tail))

    def _check_value(self, place: str, key: str, at: Pointer) -> None:
        number = at.chain
        missing = at.size - at.rest
        while missing > 0 and number:
            page = self._claim_page(number, VALUE, f"the value of key {key}")
            if page is None:
                return
            used = read_count(page)
            if not 0 < used <= min(ROOM, missing):
                self._add_finding(f"page {number}", f"it holds {used} bytes of a value that lacks {missing}", lost=True)
                return
            missing = missing - used
            number = read_next(page)
        if missing or number:
            self._add_finding(place, f"the chain of the value of key {key} has a wrong length", lost=bool(missing))
        if at.page:
            self._cells[at.page, at.cell] += 1
            self._owners.setdefault(at.page, "cells")

    def _check_free_list(self) -> None:
        number = self._meta.free
        count = 0
        while number:
            page = self._claim_page(number, FREE, "the free list")
            if page is None:
                return
            number = read_next(page)
            count = count + 1
        if count != self._meta.free_pages:
            self._add_finding("page 0", f"{self._meta.free_pages} free pages, and {count} in the free list")

    def _check_cell_pages(self) -> None:
        listed = self._check_cell_lists()
        users: dict[int, int] = {}
        for (number, index), count in self._cells.items():
            users[number] = users.get(number, 0) | 1 << index
            if count > 1:
                self._add_finding(f"page {number}", f"{count} values stand in cell {index}", lost=True)
        for number in users.keys() | listed.keys():
            page = self._read_page(number, CELLS)
            if page is not None:
                self._check_cell_page(number, page, users.get(number, 0), number in listed)

    def _check_cell_page(self, number: int, page: bytearray, used: int, listed: bool) -> None:
        place = f"page {number}"
        kind = page[AT_CLASS]
        if read_bitmap(page) & ~used:
            self._add_finding(place, f"{(read_bitmap(page) & ~used).bit_count()} of its cells are used by no record")
        if used & ~read_bitmap(page):
            self._add_finding(
                place, f"{(used & ~read_bitmap(page)).bit_count()} of its cells are used and stated free", lost=True
            )
        if (read_bitmap(page) != full_bitmap(kind)) != listed:
            self._add_finding(place, "it has free cells and is in no list of such pages, or the reverse")

    def _check_cell_lists(self) -> Mapping[int, int]:
        """Check the lists of pages with free cells; return their pages, by class."""
        listed: dict[int, int] = {}
        for kind, head in enumerate(self._meta.cells[: len(SIZES)]):
            before = 0
            number = head
            while number and number not in listed:
                page = self._read_page(number, CELLS)
                if page is None:
                    break
                if page[AT_CLASS] != kind or U32.unpack_from(page, AT_PREVIOUS)[0] != before:
                    self._add_finding(
                        f"page {number}", f"its place in the list of pages of {PER_PAGE[kind]} cells is wrong"
                    )
                listed[number] = kind
                self._owners.setdefault(number, "cells")
                before = number
                number = read_next(page)
        return listed

    def _check_unclaimed(self) -> None:
        """Read pages that nothing refers to, too: a damaged one is a finding."""
        for number in range(1, self._meta.pages):
            if number not in self._owners:
                page = self._read_page(number, None)
                kind = KINDS[page[AT_KIND]] if page else "damaged"
                self._add_finding(f"page {number}", f"a {kind} page that nothing refers to: lost room")

    def _check_totals(self, bound: int) -> None:
        meta = self._meta
        kinds = self._report.kinds
        for what, stated, found in (
            ("records", meta.records, self._report.records),
            ("bytes of records", meta.record_bytes, self._bytes),
            ("buckets", meta.bucket_pages, bound),
            ("overflow pages", meta.overflow_pages, self._overflow),
            ("value pages", meta.value_pages, kinds[KINDS[VALUE]]),
            ("cell pages", meta.cell_pages, kinds[KINDS[CELLS]]),
        ):
            if stated != found and not self._damaged:
                self._add_finding("page 0", f"it states {stated} {what}, and there are {found}")

    def _claim_page(self, number: int, kind: int, owner: str) -> bytearray | None:
        """Claim page `number` for `owner` and return it; None if it cannot be read or belongs to another owner."""
        if number in self._owners:
            self._add_finding(f"page {number}", f"{owner} refers to it, and so does {self._owners[number]}", lost=True)
            return None
        self._owners[number] = owner
        return self._read_page(number, kind)

    def _read_page(self, number: int, kind: int | None) -> bytearray | None:
        if number in self._damaged:
            return None
        page, wrong = self._find_page(number)
        if not wrong and kind is not None and page[AT_KIND] != kind:
            wrong = f"a {KINDS[page[AT_KIND]]} page where a {KINDS[kind]} page should be"
        if wrong:
            self._damaged.add(number)
            self._add_finding(f"page {number}", wrong, lost=kind != FREE)
            return None
        if number not in self._seen:
            self._seen.add(number)
            self._report.kinds[KINDS[page[AT_KIND]]] += 1
        return page

    def _find_page(self, number: int) -> tuple[bytearray, str]:
        if not 0 < number < self._meta.pages:
            return bytearray(), f"it is referred to, and the file has {self._meta.pages} pages"
        image = self._images.get(number)
        source: Callable[[int, int], bytes] = self._pages.read_at if image is None else self._log.read_at
        page = source(number * PAGE if image is None else image, PAGE)
        return bytearray(page), find_fault(page, number)

    def _add_finding(self, place: str, what: str, *, lost: bool = False) -> None:
        if len(self._report.findings) < MOST:
            self._report.findings.append(Finding(place=place, what=what, lost=lost))


def _read_numbers(page: bytearray) -> list[int]:
    return [U32.unpack_from(page, at)[0] for at in range(BODY, PAGE, U32.size)]


def scan_pages(pages: File, log: File, images: Mapping[int, int]) -> Iterator[tuple[int, bytearray]]:
    """Yield every page whose checksum is right, referred to or not, for a repair."""
    end = max(pages.size() // PAGE, max(images, default=0) + 1)
    for number in range(1, end):
        image = images.get(number)
        if image is None:
            page = pages.read_at(number * PAGE, PAGE)
        else:
            page = log.read_at(image, PAGE)
        if not find_fault(page, number):
            yield number, bytearray(page)
