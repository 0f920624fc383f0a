"""Copies of sessions from one place to another: resumable, verified, without overwriting another session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import Final, Protocol

from elision.errors import ConflictError, CorruptError, StoreError, UnknownHandle
from elision.stores.store import NewSession, SessionInfo, Store
from elision.trajectory.events import Event

#: Records written in one append.
_AT_ONCE: Final = 256


class SessionSource(Protocol):
    """A place to read sessions from: a store, or a file of logs."""

    def sessions(self) -> Sequence[SessionInfo]: ...
    def events(self, session: str, after: int = 0) -> Iterator[Event]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """One session after its copy.

    is_new: whether the target had no such session. existing_records: that it had. added_records: that were written.
    """

    key: str
    is_new: bool
    existing_records: int
    added_records: int


def copy_session(source: SessionSource, session: SessionInfo, target: Store) -> CopyResult:
    """Copy `session`, or what the target lacks of it; then compare both logs.

    A fork is written whole; its large texts are stored once all the same. Raises ConflictError if the target has
    another session of that name.
    """
    existing = _count_existing(source, session, target)
    length = existing or 0
    added = 0
    rest = source.events(session.key, after=length)
    while batch := list(islice(rest, _AT_ONCE)):
        added += len(batch)
        length = target.append(session.key, batch, after=length, at=session.changed)
    _verify_copy(source, session.key, target)
    return CopyResult(key=session.key, is_new=existing is None, existing_records=existing or 0, added_records=added)


def _count_existing(source: SessionSource, session: SessionInfo, target: Store) -> int | None:
    """Return how many records the target has; None if it had no such session, which is made. Raises ConflictError."""
    try:
        existing = target.info(session.key)
    except UnknownHandle:
        target.create(
            NewSession(
                key=session.key,
                family=session.family,
                at=session.begun,
                parent=session.parent,
                relation=session.relation,
            )
        )
        return None
    if (existing.family, existing.parent, existing.begun) != (session.family, session.parent, session.begun):
        raise ConflictError(f"session {session.key!r} already exists and is different")
    _verify_copy(source, session.key, target)
    return existing.records


def _verify_copy(source: SessionSource, key: str, target: Store) -> None:
    """Raise ConflictError unless one log is the beginning of the other."""
    pairs = zip_longest(source.events(key), target.events(key))
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if ours is None or theirs is None:
            return
        if ours != theirs:
            raise ConflictError(f"session {key!r} already exists and differs from record {number} on")


def copy_all(source: SessionSource, target: Store, keys: Sequence[str] = ()) -> Iterator[CopyResult | StoreError]:
    """Copy all sessions, or those named, oldest first; yield each result, or the error of a conflict or damage."""
    for session in reversed(source.sessions()):
        if keys and session.key not in keys:
            continue
        try:
            yield copy_session(source, session, target)
        except (ConflictError, CorruptError) as error:
            yield error
