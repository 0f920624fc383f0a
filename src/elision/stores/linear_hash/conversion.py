"""Converts a store of the format before, once: everything is written anew, compared, and then takes its place."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from elision.errors import CorruptError, StoreError
from elision.stores.linear_hash.catalogue import SessionState
from elision.stores.linear_hash.compaction import LogCopy
from elision.stores.linear_hash.old_format import OldSession, OldStore, read_old_store
from elision.stores.linear_hash.records import draft_event
from elision.stores.linear_hash.store_folder import StoreFolder, WriterLock
from elision.stores.store_errors import REPAIR_COMMAND


def convert_old_store(folder: StoreFolder) -> None:
    """Convert the store in `folder`. Raises ConflictError if a process writes to it, CorruptError, StoreError."""
    try:
        with closing(WriterLock(folder.lock)):
            if not folder.is_old():
                return
            old = read_old_store(folder.old_pages, folder.old_log)
            if old.faults:
                raise CorruptError(
                    f"{folder.path}: the store is of the format before and damaged ({old.faults[0]}); "
                    f"run `{REPAIR_COMMAND}`"
                )
            fresh, _ = write_old_sessions(folder, old)
            folder.swap_log(fresh)
            for path in (folder.old_pages, folder.old_log):
                path.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{folder.path}: the store cannot be converted: {error}") from error


def write_old_sessions(folder: StoreFolder, old: OldStore, *, lenient: bool = False) -> tuple[Path, list[str]]:
    """Write the sessions of an old store to a new log, and compare them; return its path, and what was lost.

    lenient: whether a record that cannot be read ends its session. Raises CorruptError otherwise, and OSError.
    """
    copy = LogCopy(folder)
    written: dict[str, tuple[SessionState, list[bytes]]] = {}
    losses: list[str] = []
    try:
        for number, session in enumerate(old.list_sessions(), start=1):
            bodies = _read_bodies(old, session, losses, lenient=lenient)
            state = _make_state(session, number)
            parent, parent_bodies = written.get(session.new.parent, (None, []))
            shared = _count_shared(old, session, bodies, parent_bodies)
            copy.begin_session(state, shared, parent.number if parent and shared else 0)
            for index, body in enumerate(bodies[shared:], start=shared + 1):
                draft = draft_event(old.unpack_event(body), copy.log.catalogue.keys, session.new.family)
                draft.mark = old.read_batch_mark(session, index)
                copy.add_event(draft, number, index, session.changed)
            written[session.new.key] = (state, bodies)
        for state, bodies in written.values():
            for index, body in enumerate(bodies, start=1):
                if copy.log.view.read_event(copy.log.find_record(state, index)) != old.unpack_event(body):
                    raise CorruptError(f"session {state.key!r}: record {index} differs after its conversion")
        return copy.finish(), losses
    except BaseException:
        copy.discard()
        raise


def _read_bodies(old: OldStore, session: OldSession, losses: list[str], *, lenient: bool) -> list[bytes]:
    """Return the records of a session, up to the first that cannot be read."""
    bodies: list[bytes] = []
    for number in range(1, session.records + 1):
        try:
            body = old.read_body(session, number)
            old.unpack_event(body)
        except CorruptError as error:
            if not lenient:
                raise
            losses.append(f"session {session.new.key!r}: records {number} to {session.records} are lost ({error})")
            break
        bodies.append(body)
    return bodies


def _make_state(session: OldSession, number: int) -> SessionState:
    new = session.new
    return SessionState(number, new.key, new.family, new.parent, new.relation, new.at, session.changed)


def _count_shared(old: OldStore, session: OldSession, bodies: list[bytes], parent: list[bytes]) -> int:
    """Return how many records a session has in common with its parent at the beginning.

    One that was changed after it began keeps a record of its own, which has the time of the change. So does one that an
    append with an id wrote.
    """
    shared = 0
    limit = min(len(bodies) - (session.changed != session.new.at), len(parent))
    while shared < limit and bodies[shared] == parent[shared] and not old.read_batch_mark(session, shared + 1):
        shared += 1
    return shared
