"""What every store says where it refuses: one wording, whatever keeps the sessions."""

from __future__ import annotations

from elision.errors import ConflictError, StoreError, UnknownHandle
from elision.stores.store import NewSession
from elision.trajectory.plan import Key, handle

#: Characters of a key in an error.
_SHOWN = 200


def no_session(key: str) -> UnknownHandle:
    return UnknownHandle(f"the store has no session {_shown(key)}; `elision sessions` lists them")


def nothing_under(session: str, key: Key) -> UnknownHandle:
    return UnknownHandle(f"session {_shown(session)} keeps nothing under {handle(key)}")


def taken(session: NewSession) -> ConflictError:
    return ConflictError(f"session {_shown(session.key)} exists already; open it, or take another name")


def shorter(session: NewSession, records: int) -> ConflictError:
    return ConflictError(
        f"session {_shown(session.parent)} has {records} records; {session.shared} cannot be shared with a fork"
    )


def behind(session: str, records: int, after: int) -> ConflictError:
    return ConflictError(
        f"session {_shown(session)} has {records} records, not {after}: another writer was there first; open it again"
    )


def closed(place: str) -> StoreError:
    return StoreError(f"{place}: the store is closed; open it again")


def _shown(key: str) -> str:
    if len(key) <= _SHOWN:
        return repr(key)
    return f"{key[:_SHOWN]!r}… ({len(key):,} characters)"
