"""Servers over stored sessions, for tests."""

from __future__ import annotations

from functools import partial

from elision.mcp.stored_sessions import SessionScope, StoredSessions
from elision.stores.store_urls import open_for_reading
from elision.trajectory.tokens import Sizer, make_counter


def read_sessions(url: str, **scope: str) -> StoredSessions:
    """What `elision mcp --store url` reads."""
    return StoredSessions(
        open_store=partial(open_for_reading, url),
        scope=SessionScope(**scope),
        sizer=Sizer(make_counter("o200k")),
    )
