"""The seam to the file system: the six things that a store asks of a file, and the real one.

Everything that can fail on a disk fails behind these methods, so tests put a disk there that forgets, tears, reorders
and fills up.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


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
