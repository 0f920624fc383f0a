"""Compaction: the living sessions of a log, written to a new one.

Sessions keep their numbers, and come in the order in which they began; so a fork comes after its parent. A fork whose
parent is there, with the same records at its beginning, shares them again. Any other one gets records of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from elision.stores.linear_hash.catalogue import Catalogue, SessionState, pack_session_facts
from elision.stores.linear_hash.frame_builder import FrameBuilder
from elision.stores.linear_hash.log import write_log_header
from elision.stores.linear_hash.open_log import OpenLog, open_log_file
from elision.stores.linear_hash.records import BEGIN, DraftRecord
from elision.stores.linear_hash.store_folder import StoreFolder
from elision.stores.store import NewSession

#: Bytes of a frame.
_FRAME_BYTES: Final = 1 << 20


class LogCopy:
    """Writes sessions to a new log, `values.new` of the folder. key_id: the secret of its keys; random by default."""

    def __init__(self, folder: StoreFolder, key_id: int = 0) -> None:
        self._file = folder.create_file("values.new")
        write_log_header(self._file, key_id)
        self.log = open_log_file(self._file)
        self._frame = FrameBuilder(self.log)

    def begin_session(self, session: SessionState, shared: int, parent: int) -> None:
        """Begin a session. shared: records of the session with number `parent` that it begins with."""
        new = NewSession(
            key=session.key,
            family=session.family,
            parent=session.parent,
            relation=session.relation,
            at=session.begun,
            shared=shared,
        )
        self._frame.add_session(BEGIN, session.number, session.changed, pack_session_facts(new, parent))

    def add_event(self, draft: DraftRecord, session: int, number: int, at: float) -> None:
        self._frame.add_event(draft, session, number, at)
        if self._frame.waiting >= _FRAME_BYTES:
            self._frame.write_frame()

    def finish(self) -> Path:
        """Write what is left and close the file; return its path. Raises OSError."""
        self._frame.write_frame()
        self._frame.cut_tail()
        self._file.close()
        return self._file.path

    def discard(self) -> None:
        """Remove the file."""
        self._file.close()
        self._file.path.unlink(missing_ok=True)


def rewrite_log(
    folder: StoreFolder,
    source: OpenLog,
    read_draft: Callable[[SessionState, int], tuple[DraftRecord, float] | None] | None = None,
) -> Path:
    """Write the living sessions of `source` to a new log; return its path.

    read_draft: record of a session by its number, and when it was written; None ends the session. Without it, a record
    that cannot be read raises CorruptError. Raises OSError.
    """
    copy = LogCopy(folder, source.reader.key_id)
    read = read_draft or source.read_draft
    try:
        for session in sorted(source.catalogue.by_key.values(), key=lambda each: each.number):
            parent, shared = _find_shared(source.catalogue, copy.log.catalogue, session)
            copy.begin_session(session, shared, parent)
            for number in range(shared + 1, session.records + 1):
                found = read(session, number)
                if found is None:
                    break
                copy.add_event(found[0], session.number, number, found[1])
        return copy.finish()
    except BaseException:
        copy.discard()
        raise


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
