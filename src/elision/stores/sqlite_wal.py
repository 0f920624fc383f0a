"""SQLite's write-ahead log, read to find what SQLite leaves out without a word.

SQLite takes the frames of the log up to the first that is wrong, since a power cut leaves such an end. Where more than
one transaction follows that frame, no power cut explains it: each was synced before the next began. The format is in
https://www.sqlite.org/fileformat2.html#walformat.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_HEADER: Final = 32
_FRAME_HEADER: Final = 24
#: The first number of a log whose checksums are of big-endian numbers; that of the others is one less.
_BIG_ENDIAN: Final = 0x377F0683
#: Transactions after a wrong frame that a power cut may leave: the one that was not synced yet.
_UNSYNCED: Final = 1


class _Frame(NamedTuple):
    """One page of a transaction. is_commit: whether it is the last. is_whole: whether its checksum is right.

    has_schema: whether it is the first page of a database whose `user_version` is set.
    """

    salts: bytes
    has_schema: bool
    is_commit: bool
    is_whole: bool


def describe_lost_transactions(database: Path, *, only_all: bool = False) -> str:
    """Return what is wrong in the log of `database` that SQLite does not report; "" where nothing is, or none is there.

    only_all: return it only where not even the schema is left in the log. Work O(log).
    """
    log = database.with_name(f"{database.name}-wal")
    try:
        data = log.read_bytes()
    except OSError:
        return ""
    frames = list(_iterate_frames(data))
    wrong = next((number for number, frame in enumerate(frames) if not frame.is_whole), None)
    if wrong is None:
        return ""
    committed = max((number for number in range(wrong) if frames[number].is_commit), default=-1) + 1
    if only_all and any(frame.has_schema for frame in frames[:committed]):
        return ""
    # Frames of earlier rounds of the log, which is written from its beginning again and again, have other salts.
    salts = frames[0].salts if wrong else data[16:24]
    if salts not in {frame.salts for frame in frames[:2]}:
        salts = frames[0].salts
    lost = sum(frame.is_commit and frame.salts == salts for frame in frames[wrong:])
    if lost <= _UNSYNCED:
        return ""
    return f"{log.name}: frame {wrong + 1} is damaged, and SQLite leaves out the {lost} transactions from there on"


def _iterate_frames(data: bytes) -> Iterator[_Frame]:
    """Yield the frames; after one that is wrong all are, as each checksum goes on from the one before."""
    if len(data) < _HEADER:
        return
    magic, _, size = struct.unpack_from(">III", data)
    order = ">" if magic == _BIG_ENDIAN else "<"
    sums = _add_checksum(data[: _HEADER - 8], order, (0, 0))
    is_whole = sums == struct.unpack_from(">II", data, _HEADER - 8)
    if not is_whole:
        # The size of a page is in the header: only the usual one is tried where that is damaged.
        size = 4096
    for start in range(_HEADER, len(data) - _FRAME_HEADER - size + 1, _FRAME_HEADER + size):
        first = start + _FRAME_HEADER
        salts = data[start + 8 : start + 16]
        if is_whole:
            sums = _add_checksum(data[start : start + 8], order, sums)
            sums = _add_checksum(data[first : first + size], order, sums)
            is_whole = salts == data[16:24] and sums == struct.unpack_from(">II", data, start + 16)
        has_schema = data[start : start + 4] == b"\0\0\0\1" and data[first + 60 : first + 64] != bytes(4)
        yield _Frame(salts, has_schema, data[start + 4 : start + 8] != bytes(4), is_whole)


def _add_checksum(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    numbers = struct.unpack(f"{order}{len(data) // 4}I", data)
    for even, odd in zip(numbers[::2], numbers[1::2], strict=True):
        first = (first + even + second) & 0xFFFFFFFF
        second = (second + odd + first) & 0xFFFFFFFF
    return first, second
