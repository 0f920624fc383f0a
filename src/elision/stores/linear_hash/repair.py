"""Rebuilds a damaged store from what can be read of it, page by page, also of pages that nothing refers to.

Two steps. Every record of every bucket page whose checksum is right goes into a scratch table, and the log's changes
over it. Then each session is written anew from its log: as far as that has no gap, a lost text replaced by a note that
marks the loss. Turns, histories, counts and the catalogue follow from the logs. The damaged files are kept.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from elision.errors import CorruptError
from elision.stores.linear_hash import bucket
from elision.stores.linear_hash.changes import HEAD, PUT, Change, Record
from elision.stores.linear_hash.draft import Draft, TableState
from elision.stores.linear_hash.file_access import File, OsFile, sync_folder
from elision.stores.linear_hash.fsck import check_pages, scan_pages
from elision.stores.linear_hash.layout import AT_KIND, BUCKET, PAGE
from elision.stores.linear_hash.locks import WriterLock
from elision.stores.linear_hash.log import first_position
from elision.stores.linear_hash.meta import Meta
from elision.stores.linear_hash.pager import Pager
from elision.stores.linear_hash.records import (
    LOG,
    SESSION,
    SessionRecord,
    log_key,
    read_number,
    text_key,
    unpack_batch_mark,
    unpack_log_head,
    unpack_session,
)
from elision.stores.linear_hash.session_changes import LogLine, begin_session, extend_log, parse_line
from elision.stores.linear_hash.snapshot import LogTail, read_log, read_state
from elision.stores.linear_hash.store_folder import StoreFolder
from elision.stores.linear_hash.table import Table
from elision.stores.linear_hash.writer import Writer, WriterLimits
from elision.stores.packing import Blob, Packer, hash_text
from elision.stores.store import Finding, NewSession

#: Records of a log that are written at once.
_CHUNK: Final = 64


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
    lock = WriterLock(store_folder.lock)
    try:
        return _Repair(store_folder).run()
    finally:
        lock.close()


class _Repair:
    def __init__(self, folder: StoreFolder) -> None:
        self._folder = folder
        self._packer = Packer()
        self._lost: list[Finding] = []
        self._sessions = self._records = 0

    def run(self) -> RepairResult:
        with ExitStack() as stack:
            scratch = stack.enter_context(closing(self._open_writer("scratch")))
            self._salvage(scratch)
            fresh = stack.enter_context(closing(self._open_writer("new")))
            for identifier, found in _find_sessions(scratch):
                self._rewrite_session(scratch, fresh, identifier, found)
            fresh.flush()
        kept = self._swap_files()
        return RepairResult(sessions=self._sessions, records=self._records, lost=tuple(self._lost), kept=kept)

    # From pages to a table

    def _salvage(self, scratch: Writer) -> None:
        files = self._folder.open_for_reading()
        with closing(files):
            self._lost += [each for each in check_pages(files.pages, files.log).findings if each.lost]
            tail = self._read_log(files.pages, files.log)
            for found in self._iterate_readable(files.pages, files.log, tail):
                scratch.commit([Change(PUT, *found)])
            for change in tail.changes.values():
                if change.op != HEAD or scratch.head(change.key) is not None:
                    scratch.commit([change])
        scratch.flush()

    def _read_log(self, pages: File, log: File) -> LogTail:
        """Return the log, if it can be read and belongs to these pages; an empty one if not."""
        try:
            tail = read_log(log)
        except CorruptError as error:
            self._add_loss("log", f"{error}; what was written since the last checkpoint is lost")
            return LogTail(first_position(0), first_position(0))
        try:
            read_state(pages, log, tail)
        except CorruptError:
            if not tail.images and _is_of_another(pages, tail):
                return LogTail(first_position(0), first_position(0))
        return tail

    def _iterate_readable(self, pages: File, log: File, tail: LogTail) -> Iterator[Record]:
        """Yield every record whose page, and whose value's pages, have a right checksum."""
        everything = Meta(file_id=0, pages=max(pages.size() // PAGE, max(tail.images, default=0) + 1))
        values = Table(Pager(pages, log, everything, images=tail.images))
        for number, page in scan_pages(pages, log, tail.images):
            if page[AT_KIND] != BUCKET:
                continue
            try:
                for entry in bucket.read_entries(page):
                    found = self._read_value(values, entry)
                    if found is not None:
                        yield Record(entry.key, entry.head, found)
            except CorruptError as error:
                self._add_loss(f"page {number}", str(error))

    def _read_value(self, values: Table, entry: bucket.BucketEntry) -> bytes | None:
        try:
            return values.value_of(entry)
        except CorruptError as error:
            self._add_loss(f"record {entry.key.hex()}", f"its value is lost: {error}")
            return None

    # From a table to sessions

    def _rewrite_session(self, scratch: Writer, fresh: Writer, identifier: bytes, found: SessionRecord) -> None:
        """One session, from its log."""
        now = replace(found, records=0, newest=0, raw_bytes=0)
        draft = Draft(fresh)
        now = begin_session(draft, now)
        fresh.commit(draft.list_changes())
        lines = self._iterate_lines(scratch, identifier, found)
        while chunk := list(islice(lines, _CHUNK)):
            draft = Draft(fresh)
            now = self._extend_session(draft, scratch, now, chunk)
            fresh.commit(draft.list_changes())
        if now.records < found.records:
            missing = f"records {now.records + 1} to {found.records} are lost"
            self._add_loss(f"session {found.new.key!r}", missing)
        self._sessions += 1
        self._records += now.records

    def _extend_session(
        self, draft: Draft, scratch: TableState, now: SessionRecord, chunk: Sequence[LogLine]
    ) -> SessionRecord:
        new = 0
        for each in chunk:
            for address in each.texts:
                record = scratch.get(text_key(address))
                if record is not None:
                    size = len(self._packer.decompress(record.value))
                    new += draft.add_reference(Blob(address, record.value, size))
        draft.set_totals(draft.totals().add(texts=new))
        return extend_log(draft, now, chunk)

    def _iterate_lines(self, scratch: Writer, identifier: bytes, found: SessionRecord) -> Iterator[LogLine]:
        """Yield the log up to its first gap."""
        number = 1
        while record := scratch.get(log_key(identifier, number)):
            try:
                yield self._read_line(scratch, found, number, record)
            except (CorruptError, ValueError, LookupError, TypeError) as error:
                self._add_loss(f"session {found.new.key!r}", f"record {number} cannot be read: {error}")
                return
            number += 1

    def _read_line(self, scratch: TableState, found: SessionRecord, number: int, record: Record) -> LogLine:
        size = unpack_log_head(record.head)[1]
        read = parse_line(record.value, size, self._packer)
        missing = {address.hex() for address in read.texts if not self._has_text(scratch, address)}
        if not missing:
            return replace(read, mark=unpack_batch_mark(record.head))
        self._add_loss(f"session {found.new.key!r}", f"{len(missing)} texts of record {number} are lost")
        value = _note_missing(json.loads(self._packer.decompress(record.value)), missing)
        body = self._packer.compress(json.dumps(value, separators=(",", ":")).encode())
        return parse_line(body, size, self._packer)

    def _has_text(self, scratch: TableState, address: bytes) -> bool:
        record = scratch.get(text_key(address))
        try:
            return record is not None and hash_text(self._packer.decompress(record.value)) == address
        except CorruptError:
            return False

    # Files

    def _open_writer(self, name: str) -> Writer:
        paths = [self._folder.path / f"{kind}.{name}" for kind in ("pages", "log")]
        for path in paths:
            path.unlink(missing_ok=True)
        pages, log = (OsFile(path, writable=True) for path in paths)
        return Writer(pages, log, limits=WriterLimits(group=64))

    def _swap_files(self) -> tuple[Path, ...]:
        """Keep copies of the damaged files and put the new ones in their place.

        The page file first: until its log follows, the old one belongs to another file and is refused, not replayed.
        """
        kept = []
        for path in (self._folder.pages, self._folder.log):
            kept.append(path.with_name(f"{path.name}.damaged"))
            shutil.copyfile(path, kept[-1])
            kept[-1].chmod(0o600)
        for path in (self._folder.pages, self._folder.log):
            os.replace(path.with_name(f"{path.name}.new"), path)
            path.with_name(f"{path.name}.scratch").unlink()
        sync_folder(self._folder.path)
        return tuple(kept)

    def _add_loss(self, place: str, what: str) -> None:
        self._lost.append(Finding(place=place, what=what, lost=True))


def _find_sessions(scratch: Writer) -> Iterator[tuple[bytes, SessionRecord]]:
    """Yield sessions by the id of their log.

    Logs whose session's own record is lost come last, under a name that says so.
    """
    logs: dict[bytes, int] = {}
    known: dict[bytes, SessionRecord] = {}
    for record in scratch.records():
        if record.key[:1] == SESSION:
            found = unpack_session(record.head, record.value)
            known[found.id] = found
        elif record.key[:1] == LOG:
            identifier = record.key[1:17]
            logs[identifier] = max(logs.get(identifier, 0), read_number(record.key))
    yield from known.items()
    for identifier in logs.keys() - known.keys():
        name = f"recovered {identifier.hex()}"
        new = NewSession(key=name, family=name, at=0.0)
        yield identifier, SessionRecord(new=new, records=logs[identifier], newest=0, raw_bytes=0, changed=0.0, slot=0)


def _is_of_another(pages: File, tail: LogTail) -> bool:
    return bool(tail.file_id) and pages.size() > 0


def _note_missing(value: Any, missing: set[str]) -> Any:
    """Return `value` with a note where a large text is lost."""
    if isinstance(value, list):
        return [_note_missing(each, missing) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("blob") in missing:
        note = {"text": f"[lost: this text was damaged in the store; its SHA-256 was {value['blob']}]"}
        if "opaque" not in value:
            return note
        return {name: each for name, each in value.items() if name not in _TAKEN}
    return {name: _note_missing(each, missing) for name, each in value.items()}


_TAKEN: Final = ("blob", "of")
