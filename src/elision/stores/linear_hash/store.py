"""The linear-hash store: sessions in a log of values, with linear hashing as its directory.

Any process may open it and read, beside any other. The first call that writes takes the writer's lock and keeps it
until the store is closed: one process writes, and a second one gets a ConflictError at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from elision.errors import CorruptError, StoreError
from elision.stores.linear_hash.check import check_store
from elision.stores.linear_hash.folder import OpenLog, StoreFolder, WriterLock, make_empty_log
from elision.stores.linear_hash.writer import Writer, WriterLimits, rewrite_log
from elision.stores.packing import check_batch_id
from elision.stores.store import Finding, Footprint, NewSession, PurgeResult, SessionInfo
from elision.stores.store_base import StoreBase
from elision.stores.store_errors import (
    check_disk,
    closed_store_error,
    missing_observation_error,
    missing_session_error,
    read_only_store_error,
    vanished_store_error,
)
from elision.trajectory.events import Event, PassDecided, decode_observation
from elision.trajectory.plan import Key
from elision.trajectory.turn import Observation, Turn

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
                session = log.catalogue.by_number.get(number)
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


@dataclass(frozen=True, slots=True)
class PlaceholderRecord:
    """What stands in views for a tool result. place: offset of the decision in the log."""

    key: Key
    placeholder: str
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """load: share of the buckets' first pages that entries fill. lookups, bucket_reads, value_reads: in this process
    since it opened the store, pages found in memory included; a value is one record of the log.
    """

    entries: int = 0
    buckets: int = 0
    overflow_pages: int = 0
    directory_bytes: int = 0
    log_bytes: int = 0
    load: float = 0.0
    lookups: int = 0
    bucket_reads: int = 0
    value_reads: int = 0

    @property
    def pages_per_lookup(self) -> float:
        """Return the bucket pages read per lookup."""
        if self.lookups:
            return self.bucket_reads / self.lookups
        return 0.0


class LinearHashStore(StoreBase):
    """Keeps sessions in `folder`. For several threads.

    limits: with the default, an append is durable when it returns. `WriterLimits(group=64)` syncs once per 64 appends:
    then an append is durable only after `flush`, and a crash before it may lose up to 63 appends. read_only: the folder
    must be there, and nothing in it is written.
    """

    def __init__(self, folder: str | Path, limits: WriterLimits | None = None, *, read_only: bool = False) -> None:
        self._folder = StoreFolder(Path(folder))
        self._access = LogAccess(self._folder, limits or WriterLimits(), read_only=read_only)
        if read_only:
            self._folder.check_readable()
            return
        self._folder.make_folder()
        self._folder.check_writable()

    # Writing

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        with self._access.lock:
            return self._access.write(begins_session=True).create_session(session, events, at, batch)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        with self._access.lock:
            return self._access.write().append_events(session, events, after=after, at=at, batch=batch)

    def flush(self) -> None:
        """Make every append so far durable; of use with `group` above 1."""
        self._access.flush()

    def delete(self, session: str) -> None:
        with self._access.lock:
            self._access.write().delete_session(session)

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> PurgeResult:
        self._access.check_writable()
        gone: list[str] = []
        with self._access as log:
            before = log.used_bytes
            for info in reversed(self.sessions()):
                old = older_than is not None and info.changed < older_than
                if old or (max_bytes is not None and self._access.is_above(max_bytes)):
                    self.delete(info.key)
                    gone.append(info.key)
        with self._access as log:
            if max_bytes is not None and log.stored_bytes > max_bytes:
                self.compact()
        with self._access as log:
            freed = before - log.used_bytes if gone else 0
        return PurgeResult(sessions=tuple(gone), freed_bytes=max(0, freed))

    def compact(self) -> int:
        return self._access.compact()

    def check_writes(self, *, is_tried: bool) -> None:
        self._access.check_writes(is_tried=is_tried)

    def close(self) -> None:
        self._access.close()

    # Reading

    def length(self, session: str) -> int:
        with self._access as log:
            return log.find_session(session).records

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        with self._access as log:
            found = log.find_session(session)
            return self._access.iterate_events(session, found.number, max(0, after) + 1, found.records)

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        with self._access as log:
            found = log.find_session(session)
            newest = found.newest if last is None else last
            return [log.read_turn(offset) for offset in log.find_turns(found, first, newest)]

    def observation(self, session: str, key: Key) -> Observation:
        """Return one raw observation; nothing else of its turn is decoded."""
        with self._access as log:
            offset = log.catalogue.find_turn(log.find_session(session), key[0])
            if offset is not None:
                value = log.view.read_value(offset)
        if offset is not None:
            results = value.get("observations", ())
            if 1 <= key[1] <= len(results):
                try:
                    return decode_observation(results[key[1] - 1])
                except ValueError as error:
                    raise CorruptError(f"the record at byte {offset} cannot be read: {error}") from error
        raise missing_observation_error(session, key)

    def find_observation(self, session: str, key: Key) -> PlaceholderRecord:
        """Return the placeholder of a tool result that is masked, without reading the result.

        Raises UnknownHandle if it is not there or was never masked.
        """
        with self._access as log:
            found = log.find_session(session)
            turn = log.catalogue.find_turn(found, key[0])
            mask = log.catalogue.find_mask(found, *key)
            if turn is not None and mask is not None and mask[0] > turn:
                event = log.view.read_event(mask[0])
                if isinstance(event, PassDecided):
                    return PlaceholderRecord(key, event.masks[mask[1]].text, mask[0])
        raise missing_observation_error(session, key)

    @contextmanager
    def open_newest_turns(self, session: str, words: Sequence[str]) -> Iterator[Iterator[Turn]]:
        with self._access as log:
            found = log.find_session(session)
            yield map(log.read_turn, reversed(log.find_turns(found, 1, found.newest)))

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        with self._access as log:
            for node in filter(None, reversed(nodes)):
                known = log.catalogue.find_holders(family, node)
                if known:
                    newest = max(known, key=lambda each: (each[0].changed, each[0].key, each[1]))
                    return newest[0].key, newest[1]
            recovered = log.catalogue.find_recovered(family, nodes)
        if recovered is not None:
            raise CorruptError(f"the beginning of this history's session is lost; its turns are {recovered.key!r} now")
        return None

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        since = float("-inf") if changed_since is None else changed_since
        with self._access as log:
            found = [
                session.info()
                for session in log.catalogue.by_key.values()
                if session.changed >= since and session.family.startswith(family_prefix)
            ]
        return sorted(found, key=lambda info: (info.changed, info.key), reverse=True)

    def info(self, session: str) -> SessionInfo:
        with self._access as log:
            return log.find_session(session).info()

    def footprint(self) -> Footprint:
        with self._access as log:
            sessions = list(log.catalogue.by_key.values())
            stored = log.stored_bytes
        return Footprint(
            sessions=len(sessions),
            records=sum(session.records for session in sessions),
            turns=sum(session.turns for session in sessions),
            texts=sum(session.texts for session in sessions),
            raw_bytes=sum(session.raw_bytes for session in sessions),
            stored_bytes=stored,
        )

    def check(self) -> list[Finding]:
        return self._access.check()

    def statistics(self) -> Statistics:
        """Return the sizes of the directory and the work of lookups in this process."""
        with self._access as log:
            directory = log.catalogue.directory
            directory.settle()
            return Statistics(
                entries=directory.entries,
                buckets=directory.buckets,
                overflow_pages=directory.pages.count - 1 - directory.buckets,
                directory_bytes=log.catalogue.directory_bytes,
                log_bytes=log.log_bytes,
                load=directory.load,
                lookups=directory.lookups,
                bucket_reads=directory.pages_read,
                value_reads=log.view.values_read,
            )
