"""What a session may read of the sessions that it came from: what was handed on to it, and nothing that came later."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from elision.stores.store import NewSession, SessionInfo, Store
from elision.trajectory.events import Event, HistoryReplaced
from elision.trajectory.turn import Turn

#: Returns facts about the session of that key; None where it is not there, or not shown.
FindSession = Callable[[str], SessionInfo | None]


def trace_stored_turn(
    store: Store, find_session: FindSession, session: SessionInfo, index: int
) -> Iterator[tuple[str, Turn | None]]:
    """Yield a stored session's key and its turn `index`, then what `trace_turn` yields."""
    turn = _read_turn(store, session, index)
    yield session.key, turn
    yield from trace_turn(store, find_session, session, index, turn=turn, events=store.events(session.key))


def trace_turn(
    store: Store,
    find_session: FindSession,
    session: SessionInfo | NewSession,
    index: int,
    *,
    turn: Turn | None,
    events: Iterable[Event],
) -> Iterator[tuple[str, Turn | None]]:
    """Yield the key of each session that `session` came from, nearest first, and its turn `index`.

    The turn is None where it is not there, and where it was not handed on. A fork is handed the turns that it shares,
    so the parent's turn must be the fork's own. A history that the client rewrote is handed all turns that its parent
    had then. A sub-agent's caller names the parent itself, and the sub-agent may read all of it.

    turn: the session's own turn `index`, None if it has none. events: its log. Raises StoreError.
    """
    seen = {session.key}
    child: SessionInfo | NewSession = session
    while child.parent not in seen and (parent := find_session(child.parent)) is not None:
        seen.add(parent.key)
        found = _read_turn(store, parent, index)
        if child.relation == "replaced":
            is_handed_on = index <= count_replaced_turns(events)
        else:
            is_handed_on = child.relation == "sub-agent" or found == turn
        turn = found if is_handed_on else None
        yield parent.key, turn
        child = parent
        events = store.events(parent.key)


def _read_turn(store: Store, session: SessionInfo, index: int) -> Turn | None:
    if index > session.turns:
        return None
    return next(iter(store.turns(session.key, index, index)), None)


def count_replaced_turns(events: Iterable[Event]) -> int:
    """Return how many turns the parent of a session had when the client rewrote the history. events: the session's."""
    turns = 0
    for event in events:
        # A log begins with a copy of its parent's, which may have one as well.
        if isinstance(event, HistoryReplaced):
            turns = event.turns
    return turns
