"""Sessions from one place to another: resumable, verified, and never over something else."""

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
    """Whatever sessions can be read from: a store, or a file of logs."""

    def sessions(self) -> Sequence[SessionInfo]: ...
    def events(self, session: str, after: int = 0) -> Iterator[Event]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyResult:
    """One session after its copy.

    new: whether the target had no such session. found: records that it had already. added: records that were written.
    """

    key: str
    is_new: bool
    existing_records: int
    added_records: int


def copy_session(source: SessionSource, session: SessionInfo, target: Store) -> CopyResult:
    """Copy `session`, or what the target lacks of it; then hold both logs against each other.

    A fork is written whole; its large texts are stored once all the same. Raises ConflictError if the target has
    another session of that name.
    """
    already = _count_existing(source, session, target)
    length = found = already or 0
    rest = source.events(session.key, after=found)
    while batch := list(islice(rest, _AT_ONCE)):
        length = target.append(session.key, batch, after=length, at=session.changed)
    _verify_copy(source, session.key, target)
    return CopyResult(key=session.key, is_new=already is None, existing_records=found, added_records=length - found)


def _count_existing(source: SessionSource, session: SessionInfo, target: Store) -> int | None:
    """How many records the target has; None: the session was not there, and is made. Raises ConflictError."""
    try:
        there = target.info(session.key)
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
    if (there.family, there.parent, there.begun) != (session.family, session.parent, session.begun):
        raise ConflictError(f"session {session.key!r} is there already and is another one")
    _verify_copy(source, session.key, target)
    return there.records


def _verify_copy(source: SessionSource, key: str, target: Store) -> None:
    """Raises ConflictError unless one log is the beginning of the other."""
    pairs = zip_longest(source.events(key), target.events(key))
    for number, (ours, theirs) in enumerate(pairs, start=1):
        if ours is None or theirs is None:
            return
        if ours != theirs:
            raise ConflictError(f"session {key!r} is there already and is another one from record {number} on")


def copy_all(source: SessionSource, target: Store, keys: Sequence[str] = ()) -> Iterator[CopyResult | StoreError]:
    """Copy all sessions, or those named, oldest first; what conflicts or is damaged stands as its error."""
    for session in reversed(source.sessions()):
        if keys and session.key not in keys:
            continue
        try:
            yield copy_session(source, session, target)
        except (ConflictError, CorruptError) as error:
            yield error
