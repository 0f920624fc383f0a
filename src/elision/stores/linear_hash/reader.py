"""The reading half: the newest committed state, beside a writer in another process.

A snapshot is the page file as of its last checkpoint with the log's changes laid over it. While one is open the writer
may commit, which only adds to the log after the snapshot's end, but no checkpoint may run; so keep snapshots short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from elision.errors import StoreError
from elision.stores.linear_hash.changes import DELETE, HEAD, Change, Record
from elision.stores.linear_hash.file_access import File
from elision.stores.linear_hash.layout import U32
from elision.stores.linear_hash.locks import Locks
from elision.stores.linear_hash.log import read_header
from elision.stores.linear_hash.pager import Pager
from elision.stores.linear_hash.snapshot import LogTail, read_log, read_state
from elision.stores.linear_hash.table import Table

#: Clean pages that a reader keeps: 2 MB.
CACHE = 512


@dataclass(slots=True)
class OpenFiles:
    """Open files. is_current: whether they are still those of the store (a compaction puts new ones in their place)."""

    pages: File
    log: File
    locks: Locks
    is_current: Callable[[], bool] = lambda: True

    def close(self) -> None:
        self.pages.close()
        self.log.close()


class Snapshot:
    """One committed state; only while the reader's `open_snapshot` is open."""

    def __init__(self, table: Table | None, changes: dict[bytes, Change]) -> None:
        self.table = table
        self._changes = changes

    def get(self, key: bytes) -> Record | None:
        """Return the record under `key`."""
        change = self._changes.get(key)
        if change is None:
            if self.table:
                return self.table.get(key)
            return None
        return self._apply_change(change)

    def head(self, key: bytes) -> bytes | None:
        """Return its head alone."""
        change = self._changes.get(key)
        if change is None:
            if self.table:
                return self.table.head(key)
            return None
        if change.op == DELETE:
            return None
        return change.head

    def records(self) -> Iterator[Record]:
        """Yield all records, in no order."""
        for entry in self.table.entries() if self.table else ():
            if entry.key not in self._changes:
                yield Record(entry.key, entry.head, self.table.value_of(entry) if self.table else b"")
        for change in self._changes.values():
            if found := self._apply_change(change):
                yield found

    def _apply_change(self, change: Change) -> Record | None:
        if change.op == DELETE:
            return None
        if change.op == HEAD:
            if self.table:
                old = self.table.get(change.key)
            else:
                old = None
            if old:
                return Record(change.key, change.head, old.value)
            return None
        return Record(change.key, change.head, change.value)


class Reader:
    """Takes snapshots. For one thread at a time.

    opened: opens the files; called again after a compaction. Raises StoreError if they cannot be read.
    """

    def __init__(self, opened: Callable[[], OpenFiles], cache: int = CACHE) -> None:
        self._open = opened
        self._cache = cache
        self._files = opened()
        self._tail: LogTail | None = None
        self._table: Table | None = None
        self._depth = 0
        self._closed = False

    @contextmanager
    def open_snapshot(self) -> Iterator[Snapshot]:
        """Yield the state as of now, unchanged until the block ends; inside another snapshot, that one."""
        if self._closed:
            raise StoreError("the store is closed")
        if not self._depth:
            self._files.locks.lock_shared()
        self._depth += 1
        try:
            if self._depth == 1:
                self._refresh_state()
            yield Snapshot(self._table, self._tail.changes if self._tail else {})
        finally:
            self._depth -= 1
            if not self._depth:
                self._files.locks.release()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._files.close()

    def _refresh_state(self) -> None:
        try:
            self._follow_log()
            # A compaction may have put new files there; what was read of the old ones may lack the newest transactions.
            while not self._files.is_current():
                self._reopen_files()
                self._follow_log()
        except OSError as error:
            raise StoreError(f"the store cannot be read: {error}") from error

    def _reopen_files(self) -> None:
        self._files.close()
        self._tail = None
        self._files = self._open()
        self._files.locks.lock_shared()

    def _follow_log(self) -> None:
        log = self._files.log
        tail = self._tail
        if tail is None or not _is_same_log(tail, log):
            tail = read_log(log)
            self._load_state(tail)
            return
        sets = tail.sets
        tail.follow_log(log)
        if tail.sets != sets:
            self._load_state(tail)

    def _load_state(self, tail: LogTail) -> None:
        """Begin with the state of the last checkpoint."""
        meta = read_state(self._files.pages, self._files.log, tail)
        self._tail = tail
        self._table = None
        if meta:
            pager = Pager(self._files.pages, self._files.log, meta, images=tail.images, cache=self._cache)
            self._table = Table(pager)


def _is_same_log(tail: LogTail, log: File) -> bool:
    """Return whether the log still begins with what was read of it."""
    header = read_header(log)
    if header != ((tail.file_id, tail.salt) if tail.file_id else None):
        return False
    return not tail.last or log.read_at(tail.last, U32.size) == U32.pack(tail.place.seed)
