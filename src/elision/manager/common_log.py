"""A log that other processes write to as well: what is owed to it, and catching up with what they wrote.

What others wrote stands in the log in front of what is owed. Turns and decisions that are owed are given up then: the
turns are in the client's messages, and a decision is made again. What was said of calls is kept and written behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elision.errors import ConflictError
from elision.manager.branch import Branch, Tally, is_there, last_nodes
from elision.manager.history import History
from elision.manager.lineage import Maker
from elision.stores.store import Store
from elision.strategies.guards import Guards
from elision.trajectory.events import Amended, Answered, Decided, Event, Exchanged, Learned, Recalled

#: How often a pass begins anew behind what others wrote meanwhile.
TRIES: Final = 3
#: How often what is owed is tried behind what others wrote; each time one of them all gets on.
CATCHES: Final = 50
_NOTES: Final = (Answered, Recalled, Learned, Exchanged)


def others(branch: Branch, store: Store, at: float) -> list[Event] | None:
    """Write what is owed, or see that there is nothing to catch up with: then None, else what stands behind.

    Raises StoreError, UnknownHandle.
    """
    try:
        if not branch.made or branch.unsaved:
            branch.save(store, at)
            return None
        if store.length(branch.key) == branch.saved:
            return None
    except ConflictError:
        if not is_there(store, branch.key):
            raise
    return list(store.events(branch.key, branch.saved))


def caught_up(branch: Branch, there: Sequence[Event], make: Maker, guards: Guards) -> None:
    """`branch` behind `there`, which others wrote: work O(there) where nothing but notes is owed to the log.

    Its history is still the client's: `agrees` says whether it goes this way.
    """
    session = branch.session
    owed = branch.unsaved
    notes = [event for event in owed if isinstance(event, _NOTES)]
    if owed or not session.takes(there):
        branch.rebuild(make([*session.events[: branch.saved], *there]))
        branch.nodes = last_nodes(branch.session.events)
        branch.ledger = None
        branch.handled, branch.watch, branch.tally = 0, guards.start(), Tally(branch.session.sizer)
        branch.earlier = branch.watch
    else:
        if any(isinstance(event, Amended) and event.turn.index == branch.handled for event in there):
            branch.forget()
        session.take_up(there)
        branch.nodes |= last_nodes(there)
    branch.catch_up()
    branch.saved = branch.saved + len(there)
    branch.made = True
    branch.failing = ""
    branch.tried = []
    branch.moved = True
    for note in notes:
        branch.session.note(note)


def agrees(branch: Branch, history: History) -> bool:
    """Whether the turns of `branch` are those of `history`, but for what stands behind the newest of them."""
    turns = branch.session.state.turns
    known = len(turns)
    if known > history.conversation.turns:
        return False
    if any(history.node(index) != branch.nodes.get(index) for index in range(1, known)):
        return False
    return not known or history.node(known) == branch.nodes.get(known) or branch.amends(history)


def hides(events: Sequence[Event]) -> bool:
    """Whether a pass, by what it added to the log, hides anything new or has the recall tools enter."""
    made = [event for event in events if isinstance(event, Decided)]
    return any(event.masks or event.clips or event.summary or event.offers for event in made)
