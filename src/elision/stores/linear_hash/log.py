"""The write-ahead log: frames behind a header; a frame is there whole, or it is not there.

A frame's checksum is seeded with the one before it, and the first with the header's salt. So a frame counts only
behind the very frames it was written behind: what an earlier life of the file left over, or what was torn, ends the
log. A transaction is one frame, and its checksum is its commit record.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from elision.errors import CorruptError
from elision.stores.linear_hash.file_access import File
from elision.stores.linear_hash.layout import PAGE, U32

#: magic, version, page size, file id, salt; then the checksum of these.
_HEADER: Final = struct.Struct("<8sIIQQ")
_MAGIC: Final = b"LACUNAWL"
START: Final = _HEADER.size + U32.size
#: checksum, payload size, LSN, kind.
_FRAME: Final = struct.Struct("<IIQB")
FRAME: Final = _FRAME.size
VERSION: Final = 1

#: A transaction; a batch of page images; the end of a set of images, which makes all of them count.
TRANSACTION = 1
IMAGES = 2
CHECKPOINT = 3
_CHUNK: Final = 1 << 20


class LogFrame(NamedTuple):
    """at: offset of its payload in the log. checksum: seeds the next frame's."""

    kind: int
    lsn: int
    payload: bytes
    at: int
    checksum: int


class LogPosition(NamedTuple):
    """Where the next frame goes, and what seeds it. An equal place means an equal log up to there."""

    offset: int
    seed: int
    lsn: int


def read_header(file: File) -> tuple[int, int] | None:
    """Return (file id, salt) of a log; None of an empty one. Raises CorruptError.

    A header is made durable before anything follows it, so only in an otherwise empty log may it be torn.
    """
    data = file.read_at(0, START)
    if len(data) == START and U32.unpack_from(data, _HEADER.size)[0] == zlib.crc32(data[: _HEADER.size]):
        magic, version, page, file_id, salt = _HEADER.unpack_from(data)
        if magic == _MAGIC and version == VERSION and page == PAGE:
            return file_id, salt
        raise CorruptError(f"the log is of version {version} with pages of {page} bytes; this is version {VERSION}")
    if file.size() <= START:
        return None
    raise CorruptError("the log's header is damaged, and frames may stand behind it; `repair` keeps the pages")


def write_header(file: File, file_id: int, salt: int, lsn: int) -> LogPosition:
    """Begin the log, which is empty, durably; return its first position. lsn: the newest one in the page file."""
    # Once this is durable, a damaged header has no frames after it.
    file.fsync()
    data = _HEADER.pack(_MAGIC, VERSION, PAGE, file_id, salt)
    file.write_at(0, data + U32.pack(zlib.crc32(data)))
    file.fsync()
    return first_position(salt, lsn)


def first_position(salt: int, lsn: int = 0) -> LogPosition:
    return LogPosition(START, salt & 0xFFFF_FFFF, lsn)


def read_frames(file: File, place: LogPosition) -> Iterator[LogFrame]:
    """Yield the frames from `place` on, up to the first that does not count."""
    window = _Window(file, place.offset)
    end = file.size()
    offset = place.offset
    seed = place.seed
    while len(prefix := window.read(offset, FRAME)) == FRAME:
        checksum, size, lsn, kind = _FRAME.unpack(prefix)
        if offset + FRAME + size > end:
            return
        payload = window.read(offset + FRAME, size)
        if not kind or len(payload) != size or checksum != compute_checksum(prefix, payload, seed):
            return
        yield LogFrame(kind, lsn, payload, offset + FRAME, checksum)
        offset = offset + FRAME + size
        seed = checksum


def position_after(frame: LogFrame) -> LogPosition:
    """Return where the frame after `frame` goes."""
    return LogPosition(frame.at + len(frame.payload), frame.checksum, frame.lsn)


def pack_frame(kind: int, payload: bytes, place: LogPosition) -> tuple[bytes, LogPosition]:
    """Return a frame for `place` as bytes, and the position after it."""
    lsn = place.lsn + 1
    body = _FRAME.pack(0, len(payload), lsn, kind)
    checksum = compute_checksum(body, payload, place.seed)
    return U32.pack(checksum) + body[4:] + payload, LogPosition(place.offset + FRAME + len(payload), checksum, lsn)


def image_payload(pages: Iterable[tuple[int, bytes | bytearray]]) -> bytes:
    """Return pages with their numbers, as the payload of a frame."""
    return b"".join(part for number, page in pages for part in (U32.pack(number), page))


def list_images(frame: LogFrame) -> Iterator[tuple[int, int]]:
    """Yield (page number, offset of its image in the log) of a frame of images."""
    for start in range(0, len(frame.payload), U32.size + PAGE):
        yield U32.unpack_from(frame.payload, start)[0], frame.at + start + U32.size


def compute_checksum(prefix: bytes, payload: bytes, seed: int) -> int:
    return zlib.crc32(payload, zlib.crc32(prefix[4:], seed))


class _Window:
    """Reads a file forward in pieces that become larger: most often there is little or nothing new."""

    def __init__(self, file: File, offset: int) -> None:
        self._file = file
        self._from = offset
        self._data = b""
        self._piece = PAGE

    def read(self, offset: int, size: int) -> bytes:
        start = offset - self._from
        if start + size > len(self._data):
            self._data = self._file.read_at(offset, max(size, self._piece))
            self._piece = min(self._piece * 4, _CHUNK)
            self._from = offset
            start = 0
        return self._data[start : start + size]
