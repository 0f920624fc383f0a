"""The writing half: appends, group commit, checkpoints, and compaction.

Records are entered in memory as they come, and written as one frame with one sync. If that fails, the store goes back
to what the files hold, as after a crash, and the error is raised: what it reports as not stored is not stored. A failed
checkpoint loses nothing and is tried again.

A compaction writes the living sessions to a new log. They keep their numbers, and come in the order in which they
began; so a fork comes after its parent. A fork whose parent is there, with the same records at its beginning, shares
them again. Any other one gets records of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from elision.errors import ElisionError, StoreError
from elision.stores.linear_hash.catalogue import Catalogue, SessionState, pack_session_facts
from elision.stores.linear_hash.directory import MAX_SESSION
from elision.stores.linear_hash.folder import OpenLog, StoreFolder, open_log_file
from elision.stores.linear_hash.log import FRAME, MAX_FRAME, START, FrameWriter, write_log_header
from elision.stores.linear_hash.records import BEGIN, DELETE, DraftRecord, RecordHeader, draft_event
from elision.stores.packing import pack_batch_mark, recognize_append
from elision.stores.store import NewSession
from elision.stores.store_errors import (
    REPAIR_COMMAND,
    DamagedStoreError,
    session_exists_error,
    short_parent_error,
    stale_writer_error,
)
from elision.trajectory.events import Event

#: Bytes of a frame from which on it is written before it is full.
MOST_WAITING: Final = 8 << 20
_CLOSED: Final = "the store is closed"
#: Bytes of a frame.
_FRAME_BYTES: Final = 1 << 20


class FrameBuilder:
    """Adds records to `log`, which was read to its end. Raises OSError."""

    def __init__(self, log: OpenLog) -> None:
        self._log = log
        self._writer = FrameWriter(log.reader)
        self._begin_frame()

    @property
    def waiting(self) -> int:
        """Return the bytes of records that are not written yet."""
        return len(self._log.view.pending)

    def add_session(self, kind: int, number: int, at: float, facts: Sequence[Any] = ()) -> None:
        """Add a record that begins or deletes a session. Raises StoreError if the frame is full."""
        self._add_record(*self._log.view.packer.pack_session(kind, number, at, facts, self._find_place()))

    def add_event(self, draft: DraftRecord, session: int, number: int, at: float) -> None:
        """Add record `number` of a session. Raises StoreError if the frame is full."""
        find_text = self._log.catalogue.find_text
        packed = self._log.view.packer.pack_event(draft, session, number, at, find_text, self._find_place())
        self._add_record(*packed)

    def write_frame(self) -> None:
        """Write what waits, durably."""
        if self.waiting:
            self._writer.write_frame(self._log.view.pending)
            self._begin_frame()

    def drop_records(self, start: int) -> None:
        """Forget the records that were added after `start` bytes. The catalogue is not what is written any more."""
        del self._log.view.pending[start:]

    def cut_tail(self) -> None:
        """Give the reserved room back."""
        self._writer.cut_tail()

    def _begin_frame(self) -> None:
        self._log.view.pending = bytearray()
        self._log.view.pending_start = self._log.reader.end + FRAME

    def _find_place(self) -> int:
        """Return where the next record will be in the log."""
        return self._log.view.pending_start + self.waiting

    def _add_record(self, header: RecordHeader, record: bytes) -> None:
        if self.waiting + len(record) > MAX_FRAME:
            raise StoreError(f"an append of more than {MAX_FRAME:,} bytes does not fit; append fewer events at once")
        self._log.view.pending += record
        self._log.catalogue.enter_record(header, record)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterLimits:
    """When a writer does what.

    group:     appends per sync of the log; 1: each is durable when it returns.
    log_bytes: written since the last checkpoint from which on one is due; more if the directory is larger than that.
    """

    group: int = 1
    log_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        if self.group < 1:
            raise StoreError(f"group must be 1 or more appends, not {self.group}")


class Writer:
    """The one writer of a folder, whose lock the caller holds. For one thread at a time.

    Raises CorruptError if the log was cut, StoreError if it cannot be read.
    """

    def __init__(self, folder: StoreFolder, limits: WriterLimits) -> None:
        self._folder = folder
        self._limits = limits
        #: Why the last checkpoint failed that is to be tried again.
        self.last_failure: OSError | None = None
        #: Why nothing can be written any more.
        self._broken = ""
        self._next_try = 0
        self._appends = 0
        self._open_log()

    @property
    def is_broken(self) -> bool:
        """Return whether nothing can be written through this writer any more: another one may be able to."""
        return bool(self._broken)

    # Changing

    def create_session(self, new: NewSession, events: Sequence[Event], at: float, batch: bytes = b"") -> int:
        """Begin a session with what it shares and with `events`; return its length. batch: id of the append.

        Raises ConflictError, UnknownHandle, StoreError; TypeError if an event cannot be written as JSON.
        """
        self._check_ready()
        drafts = self._draft_events(events, new.family, batch)
        known = self.log.catalogue.by_key.get(new.key)
        if known is not None:
            if self._has_append(known, events, new.shared, batch):
                return new.shared + len(drafts)
            raise session_exists_error(new)
        parent = 0
        if new.shared:
            origin = self.log.find_session(new.parent)
            if new.shared > origin.records:
                raise short_parent_error(new, origin.records)
            parent = origin.number
        number = self.log.catalogue.next_number
        if number > MAX_SESSION:
            raise StoreError(f"{self._folder.path}: no more than {MAX_SESSION:,} sessions can be begun in one store")
        start = self._frame.waiting
        try:
            self._frame.add_session(BEGIN, number, new.at, pack_session_facts(new, parent))
            self._add_events(self.log.catalogue.by_key[new.key], drafts, at)
        except (ElisionError, OSError) as error:
            self._forget_append(start, error)
            raise
        self._end_append()
        return new.shared + len(drafts)

    def append_events(self, key: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        """Add `events` to a session; return its length. Raises as `create_session` does."""
        self._check_ready()
        session = self.log.find_session(key)
        drafts = self._draft_events(events, session.family, batch)
        if session.records != after:
            if self._has_append(session, events, after, batch):
                return after + len(drafts)
            raise stale_writer_error(key, session.records, after)
        if not drafts:
            return after
        start = self._frame.waiting
        try:
            self._add_events(session, drafts, at)
        except (ElisionError, OSError) as error:
            self._forget_append(start, error)
            raise
        self._end_append()
        return after + len(drafts)

    def delete_session(self, key: str) -> None:
        self._check_ready()
        session = self.log.find_session(key)
        self._frame.add_session(DELETE, session.number, session.changed)
        self._end_append()

    # Making durable

    def flush(self) -> None:
        """Make every append so far durable. Raises StoreError if that fails; none that waited is stored then."""
        self._check_ready()
        self._write_frame()
        behind = self.log.reader.end - max(self.log.directory_offset, START)
        is_due = behind >= max(self._limits.log_bytes, self._next_try)
        if is_due and behind >= self.log.catalogue.directory_bytes:
            # A disk that is full is not asked at every append.
            self._next_try = 0 if self.checkpoint() else behind + self._limits.log_bytes // 4

    def checkpoint(self) -> bool:
        """Bring the directory's file up to date; return False if the disk prevented it."""
        self._check_ready()
        self._write_frame()
        if self.log.directory_offset == self.log.reader.end:
            return True
        try:
            self._folder.save_directory(self.log)
        except OSError as error:
            self.last_failure = error
            return False
        return True

    def close(self) -> None:
        """Store what is waiting and close the file; a second time does nothing."""
        if self._broken == _CLOSED:
            return
        try:
            if not self._broken:
                self.checkpoint()
                with suppress(OSError):
                    self._frame.cut_tail()
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the file as it is."""
        self._broken = _CLOSED
        self.log.close()

    # Inside

    def _open_log(self) -> None:
        """Read the files and remove what a crash left. Raises CorruptError, StoreError."""
        try:
            # Before it is opened: a folder that is replaced meanwhile is found to be another one.
            identity = self._folder.identity
            self._folder.make_log()
            log = self._folder.open_log(writable=True)
            if log.reader.is_cut():
                log.close()
                what = f"the log was cut: it has no end mark; nothing is written before `{REPAIR_COMMAND}`"
                raise DamagedStoreError(what, self._folder.path, identity)
            self.log = log
            self._frame = FrameBuilder(log)
        except OSError as error:
            raise StoreError(f"{self._folder.path}: the store cannot be written: {error}") from error

    def _draft_events(self, events: Sequence[Event], family: str, batch: bytes) -> list[DraftRecord]:
        """Return `events` ready to be added by the append `batch`. Nothing is changed if one cannot be written."""
        drafts = [draft_event(event, self.log.catalogue.keys, family) for event in events]
        if drafts:
            drafts[0].mark = pack_batch_mark(batch, len(drafts))
        return drafts

    def _has_append(self, session: SessionState, events: Sequence[Event], after: int, batch: bytes) -> bool:
        """Return whether the append `batch` wrote `events` after record `after`.

        Raises StoreError if it wrote others.
        """
        mark = b""
        if batch and 0 <= after < session.records:
            mark = self.log.read_batch_mark(session, after + 1)

        def read_stored() -> list[Event]:
            numbers = range(after + 1, after + len(events) + 1)
            return [self.log.view.read_event(self.log.find_record(session, number)) for number in numbers]

        return recognize_append(session.key, batch, mark, events, read_stored)

    def _add_events(self, session: SessionState, drafts: Sequence[DraftRecord], at: float) -> None:
        for number, draft in enumerate(drafts, start=session.records + 1):
            self._frame.add_event(draft, session.number, number, at)

    def _end_append(self) -> None:
        self._appends += 1
        if self._appends >= self._limits.group or self._frame.waiting >= MOST_WAITING:
            self.flush()

    def _write_frame(self) -> None:
        lost = self._appends
        self._appends = 0
        try:
            self._frame.write_frame()
        except OSError as error:
            self._roll_back(error)
            raise StoreError(f"{lost} append(s) could not be stored, and are not: {error}") from error

    def _forget_append(self, start: int, error: Exception) -> None:
        """Undo an append that failed half-way in memory, and keep those before it."""
        self._frame.drop_records(start)
        self._write_frame()
        self._roll_back(error)

    def _roll_back(self, error: Exception) -> None:
        """Go back to what the files hold."""
        self._appends = 0
        self.log.close()
        try:
            self._open_log()
        except ElisionError as again:
            self._broken = f"the store failed ({error}) and could not be opened again ({again}); open it again"

    def _check_ready(self) -> None:
        if self._broken:
            raise StoreError(self._broken)


def rewrite_log(
    folder: StoreFolder,
    source: OpenLog,
    read_draft: Callable[[SessionState, int], tuple[DraftRecord, float] | None] | None = None,
) -> Path:
    """Write the living sessions of `source` to a new log, `values.new` of the folder; return its path.

    read_draft: record of a session by its number, and when it was written; None ends the session. Without it, a record
    that cannot be read raises CorruptError. Raises OSError. Nothing is left of the new log then.
    """
    read = read_draft or source.read_draft
    file = folder.create_file("values.new")
    try:
        write_log_header(file, source.reader.key_id)
        fresh = open_log_file(file)
        frame = FrameBuilder(fresh)
        for session in sorted(source.catalogue.by_key.values(), key=lambda each: each.number):
            parent, shared = _find_shared(source.catalogue, fresh.catalogue, session)
            new = NewSession(
                key=session.key,
                family=session.family,
                parent=session.parent,
                relation=session.relation,
                at=session.begun,
                shared=shared,
            )
            frame.add_session(BEGIN, session.number, session.changed, pack_session_facts(new, parent))
            for number in range(shared + 1, session.records + 1):
                found = read(session, number)
                if found is None:
                    break
                draft, at = found
                frame.add_event(draft, session.number, number, at)
                if frame.waiting >= _FRAME_BYTES:
                    frame.write_frame()
        frame.write_frame()
        frame.cut_tail()
    except BaseException:
        file.path.unlink(missing_ok=True)
        raise
    finally:
        file.close()
    return file.path


def _find_shared(old: Catalogue, new: Catalogue, session: SessionState) -> tuple[int, int]:
    """Return the parent's number and how many records of it a session still shares."""
    parent = old.by_key.get(session.parent)
    if not session.parent or parent is None or parent.number >= session.number:
        return 0, 0
    limit = min(session.records, new.by_key[parent.key].records)
    shared = 0
    while shared < limit:
        place = old.find_record(session.number, shared + 1)
        if place is None or place != old.find_record(parent.number, shared + 1):
            break
        shared += 1
    return (parent.number, shared) if shared else (0, 0)
