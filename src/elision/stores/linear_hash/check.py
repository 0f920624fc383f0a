"""Checks a store, and rebuilds a damaged one from what can be read of its log.

A check reads every frame, record, text and page, and compares the directory with the log. A repair writes each session
anew up to its first lost record, and marks a lost text by a note in its place. The directory is made from the new log.
The damaged log is kept.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elision.errors import CorruptError, StoreError
from elision.stores.linear_hash.catalogue import Catalogue, SessionState
from elision.stores.linear_hash.folder import OpenLog, StoreFolder, WriterLock
from elision.stores.linear_hash.log import FrameReader
from elision.stores.linear_hash.records import DraftRecord, iterate_records
from elision.stores.linear_hash.writer import rewrite_log
from elision.stores.store import Finding
from elision.stores.store_base import LogCheck

_NOTE: Final = "[lost: this text was damaged in the store]"


def check_store(folder: StoreFolder) -> list[Finding]:
    """Return what is wrong in the store of `folder`. Raises OSError."""
    if not folder.has_log():
        what = "it is missing, and the directory of its records is there"
        return [Finding(place="log", what=what, lost=True)] if folder.directory.exists() else []
    try:
        opened = folder.open_log()
    except CorruptError as error:
        return [Finding(place="log", what=str(error), lost=True)]
    with closing(opened.file):
        return list(_check_opened(opened))


def _check_opened(opened: OpenLog) -> Iterator[Finding]:
    if opened.reader.is_header_damaged:
        yield Finding(place="log", what="one of the two copies of its header is damaged")
    whole, findings = _read_whole_log(opened)
    yield from findings
    yield from _check_sessions(opened)
    if opened.directory_error:
        yield Finding(place="directory", what=f"{opened.directory_error}; it is made from the log")
    elif not any(finding.lost for finding in findings):
        yield from _compare_directories(opened.catalogue, whole)


def _read_whole_log(opened: OpenLog) -> tuple[Catalogue, list[Finding]]:
    """Return what all records of the log add up to, and what is wrong with its frames."""
    reader = FrameReader(opened.file, (opened.reader.log_id, opened.reader.key_id))
    catalogue = Catalogue(reader.key_id, opened.view)
    findings = []
    while reader.end < opened.reader.end:
        # A frame that a writer adds meanwhile is not a part of this check.
        frame = next(reader.iterate_frames(), None)
        if frame is None:
            break
        for header in iterate_records(frame.data, frame.start):
            start = header.place - frame.start
            try:
                catalogue.enter_record(header, frame.data[start : start + header.size])
            except CorruptError as error:
                findings.append(Finding(place=f"log, byte {header.place}", what=str(error), lost=True))
    findings += [
        Finding(place=f"log, bytes {each.first} to {each.last}", what=each.what, lost=True) for each in reader.damage
    ]
    if reader.end < opened.reader.end:
        what = f"the directory names {opened.reader.end - reader.end} bytes more than the log has"
        findings.append(Finding(place=f"log, byte {reader.end}", what=what, lost=True))
    if opened.reader.is_cut():
        what = "the log was cut: no end mark follows; what was after this byte is lost"
        findings.append(Finding(place=f"log, byte {reader.end}", what=what, lost=True))
    return catalogue, findings


def _check_sessions(opened: OpenLog) -> Iterator[Finding]:
    """Read every record of every session."""
    catalogue = opened.catalogue
    for session in catalogue.by_key.values():
        turns = set()
        log_check = LogCheck()
        if catalogue.is_recovered(session):
            what = "the record that begins it is lost, and with it its name"
            yield Finding(place=f"session {session.key!r}", what=what, lost=True)
        size = 0
        for number in range(1, session.records + 1):
            place = f"session {session.key!r}, record {number}"
            offset = catalogue.find_record(session.number, number)
            if offset is None:
                log_check.skip()
                yield Finding(place=place, what="it is missing", lost=True)
                continue
            try:
                header, data = opened.view.read_record(offset)
                event = opened.view.unpack_event(header, data)
            except StoreError as error:
                log_check.skip()
                yield Finding(place=place, what=str(error), lost=True)
                continue
            size += header.raw_bytes
            if header.turn:
                turns.add(header.turn)
            if what := log_check.find_gap(event):
                yield Finding(place=place, what=what, lost=True)
            if header.number != number:
                yield Finding(place=place, what=f"record {header.number} is in its place", lost=True)
        if (len(turns), size) != (session.turns, session.raw_bytes):
            stated = (
                f"{session.turns} turns and {session.raw_bytes} bytes are stated, {len(turns)} and {size} are there"
            )
            yield Finding(place=f"session {session.key!r}", what=stated)


def _compare_directories(found: Catalogue, made: Catalogue) -> Iterator[Finding]:
    """Compare the directory's file with one made from the log."""
    for bucket, key, _ in found.directory.iterate_entries():
        if found.directory.is_misplaced(bucket, key):
            yield Finding(place=f"directory, bucket {bucket}", what="an entry belongs to another bucket")
    ours = Counter(entry[1:] for entry in found.directory.iterate_entries())
    theirs = Counter(entry[1:] for entry in made.directory.iterate_entries())
    if ours != theirs:
        more, less = (ours - theirs).total(), (theirs - ours).total()
        yield Finding(place="directory", what=f"{more} entries are not in the log, {less} are missing")
    if found.by_key != made.by_key or found.next_number != made.next_number:
        yield Finding(place="directory", what="the catalogue differs from the log")


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairResult:
    """sessions, records: that are in the store now. lost: what could not be read. kept: copies of the damaged files."""

    sessions: int
    records: int
    lost: tuple[Finding, ...]
    kept: tuple[Path, ...]


def repair(path: Path) -> RepairResult:
    """Rebuild the store in the folder `path`.

    Raises ConflictError if a process writes to it, StoreError if there is no room.
    """
    folder = StoreFolder(path)
    try:
        with closing(WriterLock(folder.lock)):
            return _repair_log(folder)
    except OSError as error:
        raise StoreError(f"{path}: the store cannot be repaired: {error}") from error


def _repair_log(folder: StoreFolder) -> RepairResult:
    """Put a new log in the place of the damaged one, and write its directory."""
    lost = tuple(each for each in check_store(folder) if each.lost)
    if not folder.has_log():
        return RepairResult(sessions=0, records=0, lost=lost, kept=())
    damaged = folder.open_log()
    with closing(damaged.file):
        fresh = rewrite_log(folder, damaged, lambda session, number: _read_draft(damaged, session, number))
    kept = folder.values.with_name("values.damaged")
    kept.unlink(missing_ok=True)
    os.link(folder.values, kept)
    folder.swap_log(fresh)
    repaired = folder.open_log()
    with closing(repaired.file):
        folder.save_directory(repaired)
        sessions = list(repaired.catalogue.by_key.values())
    records = sum(session.records for session in sessions)
    return RepairResult(sessions=len(sessions), records=records, lost=lost, kept=(kept,))


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
