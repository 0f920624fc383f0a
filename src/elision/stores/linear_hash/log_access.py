"""Access to a store's log: this process reads it, or writes it once it has the writer's lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Final

from elision.errors import StoreError
from elision.stores.disk_checks import check_disk
from elision.stores.linear_hash.check import check_store
from elision.stores.linear_hash.compaction import rewrite_log
from elision.stores.linear_hash.open_log import OpenLog, make_empty_log
from elision.stores.linear_hash.store_folder import StoreFolder, WriterLock
from elision.stores.linear_hash.writer import Writer, WriterLimits
from elision.stores.store import Finding
from elision.stores.store_errors import (
    closed_store_error,
    missing_session_error,
    read_only_store_error,
    vanished_store_error,
)
from elision.trajectory.events import Event

#: Records that are read at once.
_CHUNK: Final = 64
#: Share of unused bytes from which on a compaction is worth it, and from which on a new session begins with one.
_WASTE: Final = 0.02
_TOO_MUCH_WASTE: Final = 0.5
#: Bytes of a log from which on a new session compacts it.
_WORTH_COMPACTING: Final = 1 << 20


class LogAccess:
    """The log in `folder`. Several threads may use it, one at a time. read_only: nothing is ever written.

    `with access as log` has the newest state: what this process wrote, or what others committed. Errors of the file
    system are StoreErrors there.
    """

    def __init__(self, folder: StoreFolder, limits: WriterLimits, *, read_only: bool = False) -> None:
        self.folder = folder
        self._is_read_only = read_only
        self._limits = limits
        #: Held while the log is used.
        self.lock = threading.RLock()
        self._is_open = True
        self._seen: OpenLog | None = None
        self._writer_lock: WriterLock | None = None
        self._writer: Writer | None = None
        #: Whether this process has had the log open for writing, so that one that is missing is no new store.
        self._was_written = False

    def __enter__(self) -> OpenLog:
        self.lock.acquire()
        try:
            self._check_open()
            if self._writer is None or self._writer.is_broken:
                return self._refresh_seen()
            return self._writer.log
        except BaseException as error:
            self.lock.release()
            if isinstance(error, OSError):
                raise self._make_read_error(error) from error
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.lock.release()
        if isinstance(error, OSError):
            raise self._make_read_error(error) from error

    def write(self, *, begins_session: bool = False) -> Writer:
        """Return the writer, which this process becomes if it is not.

        begins_session: the log is compacted if deleted sessions take up most of it. Raises ConflictError if another
        process is the writer; StoreError, also where the store was opened for reading alone.
        """
        with self.lock:
            self._check_open()
            self.check_writable()
            self._check_folder()
            if self._writer_lock is None:
                self._become_writer()
            assert self._writer_lock is not None
            self._writer_lock.check()
            if self._writer is None:
                self._writer = Writer(self.folder, self._limits)
            unused = self._writer.log.catalogue.unused_bytes
            log_bytes = self._writer.log.log_bytes
            if begins_session and log_bytes > _WORTH_COMPACTING and unused > log_bytes * _TOO_MUCH_WASTE:
                self._compact_log(self._writer)
            return self._writer

    def check_writable(self) -> None:
        """Raise StoreError where the store was opened for reading alone."""
        if self._is_read_only:
            raise read_only_store_error(str(self.folder.path))

    def check_writes(self, *, is_tried: bool) -> None:
        """Raise StoreError where nothing can be written now; this process becomes the writer if it can.

        is_tried: write a file beside the log, durably, and remove it.
        """
        with self.lock:
            self.write()
            check_disk(self.folder.path)
            if is_tried:
                try:
                    self.folder.try_write()
                except OSError as error:
                    raise StoreError(f"{self.folder.path}: the store cannot be written ({error.strerror})") from error

    def iterate_events(self, key: str, number: int, first: int, last: int) -> Iterator[Event]:
        """Yield records first … last of the session `key`, whose number that is. Raises UnknownHandle, CorruptError."""
        for start in range(first, last + 1, _CHUNK):
            with self as log:
                session = log.catalogue.find_number(number)
                if session is None:
                    raise missing_session_error(key)
                numbers = range(start, min(start + _CHUNK, last + 1))
                chunk = [log.view.read_event(log.find_record(session, each)) for each in numbers]
            yield from chunk

    def is_above(self, limit: int) -> bool:
        """Return whether more than `limit` bytes are stored, once those that nothing uses are given back."""
        with self as log:
            if log.used_bytes <= limit < log.stored_bytes:
                self.compact()
        with self as log:
            return log.stored_bytes > limit

    def flush(self) -> None:
        """Make every append so far durable."""
        with self.lock:
            if self._writer:
                self._writer.flush()

    def check(self) -> list[Finding]:
        """Return what is wrong in the files. Raises StoreError."""
        with self.lock:
            self._check_open()
            self.flush()
            try:
                return check_store(self.folder)
            except OSError as error:
                raise self._make_read_error(error) from error

    def compact(self) -> int:
        """Give back the bytes that nothing uses; return how many. Raises StoreError."""
        with self.lock:
            writer = self.write()
            before = writer.log.stored_bytes
            if writer.log.catalogue.unused_bytes > writer.log.log_bytes * _WASTE:
                self._compact_log(writer)
            elif not writer.checkpoint():
                raise StoreError(f"{self.folder.path}: the disk is full; compact the store later")
            return max(0, before - self.write().log.stored_bytes)

    def close(self) -> None:
        with self.lock:
            self._is_open = False
            writer = self._writer
            lock = self._writer_lock
            self._writer = self._writer_lock = None
            try:
                if writer:
                    writer.close()
            finally:
                self._forget_seen()
                if lock:
                    lock.close()

    def _refresh_seen(self) -> OpenLog:
        """Return the log as it is now. Where the directory was written anew it is mapped anew."""
        seen = self._seen
        if seen is None or not self.folder.is_current(seen.file):
            return self._open_seen()
        if seen.reader.has_more():
            if self.folder.has_new_directory(seen):
                return self._open_seen()
            seen.follow()
        return seen

    def _open_seen(self) -> OpenLog:
        self._forget_seen()
        self._seen = self.folder.open_log() if self.folder.has_log() else make_empty_log()
        return self._seen

    def _forget_seen(self) -> None:
        if self._seen is not None:
            self._seen.close()
            self._seen = None

    def _check_folder(self) -> None:
        """Let go of a log that is no longer in the folder: what is written to it would be lost when it is closed.

        Raises StoreError where none is there any more. Another one is read anew.
        """
        if self._writer is not None and self._writer.is_broken:
            # Its files are closed. The cause may be gone: a writer that begins anew finds out.
            self._writer = None
        if self._writer is not None and not self.folder.is_current(self._writer.log.file):
            self._writer.discard()
            self._writer = None
        if self._writer_lock is not None and not self._writer_lock.is_current():
            self._writer_lock.close()
            self._writer_lock = None
            self._writer = None
        # A folder in which somebody else has made a lock is a new store; one without a log, and with ours, is not.
        is_new = self._writer_lock is None and self.folder.lock.exists()
        if self._was_written and not self.folder.has_log() and not is_new:
            raise vanished_store_error(str(self.folder.path))

    def _become_writer(self) -> None:
        try:
            lock = WriterLock(self.folder.lock)
        except OSError as error:
            raise StoreError(f"{self.folder.path}: the store cannot be written: {error}") from error
        try:
            self._writer = Writer(self.folder, self._limits)
            self._writer_lock = lock
            self._was_written = True
        finally:
            if self._writer_lock is None:
                lock.close()
        self._forget_seen()

    def _compact_log(self, writer: Writer) -> None:
        """Write the living sessions to a new log, and continue with that one. Raises StoreError."""
        writer.flush()
        try:
            self.folder.swap_log(rewrite_log(self.folder, writer.log))
        except OSError as error:
            raise StoreError(f"{self.folder.path}: the store cannot be compacted: {error}") from error
        writer.discard()
        self._writer = None
        self._writer = Writer(self.folder, self._limits)
        self._writer.checkpoint()

    def _check_open(self) -> None:
        if not self._is_open:
            raise closed_store_error(str(self.folder.path))

    def _make_read_error(self, error: OSError) -> StoreError:
        return StoreError(f"{self.folder.path}: the store cannot be read: {error}")
