"""A log that other processes write to as well: what is owed to it, and catching up with what they wrote.

What others wrote stands in the log in front of what is owed. Turns and decisions that are owed are given up then: the
turns are in the client's messages, and a decision is made again. What was said of calls is kept and written behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elision.errors import ConflictError
from elision.manager.branch import ObservationTotals, SessionBranch, has_session, map_nodes
from elision.manager.branch_lookup import SessionFactory
from elision.manager.history import History
from elision.stores.store import Store
from elision.strategies.guards import Guards
from elision.trajectory.events import (
    Event,
    ObservationRecalled,
    PassDecided,
    RecallExchanged,
    TurnAmended,
    UsageReported,
    WindowLearned,
)

#: How often a pass begins anew behind what others wrote meanwhile.
PASS_TRIES: Final = 3
#: How often what is owed is tried behind what others wrote; each time one of them all gets on.
WRITE_TRIES: Final = 50
_NOTE_EVENTS: Final = (UsageReported, ObservationRecalled, WindowLearned, RecallExchanged)


def write_or_read_others(branch: SessionBranch, store: Store, at: float) -> list[Event] | None:
    """Write what is owed, or see that there is nothing to catch up with: then None, else what stands behind.

    Raises StoreError, UnknownHandle.
    """
    try:
        if not branch.exists or branch.unsaved:
            branch.save(store, at)
            return None
        if store.length(branch.key) == branch.saved_events:
            return None
    except ConflictError:
        if not has_session(store, branch.key):
            raise
    return list(store.events(branch.key, branch.saved_events))


def apply_others(branch: SessionBranch, there: Sequence[Event], make: SessionFactory, guards: Guards) -> None:
    """`branch` behind `there`, which others wrote: work O(there) where nothing but notes is owed to the log.

    Its history is still the client's: `has_same_turns` says whether it goes this way.
    """
    session = branch.session
    owed = branch.unsaved
    notes = [event for event in owed if isinstance(event, _NOTE_EVENTS)]
    if owed or not session.can_append(there):
        branch.replace_session(make([*session.events[: branch.saved_events], *there]))
        branch.nodes = map_nodes(branch.session.events)
        branch.ledger = None
        branch.turns_counted, branch.watch, branch.totals = (
            0,
            guards.start_watch(),
            ObservationTotals(branch.session.sizer),
        )
        branch.watch_before_newest = branch.watch
    else:
        if any(isinstance(event, TurnAmended) and event.turn.index == branch.turns_counted for event in there):
            branch.forget_newest()
        session.replay_events(there)
        branch.nodes |= map_nodes(there)
    branch.count_new_turns()
    branch.saved_events = branch.saved_events + len(there)
    branch.exists = True
    branch.store_error = ""
    branch.pending_attempts = []
    branch.diverged = True
    for note in notes:
        branch.session.record_event(note)


def has_same_turns(branch: SessionBranch, history: History) -> bool:
    """Whether the turns of `branch` are those of `history`, but for what stands behind the newest of them."""
    turns = branch.session.state.turns
    known = len(turns)
    if known > history.conversation.turn_count:
        return False
    if any(history.get_node(index) != branch.nodes.get(index) for index in range(1, known)):
        return False
    return not known or history.get_node(known) == branch.nodes.get(known) or branch.is_amended_by(history)


def hides_anything(events: Sequence[Event]) -> bool:
    """Whether a pass, by what it added to the log, hides anything new or has the recall tools enter."""
    made = [event for event in events if isinstance(event, PassDecided)]
    return any(event.masks or event.clips or event.summary or event.offers for event in made)
