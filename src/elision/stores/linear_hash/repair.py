"""Rebuilds a damaged store from what can be read of it, page by page, whoever refers to the pages.

Two steps. Every record of every bucket page whose checksum is right goes into a scratch table, and the log's changes
over it. Then each session is written anew from its log: as far as that has no gap, a lost text replaced by a note that
says so. Turns, histories, counts and the catalogue follow from the logs. The damaged files stay beside the new ones.
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
from elision.stores.linear_hash.draft import Draft, State
from elision.stores.linear_hash.files import File, OsFile, sync_folder
from elision.stores.linear_hash.fsck import check_pages, scan
from elision.stores.linear_hash.layout import AT_KIND, BUCKET, PAGE
from elision.stores.linear_hash.locks import WriterLock
from elision.stores.linear_hash.log import first_place
from elision.stores.linear_hash.meta import Meta
from elision.stores.linear_hash.pager import Pager
from elision.stores.linear_hash.place import Place
from elision.stores.linear_hash.records import (
    LOG,
    SESSION,
    Session,
    log_key,
    number_in,
    session,
    text_key,
    turn_and_size,
)
from elision.stores.linear_hash.sessions import Line, begin, extend, line
from elision.stores.linear_hash.snapshot import Tail, read_log, read_state
from elision.stores.linear_hash.table import Table
from elision.stores.linear_hash.writer import Limits, Writer
from elision.stores.packing import Blob, Packer, address_of
from elision.stores.store import Finding, NewSession

#: Records of a log that are written at once.
_CHUNK: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """sessions, records: that are in the store now. lost: what could not be read. kept: copies of the damaged files."""

    sessions: int
    records: int
    lost: tuple[Finding, ...]
    kept: tuple[Path, ...]


def repair(folder: Path) -> Repaired:
    """Rebuild the store in `folder`. Raises ConflictError if a process writes to it, StoreError if there is no room."""
    place = Place(folder)
    lock = WriterLock(place.lock)
    try:
        return _Repair(place).run()
    finally:
        lock.close()


class _Repair:
    def __init__(self, place: Place) -> None:
        self._place = place
        self._packer = Packer()
        self._lost: list[Finding] = []
        self._sessions = self._records = 0

    def run(self) -> Repaired:
        with ExitStack() as stack:
            scratch = stack.enter_context(closing(self._writer("scratch")))
            self._salvage(scratch)
            fresh = stack.enter_context(closing(self._writer("new")))
            for identifier, found in _sessions(scratch):
                self._rewrite(scratch, fresh, identifier, found)
            fresh.flush()
        kept = self._swap()
        return Repaired(sessions=self._sessions, records=self._records, lost=tuple(self._lost), kept=kept)

    # From pages to a table

    def _salvage(self, scratch: Writer) -> None:
        files = self._place.reading()
        with closing(files):
            self._lost += [each for each in check_pages(files.pages, files.log).findings if each.lost]
            tail = self._tail(files.pages, files.log)
            for found in self._readable(files.pages, files.log, tail):
                scratch.commit([Change(PUT, *found)])
            for change in tail.changes.values():
                if change.op != HEAD or scratch.head(change.key) is not None:
                    scratch.commit([change])
        scratch.flush()

    def _tail(self, pages: File, log: File) -> Tail:
        """The log, if it can be read and belongs to these pages; an empty one if not."""
        try:
            tail = read_log(log)
        except CorruptError as error:
            self._lose("log", f"{error}; what was written since the last checkpoint is lost")
            return Tail(first_place(0), first_place(0))
        try:
            read_state(pages, log, tail)
        except CorruptError:
            if not tail.images and _of_another(pages, tail):
                return Tail(first_place(0), first_place(0))
        return tail

    def _readable(self, pages: File, log: File, tail: Tail) -> Iterator[Record]:
        """Every record whose page, and whose value's pages, have a right checksum."""
        everything = Meta(file_id=0, pages=max(pages.size() // PAGE, max(tail.images, default=0) + 1))
        values = Table(Pager(pages, log, everything, images=tail.images))
        for number, page in scan(pages, log, tail.images):
            if page[AT_KIND] != BUCKET:
                continue
            try:
                for entry in bucket.entries(page):
                    found = self._value(values, entry)
                    if found is not None:
                        yield Record(entry.key, entry.head, found)
            except CorruptError as error:
                self._lose(f"page {number}", str(error))

    def _value(self, values: Table, entry: bucket.Entry) -> bytes | None:
        try:
            return values.value_of(entry)
        except CorruptError as error:
            self._lose(f"record {entry.key.hex()}", f"its value is lost: {error}")
            return None

    # From a table to sessions

    def _rewrite(self, scratch: Writer, fresh: Writer, identifier: bytes, found: Session) -> None:
        """One session, from its log."""
        now = replace(found, records=0, newest=0, raw_bytes=0)
        draft = Draft(fresh)
        now = begin(draft, now)
        fresh.commit(draft.changes())
        lines = self._lines(scratch, identifier, found)
        while chunk := list(islice(lines, _CHUNK)):
            draft = Draft(fresh)
            now = self._extend(draft, scratch, now, chunk)
            fresh.commit(draft.changes())
        if now.records < found.records:
            missing = f"records {now.records + 1} to {found.records} are lost"
            self._lose(f"session {found.new.key!r}", missing)
        self._sessions += 1
        self._records += now.records

    def _extend(self, draft: Draft, scratch: State, now: Session, chunk: Sequence[Line]) -> Session:
        new = 0
        for each in chunk:
            for address in each.texts:
                record = scratch.get(text_key(address))
                if record is not None:
                    size = len(self._packer.stretch(record.value))
                    new += draft.refer(Blob(address, record.value, size))
        draft.set_totals(draft.totals().plus(texts=new))
        return extend(draft, now, chunk)

    def _lines(self, scratch: Writer, identifier: bytes, found: Session) -> Iterator[Line]:
        """The log up to its first gap."""
        number = 1
        while record := scratch.get(log_key(identifier, number)):
            try:
                yield self._line(scratch, found, number, record)
            except (CorruptError, ValueError, LookupError, TypeError) as error:
                self._lose(f"session {found.new.key!r}", f"record {number} cannot be read: {error}")
                return
            number += 1

    def _line(self, scratch: State, found: Session, number: int, record: Record) -> Line:
        size = turn_and_size(record.head)[1]
        read = line(record.value, size, self._packer)
        missing = {address.hex() for address in read.texts if not self._has(scratch, address)}
        if not missing:
            return read
        self._lose(f"session {found.new.key!r}", f"{len(missing)} texts of record {number} are lost")
        value = _noted(json.loads(self._packer.stretch(record.value)), missing)
        body = self._packer.squeeze(json.dumps(value, separators=(",", ":")).encode())
        return line(body, size, self._packer)

    def _has(self, scratch: State, address: bytes) -> bool:
        record = scratch.get(text_key(address))
        try:
            return record is not None and address_of(self._packer.stretch(record.value)) == address
        except CorruptError:
            return False

    # Files

    def _writer(self, name: str) -> Writer:
        paths = [self._place.folder / f"{kind}.{name}" for kind in ("pages", "log")]
        for path in paths:
            path.unlink(missing_ok=True)
        pages, log = (OsFile(path, writable=True) for path in paths)
        return Writer(pages, log, limits=Limits(group=64))

    def _swap(self) -> tuple[Path, ...]:
        """Keep copies of the damaged files and put the new ones in their place.

        The page file first: until its log follows, the old one belongs to another file and is refused, not replayed.
        """
        kept = []
        for path in (self._place.pages, self._place.log):
            kept.append(path.with_name(f"{path.name}.damaged"))
            shutil.copyfile(path, kept[-1])
            kept[-1].chmod(0o600)
        for path in (self._place.pages, self._place.log):
            os.replace(path.with_name(f"{path.name}.new"), path)
            path.with_name(f"{path.name}.scratch").unlink()
        sync_folder(self._place.folder)
        return tuple(kept)

    def _lose(self, place: str, what: str) -> None:
        self._lost.append(Finding(place=place, what=what, lost=True))


def _sessions(scratch: Writer) -> Iterator[tuple[bytes, Session]]:
    """Sessions by the id of their log.

    Logs whose session's own record is lost come last, under a name that says so.
    """
    logs: dict[bytes, int] = {}
    known: dict[bytes, Session] = {}
    for record in scratch.records():
        if record.key[:1] == SESSION:
            found = session(record.head, record.value)
            known[found.id] = found
        elif record.key[:1] == LOG:
            identifier = record.key[1:17]
            logs[identifier] = max(logs.get(identifier, 0), number_in(record.key))
    yield from known.items()
    for identifier in logs.keys() - known.keys():
        name = f"recovered {identifier.hex()}"
        new = NewSession(key=name, family=name, at=0.0)
        yield identifier, Session(new=new, records=logs[identifier], newest=0, raw_bytes=0, changed=0.0, slot=0)


def _of_another(pages: File, tail: Tail) -> bool:
    return bool(tail.file_id) and pages.size() > 0


def _noted(value: Any, missing: set[str]) -> Any:
    """`value` with a note where a large text is lost."""
    if isinstance(value, list):
        return [_noted(each, missing) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("blob") in missing:
        note = {"text": f"[lost: this text was damaged in the store; its SHA-256 was {value['blob']}]"}
        if "opaque" not in value:
            return note
        return {name: each for name, each in value.items() if name not in _TAKEN}
    return {name: _noted(each, missing) for name, each in value.items()}


_TAKEN: Final = ("blob", "of")
