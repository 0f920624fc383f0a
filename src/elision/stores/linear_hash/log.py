"""The log of values: a header, frames, reserved zeros, and an end mark; and the seam to the file system below it.

A frame is what one sync makes durable. It is written only after the frame before it was synced, over zeros that were
synced too. So a frame that a crash tore lacks its mark or whole sectors, and nothing valid follows it: all else is
damage. The room that was reserved ends with an end mark; a log that has none was cut.

Everything that can fail on a disk fails behind the methods of `File`, so tests put a disk there that forgets, tears,
reorders and fills up.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from elision.errors import CorruptError
from elision.stores.store_errors import REPAIR_COMMAND

_MAGIC: Final = b"ELISLHV1"
#: Magic, log id, key id, checksum; written twice.
_HEADER: Final = struct.Struct("<8sQQI")
_COPY_AT: Final = 512
#: Where the first frame begins.
START: Final = 1024
#: Magic, kind, bytes after the header, offset of the frame, checksum of these bytes, checksum of the fields before.
_FRAME: Final = struct.Struct("<3sBIQII")
FRAME: Final = _FRAME.size
_FRAME_MAGIC: Final = b"\xf5LH"
_DATA: Final = 1
_END: Final = 2
_DATA_BEGINS: Final = _FRAME_MAGIC + bytes([_DATA])
#: The last bytes of a frame.
_MARK: Final = b"\xfa\xce"
_SECTOR: Final = 512
#: Bytes that the log grows by: a share of its size within these limits.
_LEAST_GROWTH: Final = 256 << 10
_MOST_GROWTH: Final = 16 << 20
_PIECE: Final = 1 << 20
#: Bytes of records that a frame can have.
MAX_FRAME: Final = (1 << 32) - 1 - len(_MARK)


class File(Protocol):
    """Bytes at offsets. Every method may raise OSError; a failed write may have written any part of its bytes."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Return at most `size` bytes; fewer at the end of the file."""
        ...

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None: ...

    def fsync(self) -> None:
        """Return once everything written so far would survive a loss of power."""
        ...

    def truncate(self, size: int) -> None: ...

    def size(self) -> int: ...

    def close(self) -> None: ...


class OsFile:
    """A real file, made with mode 0600 if it is not there; its folder is synced then.

    Reads and writes are positional: threads and processes that share the file share no cursor.
    """

    def __init__(self, path: Path, *, writable: bool) -> None:
        self.path = path
        fresh = writable and not path.exists()
        if writable:
            flags = os.O_RDWR | os.O_CREAT
        else:
            flags = os.O_RDONLY
        self.descriptor = os.open(path, flags | os.O_CLOEXEC, 0o600)
        status = os.fstat(self.descriptor)
        #: What tells the file from another one of the same name.
        self.identity = status.st_ino, status.st_dev
        if fresh:
            sync_folder(path.parent)

    def read_at(self, offset: int, size: int) -> bytes:
        found = os.pread(self.descriptor, size, offset)
        while found and len(found) < size:
            more = os.pread(self.descriptor, size - len(found), offset + len(found))
            if not more:
                break
            found += more
        return found

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self.descriptor, rest, offset)
            rest = rest[written:]
            offset = offset + written

    def fsync(self) -> None:
        _SYNC(self.descriptor)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.descriptor, size)

    def size(self) -> int:
        return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _full_sync(descriptor: int) -> None:
    # On macOS fsync leaves data in the drive's own cache.
    fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined,unused-ignore]


#: Data and what is needed to find it again; times of the file are not, and cost a journal entry each.
_SYNC: Callable[[int], None] = _full_sync if hasattr(fcntl, "F_FULLFSYNC") else getattr(os, "fdatasync", os.fsync)


def sync_folder(folder: Path) -> None:
    """Make the names in `folder` durable: a file whose name is lost is lost."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class LogFrame:
    """A frame as read. start: offset of its first record. is_damaged: whether its checksum is wrong."""

    start: int
    data: bytes
    is_damaged: bool = False


@dataclass(frozen=True, slots=True)
class LogDamage:
    """Bytes of the log that are not as they were written."""

    first: int
    last: int
    what: str


class FrameReader:
    """Reads the frames of a log, from an offset on.

    log_id: the log's own number. key_id: the secret of its keys, which a compaction keeps. ids: both, where the header
    cannot be read. Raises CorruptError if the header cannot be read.
    """

    def __init__(self, file: File, ids: tuple[int, int] | None = None) -> None:
        self.file = file
        self.is_header_damaged = ids is not None
        self.log_id, self.key_id = ids or self._read_header()
        #: Where the next frame begins.
        self.end = START
        self.damage: list[LogDamage] = []

    def has_more(self) -> bool:
        """Return whether a frame seems to follow, with one small read."""
        return self.file.read_at(self.end, 4) == _DATA_BEGINS

    def iterate_frames(self) -> Iterator[LogFrame]:
        """Yield the frames from `end` on, which moves; damaged ones as far as they can be read."""
        size = self.file.size()
        while True:
            head = self.file.read_at(self.end, FRAME)
            length, kind, _ = _parse_header(head, self.end)
            if length is not None and kind == _END:
                return
            found = None
            if any(head):
                found = self._read_frame(self.end, head) or self._skip_damage(size)
            elif self._find_frame(self.end, size) is not None:
                # Sectors of the frame here were lost, and it is not the last one.
                found = self._skip_damage(size)
            if found is None:
                return
            self.end = found.start + len(found.data) + len(_MARK)
            yield found

    def is_cut(self) -> bool:
        """Return whether no end mark follows the last frame."""
        size = self.file.size()
        return not any(kind == _END for _, kind, _ in self._find_headers(self.end, size))

    def _find_frame(self, offset: int, size: int) -> int | None:
        """Return where the next valid frame begins, from `offset` on."""
        for at, kind, _ in self._find_headers(offset, size):
            if kind == _DATA and self._read_frame(at, self.file.read_at(at, FRAME)) is not None:
                return at
        return None

    def _read_header(self) -> tuple[int, int]:
        ids = []
        for at in (0, _COPY_AT):
            data = self.file.read_at(at, _HEADER.size)
            if len(data) == _HEADER.size:
                magic, log_id, key_id, checksum = _HEADER.unpack(data)
                if magic == _MAGIC and checksum == zlib.crc32(data[:-4]):
                    ids.append((log_id, key_id))
        self.is_header_damaged = len(ids) < 2
        if not ids:
            raise CorruptError(f"the log has no header that can be read; `{REPAIR_COMMAND}` keeps what can be read")
        return ids[0]

    def _read_frame(self, offset: int, head: bytes) -> LogFrame | None:
        """Return the frame at `offset`, None if it is not as it was written."""
        size, kind, checksum = _parse_header(head, offset)
        if size is None or kind != _DATA:
            return None
        data = self.file.read_at(offset + FRAME, size)
        if len(data) != size or zlib.crc32(data) != checksum:
            return None
        return LogFrame(offset + FRAME, data[: -len(_MARK)])

    def _skip_damage(self, size: int) -> LogFrame | None:
        """Return the damaged frame at `end`; None if no frame was completed there."""
        first = self.end
        after = self._find_frame(first, size)
        head = self.file.read_at(first, FRAME)
        length, _, _ = _parse_header(head, first)
        if after is None:
            if self._is_torn(first, length, size):
                return None
            after = self._find_rest(first, length, size)
        # A reader may have looked while the writer wrote: a frame that is valid now is no damage.
        again = self._read_frame(first, self.file.read_at(first, FRAME))
        if again is not None:
            return again
        self.damage.append(LogDamage(first, after, "a frame is not as it was written"))
        # The frame's last bytes are its mark, or what is left where its size is not known.
        data = self.file.read_at(first + FRAME, max(0, after - first - FRAME - len(_MARK)))
        return LogFrame(first + FRAME, data, is_damaged=True)

    def _is_torn(self, first: int, length: int | None, size: int) -> bool:
        """Return whether the last frame lacks what a write lacks that was not synced."""
        last = self._find_end_mark(first, size)
        if length is None:
            rest = self.file.read_at(first, FRAME + _SECTOR)
            split = _SECTOR - first % _SECTOR
            head = rest[:FRAME]
            pieces = head[:split], head[split:]
            return not any(rest[FRAME:]) or any(piece and not any(piece) for piece in pieces)
        if first + FRAME + length > last:
            return True
        data = self.file.read_at(first, FRAME + length)
        # A write may end within the mark.
        if data[-len(_MARK) :] in (bytes(2), _MARK[:1] + bytes(1)):
            return True
        start = -first % _SECTOR
        return any(not any(data[at : at + _SECTOR]) for at in range(start, len(data) - _SECTOR + 1, _SECTOR))

    def _find_rest(self, first: int, length: int | None, size: int) -> int:
        """Return where bytes end that were written after `first`."""
        if length is not None:
            return first + FRAME + length
        data = self.file.read_at(first, self._find_end_mark(first, size) - first)
        return first + max(FRAME + len(_MARK), len(data.rstrip(b"\0")))

    def _find_end_mark(self, offset: int, size: int) -> int:
        return max((at for at, kind, _ in self._find_headers(offset, size) if kind == _END), default=size)

    def _find_headers(self, offset: int, size: int) -> Iterator[tuple[int, int, int]]:
        """Yield (offset, kind, size) of all valid headers from `offset` on."""
        for start in range(offset, size, _PIECE):
            piece = self.file.read_at(start, _PIECE + FRAME)
            at = piece.find(_FRAME_MAGIC)
            while 0 <= at < _PIECE:
                head = piece[at : at + FRAME]
                length, kind, _ = _parse_header(head, start + at)
                if length is not None:
                    yield start + at, kind, length
                at = piece.find(_FRAME_MAGIC, at + 1)


class FrameWriter:
    """Appends frames. The log was read to its end by `reader`, whose end moves. Raises OSError."""

    def __init__(self, reader: FrameReader) -> None:
        self._file = reader.file
        self._reader = reader
        #: Where the last end mark is; what lies before it is zeros. None while that is uncertain.
        self._room: int | None = None
        self.cut_tail()

    def write_frame(self, data: bytes | bytearray) -> None:
        """Append one frame and sync. Raises OSError; the frame is not in the log then, as far as that can be known."""
        size = len(data) + len(_MARK)
        start = self._reader.end
        self._reserve_room(start + FRAME + size)
        head = _pack_header(_DATA, start, size, zlib.crc32(_MARK, zlib.crc32(data)))
        try:
            self._file.write_at(start, b"".join((head, data, _MARK)))
            self._file.fsync()
        except OSError:
            with suppress(OSError):
                self.cut_tail()
            raise
        self._reader.end = start + FRAME + size

    def cut_tail(self) -> None:
        """End the log after its last frame: writes that were not synced and reserved room are gone. Raises OSError."""
        end = self._reader.end
        self._room = None
        # At no moment is the log without an end mark.
        self._file.write_at(end, _pack_header(_END, end, 0, 0))
        self._file.fsync()
        self._file.truncate(end + FRAME)
        self._file.fsync()
        self._room = end

    def _reserve_room(self, needed: int) -> None:
        """Let `needed` be before the end mark. Raises OSError."""
        if self._room is not None and self._room >= needed:
            return
        growth = min(max(needed // 2, _LEAST_GROWTH), _MOST_GROWTH)
        try:
            self._extend(needed + growth)
        except OSError:
            # There may be room for the frame alone.
            self._extend(needed)

    def _extend(self, room: int) -> None:
        if self._room is None:
            self.cut_tail()
        old = self._room or self._reader.end
        try:
            for at in range(old + FRAME, room, _PIECE):
                self._file.write_at(at, bytes(min(_PIECE, room - at)))
            self._file.write_at(room, _pack_header(_END, room, 0, 0))
            self._file.fsync()
            # A frame that is torn here shall lack zeros, not an old end mark.
            self._file.write_at(old, bytes(FRAME))
            self._file.fsync()
        except OSError:
            with suppress(OSError):
                self.cut_tail()
            raise
        self._room = room


def write_log_header(file: File, key_id: int = 0) -> None:
    """Begin a new log, durably. key_id: the secret of its keys; random by default."""
    log_id, fresh_id = struct.unpack("<QQ", os.urandom(16))
    data = _HEADER.pack(_MAGIC, log_id, key_id or fresh_id, 0)[:-4]
    data += struct.pack("<I", zlib.crc32(data))
    image = bytearray(START + FRAME)
    for at in (0, _COPY_AT):
        image[at : at + len(data)] = data
    image[START:] = _pack_header(_END, START, 0, 0)
    file.write_at(0, image)
    file.fsync()


def _pack_header(kind: int, offset: int, size: int, checksum: int) -> bytes:
    head = _FRAME.pack(_FRAME_MAGIC, kind, size, offset, checksum, 0)
    return head[:-4] + struct.pack("<I", zlib.crc32(head[:-4]))


def _parse_header(head: bytes, offset: int) -> tuple[int | None, int, int]:
    """Return size, kind and checksum of a frame; None for the size if this is no header of a frame at `offset`."""
    if len(head) < FRAME:
        return None, 0, 0
    magic, kind, size, own, checksum, check = _FRAME.unpack(head)
    if magic != _FRAME_MAGIC or own != offset or kind not in (_DATA, _END) or check != zlib.crc32(head[:-4]):
        return None, 0, 0
    return size, kind, checksum
