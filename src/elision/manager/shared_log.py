"""A log that other processes write to as well: write our unsaved records, and apply theirs.

Their records come before our unsaved ones. Our unsaved turns and decisions are dropped then: the turns are in the
client's messages, and the decision is made again. Notes (usage, recalls, learned windows) are kept and written after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elision.errors import ConflictError
from elision.manager.branch import SessionBranch, TurnTotals, has_session, map_nodes
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

#: How often a call is prepared again because others wrote meanwhile.
PASS_TRIES: Final = 3
#: How often a write is tried again because others wrote. Each time at least one writer succeeds.
WRITE_TRIES: Final = 50
_NOTE_EVENTS: Final = (UsageReported, ObservationRecalled, WindowLearned, RecallExchanged)


def write_or_read_others(branch: SessionBranch, store: Store, at: float) -> list[Event] | None:
    """Write the unsaved records and return None, or return the records that others wrote after the saved ones.

    at: seconds since the epoch. Returns None too where there was nothing to write and nobody else wrote. Raises
    StoreError, UnknownHandle.
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


def apply_others(branch: SessionBranch, theirs: Sequence[Event], make: SessionFactory, guards: Guards) -> None:
    """Continue `branch` after `theirs`, the records that others wrote.

    Work O(theirs) where nothing is unsaved, else O(log). The history of the branch is still the client's:
    `has_same_turns` tells whether it agrees with the log now.
    """
    unsaved = branch.unsaved
    before = branch.session
    newest_turn = branch.turns_counted
    if unsaved:
        branch.session = make([*before.events[: branch.saved_events], *theirs])
    else:
        branch.session = before.extend(theirs)
    if branch.session is not before:
        branch.nodes = map_nodes(branch.session.events)
        branch.ledger = None
        branch.turns_counted = 0
        branch.totals = TurnTotals(branch.session.sizer)
        branch.watch = guards.start_watch()
        branch.watch_before_newest = branch.watch
    else:
        for event in theirs:
            if isinstance(event, TurnAmended) and event.turn.index == newest_turn:
                branch.forget_newest()
                break
        branch.nodes |= map_nodes(theirs)
    branch.count_new_turns()
    branch.saved_events += len(theirs)
    branch.exists = True
    branch.diverged = True
    for event in unsaved:
        if isinstance(event, _NOTE_EVENTS):
            branch.session.record_event(event)


def has_same_turns(branch: SessionBranch, history: History) -> bool:
    """Return whether `history` begins with the turns of `branch`; the newest of them may have another ending."""
    known = len(branch.session.state.turns)
    if known > history.conversation.turn_count:
        return False
    for index in range(1, known):
        if history.get_node(index) != branch.nodes.get(index):
            return False
    return not known or history.get_node(known) == branch.nodes.get(known) or branch.is_amended_by(history)


def hides_anything(events: Sequence[Event]) -> bool:
    """Return whether `events`, which preparing a call added, hide anything new or add the recall tools."""
    for event in events:
        if isinstance(event, PassDecided) and (event.masks or event.clips or event.summary or event.offers):
            return True
    return False
