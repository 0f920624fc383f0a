"""Keep a damaged store under another name, and leave an empty one in its place, so that agents go on durably.

Nothing of the damaged store is changed: `elision sessions check` reads it under its new name, and
`elision sessions copy` copies what can be read. Other processes that have it open find another one in its place,
and open that.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from elision.errors import StoreError
from elision.stores.store_errors import DamagedStoreError

#: What is added to the names of the damaged stores that are kept. A disk that damages so many needs its owner.
_ENDINGS: Final = tuple(f".damaged{number}" for number in ("", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9"))
#: Files that SQLite has beside a database; what is in the first is not in the database yet.
_WAL: Final = "-wal"
_SHARED_MEMORY: Final = "-shm"


def set_aside(damaged: DamagedStoreError) -> Path:
    """Have an empty store in the place of the damaged one, and return where that is now.

    Where another process did it before, nothing is changed. Raises StoreError where it cannot be done.
    """
    path = Path(os.path.realpath(damaged.path))
    names = [_add_ending(path, ending) for ending in _ENDINGS]
    try:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            # A log without its database belongs to one that was moved elsewhere.
            free = [each for each in names if not each.exists() and not _add_ending(each, _WAL).exists()]
            status = os.stat(path)
            if (status.st_dev, status.st_ino) != damaged.identity:
                return ([each for each in names if each.exists()] or [path])[-1]
            if not free:
                raise StoreError(
                    f"{path}: {len(names)} damaged stores are kept beside it; look at the disk, and move them elsewhere"
                )
            if path.is_dir():
                _move_folder(path, free[0])
            else:
                _move_file(path, free[0])
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise StoreError(f"{path}: it is damaged, and cannot be kept under another name ({error.strerror})") from error
    return free[0]


@contextmanager
def hold_place(path: Path) -> Iterator[None]:
    """Keep the store at `path` where it is while it is opened, as far as its folder can be locked."""
    try:
        folder = os.open(Path(os.path.realpath(path)).parent, os.O_RDONLY)
    except OSError:
        # Nobody moves anything in a folder that cannot be read.
        yield
        return
    try:
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_SH)
        yield
    finally:
        os.close(folder)


def _move_folder(path: Path, kept: Path) -> None:
    path.rename(kept)
    path.mkdir(mode=0o700)
    # A folder with a lock is a new store; without one it is a store that lost its log.
    os.close(os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _move_file(path: Path, kept: Path) -> None:
    """Move a database with its write-ahead log. At every moment there is a database at `path`.

    SQLite removes a log that is beside an empty database, so a crash before its name is removed here does no harm.
    """
    log, kept_log = (_add_ending(each, _WAL) for each in (path, kept))
    fresh = _add_ending(kept, ".new")
    fresh.unlink(missing_ok=True)
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        os.link(path, kept)
        if log.exists():
            os.link(log, kept_log)
        fresh.replace(path)
    except BaseException:
        for made in (fresh, kept_log, kept):
            made.unlink(missing_ok=True)
        raise
    for suffix in (_WAL, _SHARED_MEMORY):
        _add_ending(path, suffix).unlink(missing_ok=True)


def _add_ending(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)
