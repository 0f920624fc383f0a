"""The linear-hash store: sessions in a log of values, with linear hashing as its directory.

Any process may open it and read, beside any other. The first call that writes takes the writer's lock and keeps it
until the store is closed: one process writes, and a second one gets a ConflictError at once.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elision.errors import CorruptError, StoreError
from elision.stores.batch_ids import check_batch_id
from elision.stores.excerpts import split_words
from elision.stores.linear_hash.catalogue import Catalogue, SessionState
from elision.stores.linear_hash.check import check_store
from elision.stores.linear_hash.compaction import rewrite_log
from elision.stores.linear_hash.conversion import convert_old_store
from elision.stores.linear_hash.locks import WriterLock
from elision.stores.linear_hash.log import FRAME, START
from elision.stores.linear_hash.records import RecordPacker
from elision.stores.linear_hash.statistics import Statistics, measure_store
from elision.stores.linear_hash.store_folder import OpenLog, StoreFolder
from elision.stores.linear_hash.writer import Writer, WriterLimits
from elision.stores.store import Finding, Footprint, Hit, NewSession, PurgeResult, SessionInfo
from elision.stores.store_errors import closed_store_error, missing_observation_error, missing_session_error
from elision.stores.text_search import find_hits
from elision.trajectory.event_json import decode_observation
from elision.trajectory.events import Event, PassDecided, TurnAdded, TurnAmended
from elision.trajectory.plan import Key
from elision.trajectory.turn import Observation, Turn

#: Records that `events` reads at once.
_CHUNK: Final = 64
#: Share of unused bytes from which on a compaction is worth it, and from which on a new session begins with one.
_WASTE: Final = 0.02
_TOO_MUCH_WASTE: Final = 0.5
#: Bytes of a log from which on a new session compacts it.
_WORTH_COMPACTING: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class PlaceholderRecord:
    """What stands in views for a tool result. place: offset of the decision in the log."""

    key: Key
    placeholder: str
    place: int


class LinearHashStore:
    """Keeps sessions in `folder`. For several threads.

    limits: with the default, an append is durable when it returns. `WriterLimits(group=64)` syncs once per 64 appends:
    then an append is durable only after `flush`, and a crash before it may lose up to 63 appends.
    """

    def __init__(self, folder: str | Path, limits: WriterLimits | None = None) -> None:
        self._folder = StoreFolder(Path(folder))
        self._limits = limits or WriterLimits()
        self._mutex = threading.RLock()
        self._packer = RecordPacker()
        self._is_open = True
        self._seen: OpenLog | None = None
        self._lock: WriterLock | None = None
        self._writer: Writer | None = None
        self._folder.make_folder()
        if self._folder.is_old():
            convert_old_store(self._folder)

    # Writing

    def create(self, session: NewSession) -> None:
        with self._mutex:
            self._make_space().create_session(session, (), session.at)

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        with self._mutex:
            return self._make_space().create_session(session, events, at, batch)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        with self._mutex:
            return self._get_writer().append_events(session, events, after=after, at=at, batch=batch)

    def flush(self) -> None:
        """Make every append so far durable; of use with `group` above 1."""
        with self._mutex:
            if self._writer:
                self._writer.flush()

    def delete(self, session: str) -> None:
        with self._mutex:
            self._get_writer().delete_session(session)

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> PurgeResult:
        with self._mutex:
            gone: list[str] = []
            before = self._count_used_bytes()
            for info in reversed(self.sessions()):
                old = older_than is not None and info.changed < older_than
                if old or (max_bytes is not None and self._is_above(max_bytes)):
                    self.delete(info.key)
                    gone.append(info.key)
            if max_bytes is not None and self._count_stored_bytes() > max_bytes:
                self.compact()
            if not gone:
                return PurgeResult(sessions=(), freed_bytes=0)
            return PurgeResult(sessions=tuple(gone), freed_bytes=max(0, before - self._count_used_bytes()))

    def compact(self) -> int:
        with self._mutex:
            writer = self._get_writer()
            before = self._count_stored_bytes()
            if writer.catalogue.unused_bytes > writer.log_bytes * _WASTE:
                self._compact_log(writer)
            elif not writer.checkpoint():
                raise StoreError(f"{self._folder.path}: the disk is full; compact the store later")
            return max(0, before - self._count_stored_bytes())

    def close(self) -> None:
        with self._mutex:
            self._is_open = False
            writer = self._writer
            lock = self._lock
            self._writer = self._lock = None
            try:
                if writer:
                    writer.close()
            finally:
                self._forget_seen()
                if lock:
                    lock.close()

    # Reading

    def length(self, session: str) -> int:
        with self._open_state() as state:
            return _find_session(state, session).records

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        with self._open_state() as state:
            found = _find_session(state, session)
            return self._iterate_events(found.number, session, max(0, after) + 1, found.records)

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        with self._open_state() as state:
            if state is None:
                raise missing_session_error(session)
            found = _find_session(state, session)
            newest = found.newest if last is None else min(last, found.newest)
            return [self._read_turn(state, offset) for offset in _find_turns(state, found, max(1, first), newest)]

    def observation(self, session: str, key: Key) -> Observation:
        with self._open_state() as state:
            found = _find_session(state, session)
            offset = state.catalogue.find_turn(found, key[0]) if state else None
            if state is not None and offset is not None and key[1] >= 1:
                header, data = state.view.read_record(offset)
                value = self._packer.unpack_value(header, data, state.catalogue.read_text)
                results = value.get("observations", ())
                if key[1] <= len(results):
                    try:
                        return decode_observation(results[key[1] - 1])
                    except ValueError as error:
                        raise CorruptError(f"a stored record cannot be read: {error}") from error
        raise missing_observation_error(session, key)

    def find_observation(self, session: str, key: Key) -> PlaceholderRecord:
        """Return the placeholder of a tool result that is masked, without reading the result.

        Raises UnknownHandle if it is not there or was never masked.
        """
        with self._open_state() as state:
            found = _find_session(state, session)
            turn = state.catalogue.find_turn(found, key[0]) if state else None
            mask = state.catalogue.find_mask(found, *key) if state else None
            if state is not None and turn is not None and mask is not None and mask[0] > turn:
                event = self._read_event(state, mask[0])
                if isinstance(event, PassDecided):
                    return PlaceholderRecord(key, event.masks[mask[1]].text, mask[0])
        raise missing_observation_error(session, key)

    def search(self, session: str, query: str, limit: int = 20) -> list[Hit]:
        words = split_words(query)
        hits: list[Hit] = []
        with self._open_state() as state:
            found = _find_session(state, session)
            if state is None or not words or limit < 1:
                return []
            for offset in reversed(_find_turns(state, found, 1, found.newest)):
                hits.extend(find_hits(session, self._read_turn(state, offset), words))
                if len(hits) >= limit:
                    break
        return hits[:limit]

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        with self._open_state() as state:
            for node in filter(None, reversed(nodes)):
                known = state.catalogue.find_holders(family, node) if state else []
                if known:
                    newest = max(known, key=lambda each: (each[0].changed, each[0].key, each[1]))
                    return newest[0].key, newest[1]
        return None

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        since = float("-inf") if changed_since is None else changed_since
        with self._open_state() as state:
            found = [
                session.info()
                for session in (state.catalogue.by_key.values() if state else ())
                if session.changed >= since and session.family.startswith(family_prefix)
            ]
        return sorted(found, key=lambda info: (info.changed, info.key), reverse=True)

    def info(self, session: str) -> SessionInfo:
        with self._open_state() as state:
            return _find_session(state, session).info()

    def footprint(self) -> Footprint:
        with self._open_state() as state:
            sessions = list(state.catalogue.by_key.values()) if state else []
        return Footprint(
            sessions=len(sessions),
            records=sum(session.records for session in sessions),
            turns=sum(session.turns for session in sessions),
            texts=sum(session.texts for session in sessions),
            raw_bytes=sum(session.raw_bytes for session in sessions),
            stored_bytes=self._count_stored_bytes(),
        )

    def check(self) -> list[Finding]:
        with self._mutex:
            self.flush()
            self._check_open()
            try:
                return check_store(self._folder, self._packer)
            except OSError as error:
                raise StoreError(f"{self._folder.path}: the store cannot be read: {error}") from error

    def statistics(self) -> Statistics:
        """Return the sizes of the directory and the work of lookups in this process."""
        with self._open_state() as state:
            if state is None:
                return Statistics()
            return measure_store(state.catalogue, state.view, self._count_log_bytes())

    # Inside

    @contextmanager
    def _open_state(self) -> Iterator[OpenLog | None]:
        """Yield the newest state: what this process wrote, or what others committed; None if nobody wrote."""
        with self._mutex:
            self._check_open()
            try:
                yield self._writer.state if self._writer else self._refresh_seen()
            except OSError as error:
                raise StoreError(f"{self._folder.path}: the store cannot be read: {error}") from error

    def _refresh_seen(self) -> OpenLog | None:
        """Return the log as it is now."""
        seen = self._seen
        if seen is not None and self._folder.is_current(seen.file):
            if seen.reader.has_more():
                seen.follow()
        else:
            self._forget_seen()
            self._seen = self._folder.open_log(self._packer)
        return self._seen

    def _forget_seen(self) -> None:
        if self._seen is not None:
            self._seen.file.close()
            self._seen = None

    def _get_writer(self) -> Writer:
        """Return the writer, which this process becomes if it is not. Raises ConflictError if another process is."""
        self._check_open()
        if self._writer is None:
            try:
                lock = WriterLock(self._folder.lock)
            except OSError as error:
                raise StoreError(f"{self._folder.path}: the store cannot be written: {error}") from error
            try:
                self._writer = Writer(self._folder, self._packer, self._limits)
            finally:
                if self._writer is None:
                    lock.close()
            self._lock = lock
            self._forget_seen()
        if self._lock:
            self._lock.check()
        return self._writer

    def _make_space(self) -> Writer:
        """Return the writer, with a compacted log if deleted sessions take up most of it."""
        writer = self._get_writer()
        unused = writer.catalogue.unused_bytes
        if writer.log_bytes > _WORTH_COMPACTING and unused > writer.log_bytes * _TOO_MUCH_WASTE:
            self._compact_log(writer)
        return self._get_writer()

    def _compact_log(self, writer: Writer) -> None:
        """Write the living sessions to a new log, and go on with that one. Raises StoreError."""
        writer.flush()
        try:
            self._folder.swap_log(rewrite_log(self._folder, writer.state, self._packer))
        except OSError as error:
            raise StoreError(f"{self._folder.path}: the store cannot be compacted: {error}") from error
        writer.discard()
        self._writer = None
        try:
            self._writer = Writer(self._folder, self._packer, self._limits)
        finally:
            if self._writer is None and self._lock:
                self._lock.close()
        self._writer.checkpoint()

    def _check_open(self) -> None:
        if not self._is_open:
            raise closed_store_error(str(self._folder.path))

    def _is_above(self, limit: int) -> bool:
        """Return whether more than `limit` bytes are stored, once those that nothing uses are given back."""
        if self._count_used_bytes() > limit:
            return True
        if self._count_stored_bytes() > limit:
            self.compact()
        return self._count_stored_bytes() > limit

    def _count_used_bytes(self) -> int:
        """Return the stored bytes that sessions use."""
        with self._open_state() as state:
            return self._count_stored_bytes() - (state.catalogue.unused_bytes if state else 0)

    def _count_stored_bytes(self) -> int:
        """Return the bytes of the log and of the directory, without the room that is reserved."""
        with self._open_state() as state:
            return self._count_log_bytes() + (state.catalogue.directory_bytes if state else 0)

    def _count_log_bytes(self) -> int:
        if self._writer:
            return self._writer.log_bytes
        if self._seen:
            return self._seen.reader.end + FRAME
        return START + FRAME

    def _iterate_events(self, number: int, key: str, first: int, last: int) -> Iterator[Event]:
        for start in range(first, last + 1, _CHUNK):
            with self._open_state() as state:
                if state is None or state.catalogue.find_number(number) is None:
                    raise missing_session_error(key)
                chunk = [
                    self._read_numbered(state, number, key, each)
                    for each in range(start, min(start + _CHUNK, last + 1))
                ]
            yield from chunk

    def _read_numbered(self, state: OpenLog, session: int, key: str, number: int) -> Event:
        offset = state.catalogue.find_record(session, number)
        if offset is None:
            raise CorruptError(f"record {number} of session {key!r} is missing; run `elision store fsck`")
        return self._read_event(state, offset)

    def _read_event(self, state: OpenLog, offset: int) -> Event:
        try:
            return self._packer.unpack_event(*state.view.read_record(offset), state.catalogue.read_text)
        except ValueError as error:
            raise CorruptError(f"the record at byte {offset} cannot be read: {error}") from error

    def _read_turn(self, state: OpenLog, offset: int) -> Turn:
        event = self._read_event(state, offset)
        if not isinstance(event, TurnAdded | TurnAmended):
            raise CorruptError(f"the record at byte {offset} is no turn; run `elision store fsck`")
        return event.turn


def _find_session(state: OpenLog | None, key: str) -> SessionState:
    """Return the session called `key`. Raises UnknownHandle."""
    session = state.catalogue.by_key.get(key) if state else None
    if session is None:
        raise missing_session_error(key)
    return session


def _find_turns(state: OpenLog, session: SessionState, first: int, last: int) -> list[int]:
    """Return the offsets of the newest records of turns first … last."""
    catalogue = state.catalogue
    if session.turns == session.newest:
        indices: Sequence[int] = range(first, last + 1)
    else:
        indices = sorted(_list_turns(state, catalogue, session, first, last))
    offsets = [catalogue.find_turn(session, index) for index in indices]
    return [offset for offset in offsets if offset is not None]


def _list_turns(state: OpenLog, catalogue: Catalogue, session: SessionState, first: int, last: int) -> set[int]:
    """Return the turns of a log that has gaps between them."""
    found = set()
    for number in range(1, session.records + 1):
        offset = catalogue.find_record(session.number, number)
        if offset is not None:
            turn = state.view.read_record(offset)[0].turn
            if turn and first <= turn <= last:
                found.add(turn)
    return found
