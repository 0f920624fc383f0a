"""The writing half: records, group commit, checkpoints.

Records are entered in memory as they come, and written as one frame with one sync. If that fails, the store goes back
to what the files hold, as after a crash, and the error is raised: what it reports as not stored is not stored. A failed
checkpoint loses nothing and is tried again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from elision.errors import CorruptError, ElisionError, StoreError
from elision.stores.batch_ids import pack_batch_mark, recognize_append
from elision.stores.linear_hash.catalogue import Catalogue, SessionState, pack_session_facts
from elision.stores.linear_hash.keys import MAX_SESSION
from elision.stores.linear_hash.log import FRAME, MAX_FRAME, START, FrameWriter
from elision.stores.linear_hash.records import (
    BEGIN,
    DELETE,
    DraftRecord,
    RecordHeader,
    RecordPacker,
    draft_event,
)
from elision.stores.linear_hash.store_folder import OpenLog, StoreFolder
from elision.stores.store import NewSession
from elision.stores.store_errors import (
    missing_session_error,
    session_exists_error,
    short_parent_error,
    stale_writer_error,
)
from elision.trajectory.events import Event

#: Bytes of a group from which on it is written before it is full.
_MOST_PENDING: Final = 8 << 20


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

    def __init__(self, folder: StoreFolder, packer: RecordPacker, limits: WriterLimits) -> None:
        self._folder = folder
        self._packer = packer
        self._limits = limits
        #: Why the last checkpoint failed that is to be tried again.
        self.last_failure: OSError | None = None
        #: Why nothing can be written any more.
        self._broken = ""
        self._next_try = 0
        self._appends = 0
        self._open_log()

    @property
    def catalogue(self) -> Catalogue:
        return self.state.catalogue

    # Changing

    def create_session(self, new: NewSession, events: Sequence[Event], at: float, batch: bytes = b"") -> int:
        """Begin a session with what it shares and with `events`; return its length. batch: id of the append.

        Raises ConflictError, UnknownHandle, StoreError; TypeError if an event cannot be written as JSON.
        """
        self._check_ready()
        drafts = self._draft_events(events, new.family, batch)
        known = self.catalogue.by_key.get(new.key)
        if known is not None:
            if self._has_append(known, drafts, new.shared, batch):
                return new.shared + len(drafts)
            raise session_exists_error(new)
        parent = 0
        if new.shared:
            parent = self.find_session(new.parent).number
            if new.shared > self.find_session(new.parent).records:
                raise short_parent_error(new, self.find_session(new.parent).records)
        start = len(self.state.view.pending)
        try:
            number = self.catalogue.next_number
            if number > MAX_SESSION:
                raise StoreError(
                    f"{self._folder.path}: no more than {MAX_SESSION:,} sessions can be begun in one store"
                )
            facts = pack_session_facts(new, parent)
            self._add_record(*self._packer.pack_session(BEGIN, number, new.at, facts, self._find_place()))
            self._add_events(self.catalogue.by_key[new.key], drafts, at)
        except (ElisionError, OSError) as error:
            self._forget_append(start, error)
            raise
        self._end_append()
        return new.shared + len(drafts)

    def append_events(self, key: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        """Add `events` to a session; return its length. Raises as `create_session` does."""
        self._check_ready()
        session = self.find_session(key)
        drafts = self._draft_events(events, session.family, batch)
        if session.records != after:
            if self._has_append(session, drafts, after, batch):
                return after + len(drafts)
            raise stale_writer_error(key, session.records, after)
        if not drafts:
            return after
        start = len(self.state.view.pending)
        try:
            self._add_events(session, drafts, at)
        except (ElisionError, OSError) as error:
            self._forget_append(start, error)
            raise
        self._end_append()
        return after + len(drafts)

    def delete_session(self, key: str) -> None:
        self._check_ready()
        session = self.find_session(key)
        self._add_record(*self._packer.pack_session(DELETE, session.number, session.changed, (), self._find_place()))
        self._end_append()

    def find_session(self, key: str) -> SessionState:
        """Return the session called `key`. Raises UnknownHandle."""
        session = self.catalogue.by_key.get(key)
        if session is None:
            raise missing_session_error(key)
        return session

    # Making durable

    def flush(self) -> None:
        """Make every append so far durable. Raises StoreError if that fails; none that waited is stored then."""
        self._check_ready()
        self._write_pending()
        self._maybe_checkpoint()

    def checkpoint(self) -> bool:
        """Bring the directory's file up to date; return False if the disk prevented it."""
        self._check_ready()
        self._write_pending()
        if self.state.directory_offset == self._log.end:
            return True
        try:
            self._folder.save_directory(self.state, self._log.end)
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
                    self._log.cut_tail()
        finally:
            self._broken = _CLOSED
            self.state.file.close()

    def discard(self) -> None:
        """Close the file, whose place a new one has taken."""
        self._broken = _CLOSED
        self.state.file.close()

    @property
    def log_bytes(self) -> int:
        """Return the bytes of the log, without the room that is reserved."""
        return self._log.end + FRAME + len(self.state.view.pending)

    # Inside

    def _open_log(self) -> None:
        """Read the files and remove what a crash left. Raises CorruptError, StoreError."""
        try:
            self._folder.make_log()
            state = self._folder.open_log(self._packer, writable=True)
            assert state is not None
            if state.reader.is_cut():
                state.file.close()
                raise CorruptError(
                    f"{self._folder.values}: the log was cut: it has no end mark; run `elision store fsck --repair`"
                )
            self.state: OpenLog = state
            self._log = FrameWriter(state.reader)
        except OSError as error:
            raise StoreError(f"{self._folder.path}: the store cannot be written: {error}") from error
        self._begin_frame()

    def _begin_frame(self) -> None:
        view = self.state.view
        view.pending = bytearray()
        view.pending_start = self._log.end + FRAME

    def _draft_events(self, events: Sequence[Event], family: str, batch: bytes) -> list[DraftRecord]:
        """Return `events` ready to be added by the append `batch`. Nothing is changed if one cannot be written."""
        drafts = [draft_event(event, self.catalogue.keys, family) for event in events]
        if drafts:
            drafts[0].mark = pack_batch_mark(batch, len(drafts))
        return drafts

    def _has_append(self, session: SessionState, drafts: Sequence[DraftRecord], after: int, batch: bytes) -> bool:
        """Return whether the append `batch` wrote `drafts` after record `after`.

        Raises StoreError if it wrote others.
        """
        mark = b""
        if batch and 0 <= after < session.records:
            mark = self.state.read_batch_mark(session, after + 1)
        given = [(draft.value, list(draft.texts)) for draft in drafts]

        def read_drafts() -> list[tuple[bytes, list[bytes]]]:
            last = min(after + len(drafts), session.records)
            found = [self.state.read_draft(self._packer, session, number) for number in range(after + 1, last + 1)]
            return [(draft.value, list(draft.texts)) for draft, _ in found]

        return recognize_append(session.key, batch, mark, given, read_drafts)

    def _add_events(self, session: SessionState, drafts: Sequence[DraftRecord], at: float) -> None:
        for number, draft in enumerate(drafts, start=session.records + 1):
            place = self._find_place()
            packed = self._packer.pack_event(draft, session.number, number, at, self.catalogue.find_text, place)
            self._add_record(*packed)

    def _find_place(self) -> int:
        """Return where the next record will be in the log."""
        return self.state.view.pending_start + len(self.state.view.pending)

    def _add_record(self, header: RecordHeader, record: bytes) -> None:
        view = self.state.view
        if len(view.pending) + len(record) > MAX_FRAME:
            raise StoreError(f"an append of more than {MAX_FRAME:,} bytes does not fit; append fewer events at once")
        view.pending += record
        self.catalogue.enter_record(header, record)

    def _end_append(self) -> None:
        self._appends += 1
        if self._appends >= self._limits.group or len(self.state.view.pending) >= _MOST_PENDING:
            self.flush()

    def _write_pending(self) -> None:
        pending = self.state.view.pending
        if not pending:
            return
        lost = self._appends
        self._appends = 0
        try:
            self._log.write_frame(pending)
        except OSError as error:
            self._roll_back(error)
            raise StoreError(f"{lost} append(s) could not be stored, and are not: {error}") from error
        self._begin_frame()

    def _forget_append(self, start: int, error: Exception) -> None:
        """Undo an append that failed half-way in memory, and keep those before it."""
        del self.state.view.pending[start:]
        self._write_pending()
        self._roll_back(error)

    def _roll_back(self, error: Exception) -> None:
        """Go back to what the files hold."""
        self._appends = 0
        self.state.file.close()
        try:
            self._open_log()
        except ElisionError as again:
            self._broken = f"the store failed ({error}) and could not be opened again ({again}); open it anew"

    def _maybe_checkpoint(self) -> None:
        behind = self._log.end - max(self.state.directory_offset, START)
        due = max(self._limits.log_bytes, self.catalogue.directory_bytes, self._next_try)
        if behind >= due:
            # A disk that is full is not asked at every append.
            self._next_try = 0 if self.checkpoint() else behind + self._limits.log_bytes // 4

    def _check_ready(self) -> None:
        if self._broken:
            raise StoreError(self._broken)


_CLOSED: Final = "the store is closed"
