"""Reads records and their texts at their places in a log."""

from __future__ import annotations

from typing import Any, Final

from elision.errors import CorruptError
from elision.stores.linear_hash.file_access import File
from elision.stores.linear_hash.records import RecordHeader, RecordPacker, parse_record, read_size, unpack_place
from elision.trajectory.event_json import decode_event
from elision.trajectory.events import Event

#: Bytes that are read at once where the size of a record is not known.
_GUESS: Final = 4096


class LogView:
    """The records of a log's file, and of a frame that is not written yet. For one thread at a time."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.packer = RecordPacker()
        #: Where the first record of `pending` will be.
        self.pending_start = 0
        self.pending = bytearray()
        self.values_read = 0

    def read_record(self, offset: int) -> tuple[RecordHeader, bytes]:
        """Return a record. Raises CorruptError if it is not as it was written."""
        self.values_read += 1
        if self.pending and offset >= self.pending_start:
            start = offset - self.pending_start
            data = bytes(self.pending[start : start + read_size(self.pending, start)])
        else:
            data = self.file.read_at(offset, _GUESS)
            missing = read_size(data) - len(data)
            if 0 < missing <= self.file.size() - offset - len(data):
                data += self.file.read_at(offset + len(data), missing)
        found = parse_record(data, 0, offset)
        if found is None:
            raise CorruptError(f"the record at byte {offset} of the log is damaged")
        return found, data

    def read_event(self, offset: int) -> Event:
        """Return the event of a record. Raises CorruptError."""
        return self.unpack_event(*self.read_record(offset))

    def unpack_event(self, header: RecordHeader, data: bytes) -> Event:
        """Return the event of a record that was read. Raises CorruptError."""
        try:
            return decode_event(self.packer.unpack_value(header, data, self.read_text))
        except ValueError as error:
            raise CorruptError(f"the record at byte {header.place} cannot be read: {error}") from error

    def read_value(self, offset: int) -> dict[str, Any]:
        """Return the event of a record as JSON, with its texts. Raises CorruptError."""
        return self.packer.unpack_value(*self.read_record(offset), self.read_text)

    def read_text(self, place: int) -> bytes:
        """Return the large text at `place`. Raises CorruptError."""
        offset, part = unpack_place(place)
        return self.packer.unpack_text(*self.read_record(offset), part)
