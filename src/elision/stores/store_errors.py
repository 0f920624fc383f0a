"""Errors of all stores, in one wording, a look at the disk, and what is done with a store that is damaged.

`set_aside` keeps a damaged store under another name, and leaves an empty one in its place, so that agents go on
durably. Nothing of the damaged store is changed: `elision sessions check` reads it under its new name, and `elision
sessions copy` copies what can be read. Other processes that have it open find another one in its place, and open that.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from elision.errors import ConflictError, CorruptError, MissingStore, StoreError, UnknownHandle
from elision.stores.store import NewSession
from elision.trajectory.plan import Key, make_handle

#: The command that reads everything in a store and lists what is damaged, and its option that saves what can be read.
CHECK_COMMAND: Final = "elision sessions check"
REPAIR_COMMAND: Final = f"{CHECK_COMMAND} --repair"

#: Characters of a key in an error.
_SHOWN = 200
#: Bytes below which a disk counts as full: an append and the log's own pages need some room.
MIN_FREE_BYTES: Final = 1 << 20
#: What is added to the names of the damaged stores that are kept. A disk that damages so many needs its owner.
_ENDINGS: Final = tuple(f".damaged{number}" for number in ("", "-2", "-3", "-4", "-5", "-6", "-7", "-8", "-9"))
#: Files that SQLite has beside a database; what is in the first is not in the database yet.
_WAL: Final = "-wal"
_SHARED_MEMORY: Final = "-shm"


class DamagedStoreError(CorruptError):
    """The damage is to the store itself, and not to one session: nothing is written to it any more.

    path: its file or folder. identity: which one that is, by device and number, as another may be there by now.
    """

    def __init__(self, what: str, path: Path, identity: tuple[int, int]) -> None:
        super().__init__(name_check_command(what))
        self.path = path
        self.identity = identity


def name_check_command(what: str) -> str:
    """Return the text of a CorruptError with the command that lists what is damaged, unless it names that already."""
    if CHECK_COMMAND in what:
        return what
    return f"{what}; `{CHECK_COMMAND}` lists what is damaged"


def missing_session_error(key: str) -> UnknownHandle:
    return UnknownHandle(f"the store has no session {_quote_key(key)}; `elision sessions` lists them")


def missing_observation_error(session: str, key: Key) -> UnknownHandle:
    return UnknownHandle(f"session {_quote_key(session)} keeps nothing under {make_handle(key)}")


def session_exists_error(session: NewSession) -> ConflictError:
    return ConflictError(f"session {_quote_key(session.key)} exists already; open it, or take another name")


def short_parent_error(session: NewSession, records: int) -> ConflictError:
    return ConflictError(
        f"session {_quote_key(session.parent)} has {records} records; {session.shared} cannot be shared with a fork"
    )


def stale_writer_error(session: str, records: int, after: int) -> ConflictError:
    return ConflictError(
        f"session {_quote_key(session)} has {records} records, not {after}: another writer was there first; "
        "open it again"
    )


def reused_batch_error(session: str, batch: bytes) -> StoreError:
    return StoreError(
        f"session {_quote_key(session)} has other records of the append {batch.hex()}; "
        "repeat an append with the same records, or give it its own id"
    )


def closed_store_error(place: str) -> StoreError:
    return StoreError(f"{place}: the store is closed; open it again")


def read_only_store_error(place: str) -> StoreError:
    return StoreError(f"{place}: the store was opened read-only; nothing can be written or deleted through it")


def missing_store_error(place: str) -> MissingStore:
    return MissingStore(f"{place}: there is no store yet; run an agent first, or name another with --store")


def vanished_store_error(place: str) -> StoreError:
    return StoreError(f"{place}: the store is gone; put it back, or start again with a new one")


def _quote_key(key: str) -> str:
    if len(key) <= _SHOWN:
        return repr(key)
    return f"{key[:_SHOWN]!r}… ({len(key):,} characters)"


def check_disk(folder: Path, min_free_bytes: int = MIN_FREE_BYTES) -> None:
    """Raise StoreError where the disk of `folder` may only be read, or has less room than this."""
    try:
        disk = os.statvfs(folder)
    except OSError as error:
        raise StoreError(f"{folder}: the folder cannot be read ({error.strerror})") from error
    if disk.f_flag & os.ST_RDONLY:
        raise StoreError(f"{folder}: the disk is mounted for reading only; mount it for writing")
    free = disk.f_bavail * disk.f_frsize
    if free < min_free_bytes:
        raise StoreError(f"{folder}: the disk is full ({free:,} bytes are free); make room")


# -- damaged stores ---------------------------------------------------------------------------------------------------


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
                path.rename(free[0])
                path.mkdir(mode=0o700)
                # A folder with a lock is a new store; without one it is a store that lost its log.
                os.close(os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
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
