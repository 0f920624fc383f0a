"""Errors of all stores, in one wording.

What can be known of a disk without writing to it: whether anything may be written, and whether there is room.
"""

from __future__ import annotations

import os
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


#: Bytes below which a disk counts as full: an append and the log's own pages need some room.
MIN_FREE_BYTES: Final = 1 << 20


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
