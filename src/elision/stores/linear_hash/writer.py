"""The writing half: transactions, group commit, checkpoints, and recovery.

A transaction is durable once its frame is in the log and the log is synced (`flush`). Pages change in memory only,
until a checkpoint writes them: first as images to the log, synced; then to the page file, synced; then the log begins
anew. So at any moment the files hold everything acknowledged, whatever part of the newest writes a crash takes away.

A failed write or sync of the log puts the store back to the last durable transaction, as recovery after a crash does,
and the error is raised: a transaction that it reports as not stored is not stored. A failed checkpoint loses nothing
and is tried again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Final

from elision.errors import ElisionError, StoreError
from elision.stores.linear_hash.changes import Change, Record, check_sizes, encode_changes
from elision.stores.linear_hash.file_access import File
from elision.stores.linear_hash.layout import PAGE, seal_page
from elision.stores.linear_hash.locks import Locks, NoLocks
from elision.stores.linear_hash.log import (
    CHECKPOINT,
    IMAGES,
    START,
    TRANSACTION,
    first_position,
    image_payload,
    pack_frame,
    write_header,
)
from elision.stores.linear_hash.meta import Meta
from elision.stores.linear_hash.pager import CACHE, Pager
from elision.stores.linear_hash.snapshot import LogTail, read_log, read_state
from elision.stores.linear_hash.table import Table

#: Page images per frame of the log, and pages per write to the page file.
_BATCH: Final = 256
#: Bytes by which the log grows, and how many must be left for it not to.
_GROWTH: Final = 1 << 20
_AHEAD: Final = 32 << 10
#: Share of the limits that must come together before a checkpoint that failed is tried again.
_AGAIN: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLimits:
    """When a writer does what.

    group:     transactions per sync of the log; 1: each is durable when `commit` returns.
    log_bytes: of the log from which on a checkpoint is due. dirty_pages: changed pages from which on one is.
    cache:     clean pages kept in memory.
    patience:  seconds that an overdue checkpoint (twice the limits) waits for readers.
    """

    group: int = 1
    log_bytes: int = 16 << 20
    dirty_pages: int = 4096
    cache: int = CACHE
    patience: float = 1.0

    def __post_init__(self) -> None:
        if self.group < 1:
            raise StoreError(f"group must be 1 or more transactions, not {self.group}")


class Writer:
    """The one writer of a page file and its log. For one thread at a time.

    file_id: of a page file that is new; random by default.
    Raises CorruptError if the files are damaged where recovery must read them, StoreError if they cannot be read.
    """

    def __init__(
        self, pages: File, log: File, locks: Locks | None = None, limits: WriterLimits | None = None, file_id: int = 0
    ) -> None:
        self.limits = limits or WriterLimits()
        self._pages, self._log, self._locks = pages, log, locks or NoLocks()
        #: Why the last checkpoint failed that is to be tried again.
        self.last_failure: OSError | None = None
        self._pending: list[list[Change]] = []
        self._broken = ""
        self._due = 1.0
        self._file_id = file_id or int.from_bytes(os.urandom(8), "little")
        try:
            self._recover_log()
        except OSError as error:
            raise StoreError(f"the store cannot be read: {error}") from error

    # Reading

    def get(self, key: bytes) -> Record | None:
        """Return the record under `key`, transactions that are not durable yet included."""
        return self._check_ready().get(key)

    def head(self, key: bytes) -> bytes | None:
        return self._check_ready().head(key)

    def records(self) -> Iterator[Record]:
        return self._check_ready().records()

    @property
    def table(self) -> Table:
        return self._check_ready()

    @property
    def meta(self) -> Meta:
        return self._pager.meta

    @property
    def committed(self) -> int:
        """Return the LSN of the newest transaction, durable or not."""
        return self._durable.lsn + len(self._pending)

    @property
    def durable(self) -> int:
        """Return the LSN up to which everything would survive a loss of power."""
        return self._durable.lsn

    @property
    def log_bytes(self) -> int:
        return self._durable.offset

    @property
    def pages_in_memory(self) -> int:
        return self._pager.cached

    # Writing

    def commit(self, changes: list[Change]) -> int:
        """Do `changes`, all or none; return the transaction's LSN. It is durable once `durable` has reached that.

        Raises StoreError if the transaction is not stored; with `group` above 1 the message says how many before it,
        not yet acknowledged by `flush` either, went with it.
        """
        table = self._check_ready()
        for change in changes:
            check_sizes(change)
        try:
            for change in changes:
                table.apply_change(change)
        except (ElisionError, OSError) as error:
            self._forget_state(error)
            raise StoreError(f"the transaction is not stored: {error}") from error
        self._pending.append(changes)
        number = self.committed
        if len(self._pending) >= self.limits.group:
            self.flush()
        return number

    def flush(self) -> None:
        """Make every transaction so far durable. Raises StoreError if that fails; none that waited is stored then."""
        self._check_ready()
        if self._pending:
            self._flush_log()
            self._maybe_checkpoint()

    def checkpoint(self, patience: float | None = None) -> bool:
        """Bring the page file up to date and empty the log; return False if readers or the disk prevented it."""
        self.flush()
        if not self._pager.dirty and self._durable.offset <= START:
            return True
        if not self._locks.lock_alone(self.limits.patience if patience is None else patience):
            return False
        try:
            self._run_checkpoint()
        except OSError as error:
            self.last_failure = error
            return False
        finally:
            self._locks.release()
        return True

    def close(self) -> None:
        """Store what is waiting and close the files; a second time does nothing."""
        if self._broken == _CLOSED:
            return
        try:
            if not self._broken:
                self.checkpoint(patience=0)
        finally:
            self._broken = _CLOSED
            self._pages.close()
            self._log.close()

    # Inside

    def _check_ready(self) -> Table:
        if self._broken:
            raise StoreError(self._broken)
        return self._table

    def _recover_log(self) -> None:
        """Build the newest durable state from the files."""
        tail = read_log(self._log)
        meta = read_state(self._pages, self._log, tail)
        fresh = meta is None
        if meta is None:
            meta = Meta(file_id=tail.file_id or self._file_id)
        self._pager = Pager(self._pages, self._log, meta, images=tail.images, cache=self.limits.cache)
        self._table = Table(self._pager)
        self._load_images(tail)
        if fresh:
            self._table.begin()
        for change in tail.changes.values():
            self._table.apply_change(change)
        self._durable = tail.committed._replace(lsn=max(tail.committed.lsn, meta.lsn))
        self._begun = tail.file_id != 0
        if self._log.size() > self._durable.offset:
            self._log.truncate(self._durable.offset)
        self._room = self._log.size()

    def _load_images(self, tail: LogTail) -> None:
        """Make what an unfinished checkpoint wrote a part of the next one."""
        for number in tail.images:
            if number:
                self._pager.place_page(number, self._pager.fetch(number))

    def _flush_log(self) -> None:
        """Write what is pending to the log, and sync it."""
        try:
            self._write_log((TRANSACTION, encode_changes(changes)) for changes in self._pending)
        except OSError as error:
            lost = len(self._pending)
            gone = self._roll_back(error)
            if gone:
                rest = "are not"
            else:
                rest = "are not unless the power goes, in which case they may be"
            raise StoreError(f"{lost} transaction(s) could not be stored, and {rest}: {error}") from error
        self._pending = []

    def _write_log(self, frames: Iterable[tuple[int, bytes]]) -> None:
        """Append and sync, all or none. Raises OSError; the log's end is where it was then."""
        if not self._begun:
            self._start_log()
        start = self._durable.offset
        place = self._durable
        data = bytearray()
        self._reserve_room(start)
        for kind, payload in frames:
            frame, place = pack_frame(kind, payload, place)
            data += frame
            if len(data) > _BATCH * PAGE:
                self._log.write_at(start, data)
                start = place.offset
                data = bytearray()
        self._log.write_at(start, data)
        self._log.fsync()
        self._durable = place

    def _reserve_room(self, start: int) -> None:
        """Let the log grow by many transactions at once: a sync that adds no room to a file is the cheaper one."""
        if start + _AHEAD <= self._room or self._room >= self.limits.log_bytes:
            return
        step = min(_GROWTH, self.limits.log_bytes)
        try:
            self._log.write_at(self._room, bytes(step))
        except OSError:
            # There may be room for the transaction all the same.
            self._room = self._log.size()
        else:
            self._room += step

    def _start_log(self) -> None:
        lsn = self._durable.lsn
        self._log.truncate(0)
        self._begun, self._durable = False, first_position(0, lsn)
        salt = int.from_bytes(os.urandom(8), "little")
        self._durable = write_header(self._log, self.meta.file_id, salt, lsn)
        self._begun = True
        self._room = self._durable.offset

    def _maybe_checkpoint(self) -> None:
        size = max(self._durable.offset / self.limits.log_bytes, len(self._pager.dirty) / self.limits.dirty_pages)
        if size >= self._due:
            done = self.checkpoint(patience=self.limits.patience if size >= 2 else 0)
            # Who could not have the files now does not wait for them at every commit.
            self._due = 1.0 if done else size + _AGAIN

    def _run_checkpoint(self) -> None:
        meta = self.meta
        dirty = self._pager.dirty
        # The disk is asked for the room first: once images are written, the page file is only overwritten.
        self._grow_file(meta.pages * PAGE)
        start = self._durable
        lsn = self._durable.lsn
        meta.lsn = lsn
        pages = sorted({**dirty, 0: meta.pack_page()}.items())
        for number, page in pages:
            seal_page(page, number, lsn)
        try:
            self._write_images(pages)
        except OSError:
            self._durable = start
            self._cut_log()
            raise
        self._write_pages(pages)
        self._pages.fsync()
        self._start_log()
        self._pager.clear_dirty()

    def _write_images(self, pages: list[tuple[int, bytearray]]) -> None:
        images = ((IMAGES, image_payload(pages[at : at + _BATCH])) for at in range(0, len(pages), _BATCH))
        self._write_log(chain(images, [(CHECKPOINT, b"")]))

    def _write_pages(self, pages: list[tuple[int, bytearray]]) -> None:
        """Write `pages` to their places, neighbours together."""
        first = 0
        run = bytearray()
        for number, page in pages:
            if run and (number != first + len(run) // PAGE or len(run) >= _BATCH * PAGE):
                self._pages.write_at(first * PAGE, run)
                run = bytearray()
            if not run:
                first = number
            run += page
        self._pages.write_at(first * PAGE, run)

    def _grow_file(self, size: int) -> None:
        have = self._pages.size()
        while have < size:
            step = min(size - have, _BATCH * PAGE)
            self._pages.write_at(have, bytes(step))
            have += step

    def _cut_log(self) -> bool:
        """Take what was not acknowledged off the log; return whether it is gone for sure.

        If it is not, it goes with the next frame that is written, which makes what followed it void.
        """
        if not self._begun:
            return True
        try:
            self._log.truncate(self._durable.offset)
            self._room = self._durable.offset
            self._log.fsync()
        except OSError:
            return False
        return True

    def _roll_back(self, error: ElisionError | OSError) -> bool:
        """Go back to the last durable transaction, as after a crash; return whether later ones are gone for sure."""
        self._pending = []
        gone = self._cut_log()
        try:
            self._recover_log()
        except (ElisionError, OSError) as again:
            self._broken = f"the store failed ({error}) and could not be recovered ({again}); open it anew"
        return gone

    def _forget_state(self, error: ElisionError | OSError) -> None:
        """Undo a transaction that failed half-way in memory, and keep those before it."""
        if self._pending:
            self._flush_log()
        self._roll_back(error)


_CLOSED: Final = "the store is closed"
