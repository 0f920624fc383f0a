"""SQLite's write-ahead log, read to find what SQLite leaves out without a word.

SQLite takes the frames of the log up to the first that is wrong, since a power cut leaves such an end. Where more than
one transaction follows that frame, no power cut explains it: each was synced before the next began. The format is in
https://www.sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

_HEADER: Final = 32
_FRAME_HEADER: Final = 24
#: The first number of a log whose checksums are of big-endian numbers; that of the others is one less.
_BIG_ENDIAN: Final = 0x377F0683
#: Transactions after a wrong frame that a power cut may leave: the one that was not synced yet.
_UNSYNCED: Final = 1


class _Frame(NamedTuple):
    """One page of a transaction. is_commit: whether it is the last. is_whole: whether its checksum is right.

    is_current: whether it is of the log's newest round; the log is written from its beginning again and again.
    has_schema: whether it is the first page of a database whose `user_version` is set.
    """

    is_current: bool
    has_schema: bool
    is_commit: bool
    is_whole: bool


def describe_lost_transactions(database: Path, *, only_all: bool = False) -> str:
    """Return what is wrong in the log of `database` that SQLite does not report; "" where nothing is, or none is there.

    only_all: return it only where not even the schema is left in the log. Work O(log).
    """
    log = database.with_name(f"{database.name}-wal")
    wrong = lost = 0
    is_schema_near = has_schema = False
    try:
        with log.open("rb") as file:
            for number, frame in enumerate(_iterate_frames(file), start=1):
                if frame.is_whole:
                    is_schema_near = is_schema_near or frame.has_schema
                    has_schema = has_schema or (is_schema_near and frame.is_commit)
                    continue
                wrong = wrong or number
                lost += frame.is_commit and frame.is_current
    except OSError:
        return ""
    if lost <= _UNSYNCED or (only_all and has_schema):
        return ""
    return f"{log.name}: frame {wrong} is damaged, and SQLite leaves out the {lost} transactions from there on"


def _iterate_frames(file: BinaryIO) -> Iterator[_Frame]:
    """Yield the frames; after one that is wrong all are, as each checksum goes on from the one before."""
    header = file.read(_HEADER)
    if len(header) < _HEADER:
        return
    magic, _, size = struct.unpack_from(">III", header)
    order = ">" if magic == _BIG_ENDIAN else "<"
    sums = _add_checksum(header[:-8], order, (0, 0))
    salts = header[16:24]
    is_whole = sums == struct.unpack_from(">II", header, _HEADER - 8)
    if not is_whole:
        # The size of a page and the salts are in the header: where it is damaged, the usual size is tried, and the
        # salts are those of the first frame.
        size = 4096
        salts = b""
    while len(frame := file.read(_FRAME_HEADER + size)) == _FRAME_HEADER + size:
        page = frame[_FRAME_HEADER:]
        salts = salts or frame[8:16]
        is_current = salts == frame[8:16]
        if is_whole:
            sums = _add_checksum(page, order, _add_checksum(frame[:8], order, sums))
            is_whole = is_current and sums == struct.unpack_from(">II", frame, 16)
        has_schema = frame[:4] == b"\0\0\0\1" and page[60:64] != bytes(4)
        yield _Frame(is_current, has_schema, frame[4:8] != bytes(4), is_whole)


def _add_checksum(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    numbers = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
