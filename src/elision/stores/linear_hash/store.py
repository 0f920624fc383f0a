"""The linear-hash store: sessions as records of a table in a page file of our own.

Whoever opens it reads, beside any other process. The first call that writes takes the writer's lock and keeps it until
the store is closed: one process writes, and a second one gets a ConflictError at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from elision.errors import CorruptError, StoreError
from elision.stores.batch_ids import check_batch_id
from elision.stores.excerpts import split_words
from elision.stores.linear_hash import session_changes
from elision.stores.linear_hash.audit import audit_records
from elision.stores.linear_hash.draft import Draft, TableState
from elision.stores.linear_hash.fsck import check_pages
from elision.stores.linear_hash.layout import PAGE
from elision.stores.linear_hash.locks import WriterLock
from elision.stores.linear_hash.reader import Reader, Snapshot
from elision.stores.linear_hash.records import (
    TOTALS_KEY,
    ObservationRecord,
    SessionRecord,
    log_key,
    node_key,
    session_key,
    slot_key,
    text_key,
    unpack_holders,
    unpack_log_head,
    unpack_session,
    unpack_totals,
)
from elision.stores.linear_hash.statistics import Statistics, measure_table
from elision.stores.linear_hash.store_folder import StoreFolder
from elision.stores.linear_hash.writer import Writer, WriterLimits
from elision.stores.packing import Packer
from elision.stores.store import Finding, Footprint, Hit, NewSession, PurgeResult, SessionInfo
from elision.stores.store_errors import closed_store_error, missing_observation_error
from elision.stores.text_search import find_hits
from elision.trajectory.events import Event, TurnAdded, TurnAmended
from elision.trajectory.plan import Key
from elision.trajectory.turn import Observation, Turn

#: Records that `events` reads at once.
_CHUNK: Final = 64
#: Share of free pages from which on the file is worth writing anew.
_WASTE: Final = 0.02


class LinearHashStore:
    """Keeps sessions in `folder`. For several threads.

    limits: with the default, an append is durable when it returns. `WriterLimits(group=64)` syncs once per 64 appends:
    then an append is durable only after `flush`, and a crash before it may lose up to 63 appends.
    """

    def __init__(self, folder: str | Path, limits: WriterLimits | None = None) -> None:
        self._folder = StoreFolder(Path(folder))
        self._limits = limits or WriterLimits()
        self._mutex = threading.RLock()
        self._packer = Packer()
        self._folder.make_folder()
        self._reader: Reader | None = Reader(self._folder.open_for_reading)
        self._lock: WriterLock | None = None
        self._writer: Writer | None = None

    # Writing

    def create(self, session: NewSession) -> None:
        with self._open_draft() as draft:
            session_changes.create_session(draft, session, self._packer)

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        after = session.shared
        packer = self._packer
        with self._open_draft() as draft:
            if session_changes.has_append(draft, session.key, events, after=after, batch=batch, packer=packer):
                return after + len(events)
            session_changes.create_session(draft, session, packer)
            return session_changes.append_events(
                draft, session.key, events, after=after, at=at, batch=batch, packer=packer
            )

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        with self._open_draft() as draft:
            return session_changes.append_events(
                draft, session, events, after=after, at=at, batch=batch, packer=self._packer
            )

    def flush(self) -> None:
        """Make every append so far durable; of use with `group` above 1."""
        with self._mutex:
            if self._writer:
                self._writer.flush()

    def delete(self, session: str) -> None:
        with self._open_draft() as draft:
            session_changes.delete_session(draft, session, self._packer)

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> PurgeResult:
        with self._mutex:
            gone: list[str] = []
            before = self._count_used_bytes()
            for info in reversed(self.sessions()):
                old = older_than is not None and info.changed < older_than
                if old or (max_bytes is not None and self._count_used_bytes() > max_bytes):
                    self.delete(info.key)
                    gone.append(info.key)
            if max_bytes is not None and self.footprint().stored_bytes > max_bytes:
                self.compact()
            return PurgeResult(
                sessions=tuple(gone), freed_bytes=max(0, before - self._count_used_bytes()) if gone else 0
            )

    def compact(self) -> int:
        with self._mutex:
            writer = self._get_writer()
            if not writer.checkpoint():
                raise StoreError(f"{self._folder.path}: others are reading, or the disk is full; compact it later")
            before = self._count_disk_bytes()
            if writer.meta.free_pages <= writer.meta.pages * _WASTE:
                return 0
            self._rebuild_files(writer)
            return max(0, before - self._count_disk_bytes())

    def close(self) -> None:
        with self._mutex:
            reader = self._reader
            writer = self._writer
            lock = self._lock
            self._reader = self._writer = self._lock = None
            try:
                if writer:
                    writer.close()
            finally:
                if reader:
                    reader.close()
                if lock:
                    lock.close()

    # Reading

    def length(self, session: str) -> int:
        with self._open_state() as state:
            return session_changes.find_session(state, session).records

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        with self._open_state() as state:
            found = session_changes.find_session(state, session)
        return self._iterate_events(found, max(0, after) + 1)

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        turns = []
        with self._open_state() as state:
            found = session_changes.find_session(state, session)
            for index in self._list_turn_indices(state, found):
                if first <= index and (last is None or index <= last):
                    turn = self._read_turn(state, found, index)
                    if turn:
                        turns.append(turn)
        return turns

    def observation(self, session: str, key: Key) -> Observation:
        with self._open_state() as state:
            turn = self._read_turn(state, session_changes.find_session(state, session), key[0])
        if turn is None or not 1 <= key[1] <= len(turn.observations):
            raise missing_observation_error(session, key)
        return turn.observations[key[1] - 1]

    def find_observation(self, session: str, key: Key) -> ObservationRecord:
        """Return what a bucket page holds of an observation: its placeholder once it is masked, and its text's address.

        Reads bucket pages alone, however large the observation. Raises UnknownHandle.
        """
        with self._open_state() as state:
            turn = session_changes.find_turn(state, session_changes.find_session(state, session).id, key[0])
        for observation in turn.seen if turn else ():
            if observation.position == key[1]:
                return observation
        raise missing_observation_error(session, key)

    def search(self, session: str, query: str, limit: int = 20) -> list[Hit]:
        words = split_words(query)
        hits: list[Hit] = []
        with self._open_state() as state:
            found = session_changes.find_session(state, session)
            if not words:
                return []
            for index in reversed(self._list_turn_indices(state, found)):
                if len(hits) >= limit:
                    break
                turn = self._read_turn(state, found, index)
                if turn:
                    hits.extend(find_hits(session, turn, words))
        return hits[: max(0, limit)]

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        with self._open_state() as state:
            for node in filter(None, reversed(nodes)):
                record = state.get(node_key(family, node))
                if record:
                    known = [
                        (self._read_session(state, identifier), turn)
                        for identifier, turn in unpack_holders(record.value)
                    ]
                    newest = max(known, key=lambda each: (each[0].changed, each[0].new.key, each[1]))
                    return newest[0].new.key, newest[1]
        return None

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        if changed_since is None:
            since = float("-inf")
        else:
            since = changed_since
        with self._open_state() as state:
            count = unpack_totals(state.head(TOTALS_KEY)).sessions
            slots = [state.head(slot_key(slot)) for slot in range(count)]
            every = (self._read_session(state, identifier).info() for identifier in slots if identifier)
            found = [info for info in every if info.changed >= since and info.family.startswith(family_prefix)]
        return sorted(found, key=lambda info: (info.changed, info.key), reverse=True)

    def info(self, session: str) -> SessionInfo:
        with self._open_state() as state:
            return session_changes.find_session(state, session).info()

    def footprint(self) -> Footprint:
        with self._mutex:
            if self._writer:
                self._writer.checkpoint(patience=0)
            with self._open_state() as state:
                now = unpack_totals(state.head(TOTALS_KEY))
            return Footprint(
                sessions=now.sessions,
                records=now.records,
                turns=now.turns,
                texts=now.texts,
                raw_bytes=now.raw_bytes,
                stored_bytes=self._count_disk_bytes(),
            )

    def check(self) -> list[Finding]:
        self.flush()
        with self._mutex:
            self._check_open()
            with closing(Reader(self._folder.open_for_reading)) as reader:
                try:
                    with reader.open_snapshot() as state:
                        return self._check_pages() + list(audit_records(state, self._packer))
                except CorruptError:
                    # Not even the meta page or the log can be read; the pages say why.
                    return self._check_pages()

    def statistics(self) -> Statistics:
        """Return the sizes of the table and the work of lookups in this process."""
        with self._open_state() as state:
            return measure_table(state.table)

    # Inside

    def _check_pages(self) -> list[Finding]:
        with closing(self._folder.open_for_reading()) as files:
            return check_pages(files.pages, files.log).findings

    @contextmanager
    def _open_state(self) -> Iterator[Writer | Snapshot]:
        """Yield the newest state: what this process wrote, or what others committed."""
        with self._mutex:
            self._check_open()
            try:
                if self._writer:
                    yield self._writer
                elif self._reader:
                    with self._reader.open_snapshot() as snapshot:
                        yield snapshot
            except OSError as error:
                raise StoreError(f"{self._folder.path}: the store cannot be read: {error}") from error

    @contextmanager
    def _open_draft(self) -> Iterator[Draft]:
        """Yield a transaction; committed when the block ends, forgotten if it raises."""
        with self._mutex:
            writer = self._get_writer()
            draft = Draft(writer)
            try:
                yield draft
            except OSError as error:
                raise StoreError(f"{self._folder.path}: the store cannot be read: {error}") from error
            if changes := draft.list_changes():
                writer.commit(changes)

    def _get_writer(self) -> Writer:
        """Return the writer, which this process becomes if it is not. Raises ConflictError if another process is."""
        self._check_open()
        if self._writer is None:
            try:
                lock = WriterLock(self._folder.lock)
            except OSError as error:
                raise StoreError(f"{self._folder.path}: the store cannot be written: {error}") from error
            try:
                self._writer = self._folder.open_for_writing(self._limits)
            except OSError as error:
                raise StoreError(f"{self._folder.path}: the store cannot be written: {error}") from error
            finally:
                if self._writer is None:
                    lock.close()
            self._lock = lock
        if self._lock:
            self._lock.check()
        return self._writer

    def _rebuild_files(self, writer: Writer) -> None:
        fresh = self._folder.rebuild_pages(writer.records(), file_id=writer.meta.file_id)
        writer.close()
        self._folder.swap_pages(fresh)
        self._writer = None
        self._writer = self._folder.open_for_writing(self._limits)

    def _check_open(self) -> None:
        if self._reader is None:
            raise closed_store_error(str(self._folder.path))

    def _count_used_bytes(self) -> int:
        """Return bytes of pages that something uses."""
        with self._open_state() as state:
            meta = state.table and state.table.meta
        if meta:
            return (meta.pages - meta.free_pages) * PAGE
        return 0

    def _count_disk_bytes(self) -> int:
        return sum(path.stat().st_size for path in (self._folder.pages, self._folder.log))

    def _iterate_events(self, found: SessionRecord, first: int) -> Iterator[Event]:
        for start in range(first, found.records + 1, _CHUNK):
            with self._open_state() as state:
                numbers = range(start, min(start + _CHUNK, found.records + 1))
                chunk = [self._read_event(state, found, number) for number in numbers]
            yield from chunk

    def _read_event(self, state: TableState, found: SessionRecord, number: int) -> Event:
        record = state.get(log_key(found.id, number))
        if record is None:
            session_changes.find_session(state, found.new.key)
            raise CorruptError(f"record {number} of session {found.new.key!r} is missing; run `elision store fsck`")
        return self._packer.unpack(record.value, lambda address: _read_text(state, address))

    def _list_turn_indices(self, state: TableState, found: SessionRecord) -> Sequence[int]:
        """Return indices of a session's turns, in order."""
        if found.newest <= found.records:
            return range(1, found.newest + 1)
        heads = (state.head(log_key(found.id, number)) for number in range(1, found.records + 1))
        return sorted({turn for head in heads if head and (turn := unpack_log_head(head)[0])})

    def _read_turn(self, state: TableState, found: SessionRecord, index: int) -> Turn | None:
        turn = session_changes.find_turn(state, found.id, index)
        if turn is None:
            return None
        event = self._read_event(state, found, turn.number)
        if isinstance(event, TurnAdded | TurnAmended):
            return event.turn
        return None

    def _read_session(self, state: TableState, identifier: bytes) -> SessionRecord:
        record = state.get(session_key(identifier))
        if record is None:
            raise CorruptError(f"session {identifier.hex()} is referred to and missing; run `elision store fsck`")
        return unpack_session(record.head, record.value)


def _read_text(state: TableState, address: bytes) -> bytes:
    record = state.get(text_key(address))
    if record is None:
        raise CorruptError(f"the text {address.hex()} is missing; run `elision store fsck`")
    return record.value
