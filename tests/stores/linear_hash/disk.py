"""A disk that forgets: what was not synced may be lost, torn or kept in any order, and it may be full at any byte."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from random import Random

#: What reaches a disk whole; within one write, any of these may and any may not.
SECTOR = 512


class Crash(BaseException):
    """The power went; nothing in the program may catch it."""


@dataclass
class Disk:
    """Files by name, and when they fail.

    steps:         writes, syncs and truncations until the power goes; None for never.
    room:          bytes that files may still grow by; None for no end.
    failing_syncs: syncs that fail with EIO.
    """

    rng: Random
    files: dict[str, DiskFile] = field(default_factory=dict)
    steps: int | None = None
    room: int | None = None
    failing_syncs: int = 0
    done: int = 0

    def open(self, name: str) -> DiskFile:
        return self.files.setdefault(name, DiskFile(self))

    def step(self) -> None:
        self.done += 1
        if self.steps is not None:
            if self.steps <= 0:
                raise Crash
            self.steps -= 1

    def crash(self) -> None:
        """Leave what a loss of power leaves."""
        self.steps, self.room, self.failing_syncs = None, None, 0
        for file in self.files.values():
            file.crash()


@dataclass
class DiskFile:
    """One file: what is on the disk for sure, what the system shows, and how the two came to differ."""

    disk: Disk
    safe: bytes = b""
    shown: bytearray = field(default_factory=bytearray)
    waiting: list[tuple[int, bytes | None]] = field(default_factory=list)

    def read_at(self, offset: int, size: int) -> bytes:
        return bytes(self.shown[offset : offset + size])

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        data = bytes(data)
        try:
            self.disk.step()
        except Crash:
            # The power goes in the middle of a write: a beginning of it was handed over.
            self._write(offset, data[: self.disk.rng.randrange(len(data) + 1)])
            raise
        growth = max(0, offset + len(data) - len(self.shown))
        if self.disk.room is not None and growth > self.disk.room:
            fits = len(data) - growth + self.disk.room
            self._write(offset, data[: max(0, fits)])
            self.disk.room = 0
            raise OSError(errno.ENOSPC, "No space left on device")
        if self.disk.room is not None:
            self.disk.room -= growth
        self._write(offset, data)

    def fsync(self) -> None:
        self.disk.step()
        if self.disk.failing_syncs:
            self.disk.failing_syncs -= 1
            raise OSError(errno.EIO, "Input/output error")
        self.safe, self.waiting = bytes(self.shown), []

    def truncate(self, size: int) -> None:
        self.disk.step()
        self.waiting.append((size, None))
        self.shown = resize(self.shown, size)

    def size(self) -> int:
        return len(self.shown)

    def close(self) -> None:
        return None

    def crash(self) -> None:
        """Each write since the last sync is kept, lost or torn at sectors, in any order."""
        left, rng = bytearray(self.safe), self.disk.rng
        waiting, mood = list(self.waiting), rng.random()
        if rng.random() < 0.5:
            rng.shuffle(waiting)
        for offset, data in waiting:
            if rng.random() < mood:
                if data is None:
                    left = resize(left, offset)
                else:
                    _tear_write(left, offset, data, rng)
        self.shown, self.safe, self.waiting = left, bytes(left), []

    def _write(self, offset: int, data: bytes) -> None:
        self.waiting.append((offset, data))
        _put_bytes(self.shown, offset, data)


def resize(data: bytearray, size: int) -> bytearray:
    return data[:size] + bytes(max(0, size - len(data)))


def _put_bytes(target: bytearray, offset: int, data: bytes) -> None:
    if not data:
        return
    if len(target) < offset:
        target += bytes(offset - len(target))
    target[offset : offset + len(data)] = data


def _tear_write(target: bytearray, offset: int, data: bytes, rng: Random) -> None:
    """Write all of `data`, or only some of its sectors, or some of its bytes."""
    whole = rng.random()
    if whole < 0.5:
        _put_bytes(target, offset, data)
    elif whole < 0.6:
        _put_bytes(target, offset, data[: rng.randrange(len(data) + 1)])
    else:
        start = 0
        while start < len(data):
            end = start + SECTOR - (offset + start) % SECTOR
            if rng.random() < 0.6:
                _put_bytes(target, offset + start, data[start:end])
            start = end
