"""The linear-hash store: sessions in a log of values, with linear hashing as its directory.

Any process may open it and read, beside any other. The first call that writes takes the writer's lock and keeps it
until the store is closed: one process writes, and a second one gets a ConflictError at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from elision.errors import CorruptError
from elision.stores.batch_ids import check_batch_id
from elision.stores.linear_hash.log_access import LogAccess
from elision.stores.linear_hash.store_folder import StoreFolder
from elision.stores.linear_hash.writer import WriterLimits
from elision.stores.store import Finding, Footprint, NewSession, PurgeResult, SessionInfo
from elision.stores.store_base import StoreBase
from elision.stores.store_errors import missing_observation_error
from elision.trajectory.event_json import decode_observation
from elision.trajectory.events import Event, PassDecided
from elision.trajectory.plan import Key
from elision.trajectory.turn import Observation, Turn


@dataclass(frozen=True, slots=True)
class PlaceholderRecord:
    """What stands in views for a tool result. place: offset of the decision in the log."""

    key: Key
    placeholder: str
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """load: share of the buckets' first pages that entries fill. lookups, bucket_reads, value_reads: in this process
    since it opened the store, pages found in memory included; a value is one record of the log.
    """

    entries: int = 0
    buckets: int = 0
    overflow_pages: int = 0
    directory_bytes: int = 0
    log_bytes: int = 0
    load: float = 0.0
    lookups: int = 0
    bucket_reads: int = 0
    value_reads: int = 0

    @property
    def pages_per_lookup(self) -> float:
        """Return the bucket pages read per lookup."""
        if self.lookups:
            return self.bucket_reads / self.lookups
        return 0.0


class LinearHashStore(StoreBase):
    """Keeps sessions in `folder`. For several threads.

    limits: with the default, an append is durable when it returns. `WriterLimits(group=64)` syncs once per 64 appends:
    then an append is durable only after `flush`, and a crash before it may lose up to 63 appends. read_only: the folder
    must be there, and nothing in it is written.
    """

    def __init__(self, folder: str | Path, limits: WriterLimits | None = None, *, read_only: bool = False) -> None:
        self._folder = StoreFolder(Path(folder))
        self._access = LogAccess(self._folder, limits or WriterLimits(), read_only=read_only)
        if read_only:
            self._folder.check_readable()
            return
        self._folder.make_folder()
        self._folder.check_writable()

    # Writing

    def create_with_events(self, session: NewSession, events: Sequence[Event], *, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        with self._access.lock:
            return self._access.write(begins_session=True).create_session(session, events, at, batch)

    def append(self, session: str, events: Sequence[Event], *, after: int, at: float, batch: bytes = b"") -> int:
        check_batch_id(batch)
        with self._access.lock:
            return self._access.write().append_events(session, events, after=after, at=at, batch=batch)

    def flush(self) -> None:
        """Make every append so far durable; of use with `group` above 1."""
        self._access.flush()

    def delete(self, session: str) -> None:
        with self._access.lock:
            self._access.write().delete_session(session)

    def purge(self, *, older_than: float | None = None, max_bytes: int | None = None) -> PurgeResult:
        self._access.check_writable()
        gone: list[str] = []
        with self._access as log:
            before = log.used_bytes
            for info in reversed(self.sessions()):
                old = older_than is not None and info.changed < older_than
                if old or (max_bytes is not None and self._access.is_above(max_bytes)):
                    self.delete(info.key)
                    gone.append(info.key)
        with self._access as log:
            if max_bytes is not None and log.stored_bytes > max_bytes:
                self.compact()
        with self._access as log:
            freed = before - log.used_bytes if gone else 0
        return PurgeResult(sessions=tuple(gone), freed_bytes=max(0, freed))

    def compact(self) -> int:
        return self._access.compact()

    def check_writes(self, *, is_tried: bool) -> None:
        self._access.check_writes(is_tried=is_tried)

    def close(self) -> None:
        self._access.close()

    # Reading

    def length(self, session: str) -> int:
        with self._access as log:
            return log.find_session(session).records

    def events(self, session: str, after: int = 0) -> Iterator[Event]:
        with self._access as log:
            found = log.find_session(session)
            return self._access.iterate_events(session, found.number, max(0, after) + 1, found.records)

    def turns(self, session: str, first: int = 1, last: int | None = None) -> list[Turn]:
        with self._access as log:
            found = log.find_session(session)
            newest = found.newest if last is None else last
            return [log.read_turn(offset) for offset in log.find_turns(found, first, newest)]

    def observation(self, session: str, key: Key) -> Observation:
        """Return one raw observation; nothing else of its turn is decoded."""
        with self._access as log:
            offset = log.catalogue.find_turn(log.find_session(session), key[0])
            if offset is not None:
                value = log.view.read_value(offset)
        if offset is not None:
            results = value.get("observations", ())
            if 1 <= key[1] <= len(results):
                try:
                    return decode_observation(results[key[1] - 1])
                except ValueError as error:
                    raise CorruptError(f"the record at byte {offset} cannot be read: {error}") from error
        raise missing_observation_error(session, key)

    def find_observation(self, session: str, key: Key) -> PlaceholderRecord:
        """Return the placeholder of a tool result that is masked, without reading the result.

        Raises UnknownHandle if it is not there or was never masked.
        """
        with self._access as log:
            found = log.find_session(session)
            turn = log.catalogue.find_turn(found, key[0])
            mask = log.catalogue.find_mask(found, *key)
            if turn is not None and mask is not None and mask[0] > turn:
                event = log.view.read_event(mask[0])
                if isinstance(event, PassDecided):
                    return PlaceholderRecord(key, event.masks[mask[1]].text, mask[0])
        raise missing_observation_error(session, key)

    @contextmanager
    def open_newest_turns(self, session: str, words: Sequence[str]) -> Iterator[Iterator[Turn]]:
        with self._access as log:
            found = log.find_session(session)
            yield map(log.read_turn, reversed(log.find_turns(found, 1, found.newest)))

    def locate(self, family: str, nodes: Sequence[str]) -> tuple[str, int] | None:
        with self._access as log:
            for node in filter(None, reversed(nodes)):
                known = log.catalogue.find_holders(family, node)
                if known:
                    newest = max(known, key=lambda each: (each[0].changed, each[0].key, each[1]))
                    return newest[0].key, newest[1]
            recovered = log.catalogue.find_recovered(family, nodes)
        if recovered is not None:
            raise CorruptError(f"the beginning of this history's session is lost; its turns are {recovered.key!r} now")
        return None

    def sessions(self, *, family_prefix: str = "", changed_since: float | None = None) -> list[SessionInfo]:
        since = float("-inf") if changed_since is None else changed_since
        with self._access as log:
            found = [
                session.info()
                for session in log.catalogue.by_key.values()
                if session.changed >= since and session.family.startswith(family_prefix)
            ]
        return sorted(found, key=lambda info: (info.changed, info.key), reverse=True)

    def info(self, session: str) -> SessionInfo:
        with self._access as log:
            return log.find_session(session).info()

    def footprint(self) -> Footprint:
        with self._access as log:
            sessions = list(log.catalogue.by_key.values())
            stored = log.stored_bytes
        return Footprint(
            sessions=len(sessions),
            records=sum(session.records for session in sessions),
            turns=sum(session.turns for session in sessions),
            texts=sum(session.texts for session in sessions),
            raw_bytes=sum(session.raw_bytes for session in sessions),
            stored_bytes=stored,
        )

    def check(self) -> list[Finding]:
        return self._access.check()

    def statistics(self) -> Statistics:
        """Return the sizes of the directory and the work of lookups in this process."""
        with self._access as log:
            directory = log.catalogue.directory
            directory.settle()
            return Statistics(
                entries=directory.entries,
                buckets=directory.buckets,
                overflow_pages=directory.pages.count - 1 - directory.buckets,
                directory_bytes=log.catalogue.directory_bytes,
                log_bytes=log.log_bytes,
                load=directory.load,
                lookups=directory.lookups,
                bucket_reads=directory.pages_read,
                value_reads=log.view.values_read,
            )
