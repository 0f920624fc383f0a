"""A log as a process has it open: its file, what its records add up to, and how they are read by session."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elision.errors import CorruptError
from elision.stores.linear_hash.catalogue import Catalogue, SessionState
from elision.stores.linear_hash.file_access import File, OsFile
from elision.stores.linear_hash.log import FRAME, FrameReader
from elision.stores.linear_hash.log_view import LogView
from elision.stores.linear_hash.records import DraftRecord, RecordHeader, iterate_records
from elision.stores.store_errors import missing_session_error
from elision.trajectory.events import TurnAdded, TurnAmended
from elision.trajectory.turn import Turn


@dataclass(slots=True)
class OpenLog:
    """A log, read to its end.

    directory_offset: how much of the log the directory's file has. directory_inode: of that file, 0 for
    none. directory_error: why it could not be used.
    """

    file: File
    reader: FrameReader
    view: LogView
    catalogue: Catalogue
    directory_offset: int = 0
    directory_inode: int = 0
    directory_error: str = ""

    def close(self) -> None:
        """Close the files."""
        self.file.close()
        self.catalogue.directory.pages.close()

    def follow(self) -> None:
        """Enter the frames that were written since. Raises CorruptError."""
        for frame in self.reader.iterate_frames():
            for header in iterate_records(frame.data, frame.start):
                start = header.place - frame.start
                try:
                    self.catalogue.enter_record(header, frame.data[start : start + header.size])
                except CorruptError:
                    if not frame.is_damaged:
                        raise

    @property
    def log_bytes(self) -> int:
        """Return the bytes of the log, without the room that is reserved."""
        return self.reader.end + FRAME + len(self.view.pending)

    @property
    def stored_bytes(self) -> int:
        """Return the bytes of the log and of the directory."""
        return self.log_bytes + self.catalogue.directory_bytes

    @property
    def used_bytes(self) -> int:
        """Return the stored bytes that sessions use."""
        return self.stored_bytes - self.catalogue.unused_bytes

    def find_session(self, key: str) -> SessionState:
        """Return the session called `key`. Raises UnknownHandle."""
        session = self.catalogue.by_key.get(key)
        if session is None:
            raise missing_session_error(key)
        return session

    def find_record(self, session: SessionState, number: int) -> int:
        """Return the offset of a record. Raises CorruptError if it is missing."""
        offset = self.catalogue.find_record(session.number, number)
        if offset is None:
            raise CorruptError(f"record {number} of session {session.key!r} is missing")
        return offset

    def find_turns(self, session: SessionState, first: int, last: int) -> list[int]:
        """Return the offsets of the newest records of turns first … last."""
        first = max(1, first)
        last = min(last, session.newest)
        indices: Sequence[int] = range(first, last + 1)
        if session.turns != session.newest:
            indices = self._list_turns(session, first, last)
        offsets = [self.catalogue.find_turn(session, index) for index in indices]
        return [offset for offset in offsets if offset is not None]

    def read_turn(self, offset: int) -> Turn:
        """Return the turn of a record. Raises CorruptError."""
        event = self.view.read_event(offset)
        if not isinstance(event, TurnAdded | TurnAmended):
            raise CorruptError(f"the record at byte {offset} is no turn")
        return event.turn

    def read_draft(
        self, session: SessionState, number: int, read_text: Callable[[int], bytes] | None = None
    ) -> tuple[DraftRecord, float]:
        """Return a record of a session, and when it was written. Raises CorruptError.

        read_text: a large text by its place; by default as the log has it.
        """
        header, data = self._read_numbered(session, number)
        draft = self.view.packer.unpack_draft(header, data, read_text or self.view.read_text)
        if header.session == session.number:
            return draft, header.at
        # A fork was not changed when its parent's records were written, and does not have the ids of their appends.
        draft.mark = b""
        return draft, session.begun

    def read_batch_mark(self, session: SessionState, number: int) -> bytes:
        """Return what a record keeps of the id of the append that it begins; b"" for none. Raises CorruptError."""
        header, _ = self._read_numbered(session, number)
        return header.mark if header.session == session.number else b""

    def _read_numbered(self, session: SessionState, number: int) -> tuple[RecordHeader, bytes]:
        return self.view.read_record(self.find_record(session, number))

    def _list_turns(self, session: SessionState, first: int, last: int) -> list[int]:
        """Return the turns of a log that has gaps between them."""
        found = set()
        for number in range(1, session.records + 1):
            offset = self.catalogue.find_record(session.number, number)
            if offset is not None:
                turn = self.view.read_record(offset)[0].turn
                if turn and first <= turn <= last:
                    found.add(turn)
        return sorted(found)


def open_log_file(file: File, ids: tuple[int, int] | None = None) -> OpenLog:
    """Return the log in `file` before any of it is read. ids: its log id and key id, where its header is damaged."""
    reader = FrameReader(file, ids)
    view = LogView(file)
    return OpenLog(file, reader, view, Catalogue(reader.key_id, view))


def make_empty_log() -> OpenLog:
    """Return the log of a store that was never written."""
    return open_log_file(OsFile(Path(os.devnull), writable=False), (0, 0))
