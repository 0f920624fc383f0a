"""Who may touch the files: one writer, and readers that keep a checkpoint away while they look.

Three locks, each on a file of its own (`flock`: it belongs to an open file, ends with it, and so with its process):
the lock file is the writer's for as long as it is open; the page file is shared by readers during a snapshot and
taken alone by a checkpoint; the log is the gate before the page file, so that readers which come one after another
cannot keep a checkpoint waiting for ever.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from elision.errors import ConflictError
from elision.stores.linear_hash.file_access import OsFile

#: Seconds between two looks at whether the readers are gone.
_PAUSE = 0.002


class Locks(Protocol):
    """Keeps readers and checkpoints apart."""

    def lock_alone(self, patience: float) -> bool:
        """Take the page file for a checkpoint; return False if readers are still there after `patience` seconds."""
        ...

    def lock_shared(self) -> None:
        """Share the page file with other readers; waits for a checkpoint to end."""
        ...

    def release(self) -> None: ...


class NoLocks:
    """For files that no other process can open."""

    def lock_alone(self, patience: float) -> bool:
        return True

    def lock_shared(self) -> None:
        return None

    def release(self) -> None:
        return None


class FileLocks:
    """The locks on the page file and the log of one open store."""

    def __init__(self, pages: OsFile, log: OsFile) -> None:
        self._pages = pages
        self._gate = log

    def lock_alone(self, patience: float) -> bool:
        fcntl.flock(self._gate.descriptor, fcntl.LOCK_EX)
        try:
            return _take_lock(self._pages.descriptor, patience)
        finally:
            fcntl.flock(self._gate.descriptor, fcntl.LOCK_UN)

    def lock_shared(self) -> None:
        fcntl.flock(self._gate.descriptor, fcntl.LOCK_SH)
        try:
            fcntl.flock(self._pages.descriptor, fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._gate.descriptor, fcntl.LOCK_UN)

    def release(self) -> None:
        fcntl.flock(self._pages.descriptor, fcntl.LOCK_UN)


@contextmanager
def hold_shared(locks: Locks) -> Iterator[None]:
    """Hold the page file shared until the block ends."""
    locks.lock_shared()
    try:
        yield
    finally:
        locks.release()


class WriterLock:
    """Held by the one process that may write. Raises ConflictError if another one does."""

    def __init__(self, path: Path) -> None:
        self._file = OsFile(path, writable=True)
        try:
            fcntl.flock(self._file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = self._file.read_at(0, 20).decode("ascii", "replace").strip() or "unknown"
            self._file.close()
            raise ConflictError(
                f"{path.parent}: process {owner} writes to this store; close it there, or open the store for reading"
            ) from error
        self._owner = os.getpid()
        self._file.truncate(0)
        self._file.write_at(0, f"{self._owner}\n".encode())

    def check(self) -> None:
        """Raises ConflictError in a forked child, which shares the lock and must not write."""
        if os.getpid() != self._owner:
            raise ConflictError(f"the store was opened by process {self._owner} before it forked; open it anew")

    def close(self) -> None:
        self._file.close()


def _take_lock(descriptor: int, patience: float) -> bool:
    deadline = time.monotonic() + patience
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_PAUSE)
        else:
            return True
