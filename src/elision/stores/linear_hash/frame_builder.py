"""Collects records for the next frame of a log. They are entered in its catalogue as they come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from elision.errors import StoreError
from elision.stores.linear_hash.log import FRAME, MAX_FRAME, FrameWriter
from elision.stores.linear_hash.open_log import OpenLog
from elision.stores.linear_hash.records import DraftRecord, RecordHeader

#: Bytes of a frame from which on it is written before it is full.
MOST_WAITING: Final = 8 << 20


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
