"""Compaction: the living sessions of a log, written to a new one.

Sessions keep their numbers, and come in the order in which they began; so a fork comes after its parent. A fork whose
parent is there, with the same records at its beginning, shares them again. Any other one gets records of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from elision.errors import CorruptError
from elision.stores.linear_hash.catalogue import Catalogue, LogView, SessionState, pack_session_facts
from elision.stores.linear_hash.log import FRAME, FrameReader, FrameWriter, write_log_header
from elision.stores.linear_hash.records import BEGIN, DraftRecord, RecordHeader, RecordPacker
from elision.stores.linear_hash.store_folder import OpenLog, StoreFolder
from elision.stores.store import NewSession
from elision.trajectory.events import Event

#: Bytes of a frame.
_BATCH: Final = 1 << 20


class LogCopy:
    """Writes sessions to a new log, `values.new` of the folder. key_id: the secret of its keys; random by default."""

    def __init__(self, folder: StoreFolder, packer: RecordPacker, key_id: int = 0) -> None:
        self.file = folder.create_file("values.new")
        write_log_header(self.file, key_id)
        self._packer = packer
        reader = FrameReader(self.file)
        self._log = FrameWriter(reader)
        self._view = LogView(self.file)
        self.catalogue = Catalogue(reader.key_id, self._view, packer)
        self._begin_frame()

    def begin_session(self, session: SessionState, shared: int, parent: int) -> None:
        new = NewSession(
            key=session.key,
            family=session.family,
            parent=session.parent,
            relation=session.relation,
            at=session.begun,
            shared=shared,
        )
        facts = pack_session_facts(new, parent)
        self._add(*self._packer.pack_session(BEGIN, session.number, session.changed, facts, self._find_place()))

    def add_event(self, draft: DraftRecord, session: int, number: int, at: float) -> None:
        self._add(*self._packer.pack_event(draft, session, number, at, self.catalogue.find_text, self._find_place()))
        if len(self._view.pending) >= _BATCH:
            self._write_frame()

    def read_event(self, session: int, number: int) -> Event:
        """Return a record as it was written. Raises CorruptError."""
        self._write_frame()
        offset = self.catalogue.find_record(session, number)
        if offset is None:
            raise CorruptError(f"record {number} was not written")
        return self._packer.unpack_event(*self._view.read_record(offset), self.catalogue.read_text)

    def close(self) -> None:
        """Write what is left and close the file. Raises OSError."""
        self._write_frame()
        self._log.cut_tail()
        self.file.close()

    def _find_place(self) -> int:
        """Return where the next record will be in the log."""
        return self._view.pending_start + len(self._view.pending)

    def _add(self, header: RecordHeader, record: bytes) -> None:
        self._view.pending += record
        self.catalogue.enter_record(header, record)

    def _write_frame(self) -> None:
        if self._view.pending:
            self._log.write_frame(self._view.pending)
            self._begin_frame()

    def _begin_frame(self) -> None:
        self._view.pending = bytearray()
        self._view.pending_start = self._log.end + FRAME


def rewrite_log(
    folder: StoreFolder,
    source: OpenLog,
    packer: RecordPacker,
    read_draft: Callable[[SessionState, int], tuple[DraftRecord, float] | None] | None = None,
) -> Path:
    """Write the living sessions of `source` to a new log; return its path.

    read_draft: record of a session by its number, and when it was written; None ends the session. Without it, a record
    that cannot be read raises CorruptError. Raises OSError.
    """
    copy = LogCopy(folder, packer, source.reader.key_id)
    read = read_draft or (lambda session, number: source.read_draft(packer, session, number))
    try:
        for session in sorted(source.catalogue.by_key.values(), key=lambda each: each.number):
            parent, shared = _find_shared(source.catalogue, copy.catalogue, session)
            copy.begin_session(session, shared, parent)
            for number in range(shared + 1, session.records + 1):
                found = read(session, number)
                if found is None:
                    break
                copy.add_event(found[0], session.number, number, found[1])
        copy.close()
    except BaseException:
        copy.file.close()
        copy.file.path.unlink(missing_ok=True)
        raise
    return copy.file.path


def _find_shared(old: Catalogue, new: Catalogue, session: SessionState) -> tuple[int, int]:
    """Return the parent's number and how many records of it a session still shares."""
    parent = old.by_key.get(session.parent)
    if not session.parent or parent is None or parent.number >= session.number:
        return 0, 0
    limit = min(session.records, new.by_key[parent.key].records)
    shared = 0
    while shared < limit:
        place = old.find_record(session.number, shared + 1)
        if place is None or place != old.find_record(parent.number, shared + 1):
            break
        shared += 1
    return (parent.number, shared) if shared else (0, 0)
