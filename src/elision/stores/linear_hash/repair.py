"""Rebuilds a damaged store from what can be read of its log.

Each session is written anew up to its first lost record; a lost text is replaced by a note that marks the loss. The
directory is made from the new log. The damaged log is kept.
"""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elision.errors import CorruptError, StoreError
from elision.stores.linear_hash.catalogue import SessionState
from elision.stores.linear_hash.check import check_store
from elision.stores.linear_hash.compaction import rewrite_log
from elision.stores.linear_hash.open_log import OpenLog
from elision.stores.linear_hash.records import DraftRecord
from elision.stores.linear_hash.store_folder import StoreFolder, WriterLock
from elision.stores.store import Finding

_NOTE: Final = "[lost: this text was damaged in the store]"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """sessions, records: that are in the store now. lost: what could not be read. kept: copies of the damaged files."""

    sessions: int
    records: int
    lost: tuple[Finding, ...]
    kept: tuple[Path, ...]


def repair(folder: Path) -> RepairResult:
    """Rebuild the store in `folder`. Raises ConflictError if a process writes to it, StoreError if there is no room."""
    store_folder = StoreFolder(folder)
    try:
        with closing(WriterLock(store_folder.lock)):
            return _repair_log(store_folder)
    except OSError as error:
        raise StoreError(f"{folder}: the store cannot be repaired: {error}") from error


def _repair_log(folder: StoreFolder) -> RepairResult:
    lost = [each for each in check_store(folder) if each.lost]
    if not folder.has_log():
        return RepairResult(sessions=0, records=0, lost=tuple(lost), kept=())
    opened = folder.open_log()
    with closing(opened.file):
        fresh = rewrite_log(folder, opened, lambda session, number: _read_draft(opened, session, number))
    kept = folder.values.with_name("values.damaged")
    kept.unlink(missing_ok=True)
    os.link(folder.values, kept)
    folder.swap_log(fresh)
    return _finish_repair(folder, lost, (kept,))


def _read_draft(opened: OpenLog, session: SessionState, number: int) -> tuple[DraftRecord, float] | None:
    """Return a record; None if it is lost."""
    noted = False

    def read_text(place: int) -> bytes:
        nonlocal noted
        try:
            return opened.view.read_text(place)
        except CorruptError:
            noted = True
            return _NOTE.encode()

    try:
        draft, at = opened.read_draft(session, number, read_text)
    except CorruptError:
        return None
    if noted:
        # It is not what the append wrote.
        draft.mark = b""
    return draft, at


def _finish_repair(folder: StoreFolder, lost: list[Finding], kept: tuple[Path, ...]) -> RepairResult:
    """Write the directory of the new log, and count what is in it."""
    opened = folder.open_log()
    with closing(opened.file):
        folder.save_directory(opened)
        sessions = list(opened.catalogue.by_key.values())
    records = sum(session.records for session in sessions)
    return RepairResult(sessions=len(sessions), records=records, lost=tuple(lost), kept=kept)
