"""The writer's lock: an `flock` on a file of its own. It belongs to an open file, so it ends with its process.

Readers need none: they read files that are never changed where they have read them.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from elision.errors import ConflictError
from elision.stores.linear_hash.file_access import OsFile


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
