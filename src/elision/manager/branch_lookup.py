"""Which branch of a session a history belongs to: found by content, made where there is none.

Everything here may wait for the store; nothing is written to it before there is something to write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from elision.engine import Session
from elision.errors import ConflictError, StoreError, UnknownHandle
from elision.manager.branch import (
    SessionBranch,
    branch_number,
    has_session,
    make_branch,
    next_branch_key,
    relate_history,
    session_name,
)
from elision.manager.history import History
from elision.stores.store import NewSession, Relation, Store
from elision.strategies.guards import Guards
from elision.trajectory.events import Event, SessionOpened

#: Makes the engine's session of a log.
SessionFactory = Callable[[Sequence[Event]], Session]


@dataclass(frozen=True, slots=True)
class BranchLookup:
    """One session's branches, or a whole family's.

    root: the session's name. family: whose histories are looked up; "" for the session's own, which is all there is
    then. shared: whether other processes may write to the same logs. parent: of a sub-agent. opened: what a new log
    begins with.
    """

    store: Store
    root: str
    family: str
    is_shared: bool
    parent: str
    make_session: SessionFactory
    make_opened_event: Callable[[], SessionOpened]
    guards: Guards
    clock: Callable[[], float]

    @property
    def search_family(self) -> str:
        """Within what histories are looked up."""
        return self.family or self.root

    def begin_session(self) -> SessionBranch:
        """The session itself, as nobody has written to it yet."""
        relation: Relation = "sub-agent" if self.parent else ""
        new = NewSession(
            key=self.root, family=self.search_family, at=self.clock(), parent=self.parent, relation=relation
        )
        session = self.make_session([self.make_opened_event()])
        made = make_branch(new, session, self.guards)
        # In a family the name is but a wish: the session that has it already may be anybody's.
        made.may_rename = bool(self.family)
        return made

    def load_branch(self, key: str) -> SessionBranch:
        """A branch of the store, whole. Raises UnknownHandle, StoreError."""
        info = self.store.info(key)
        events = list(self.store.events(key))
        new = NewSession(
            key=key, family=info.family, at=info.begun, parent=info.parent, relation=info.relation, shared=0
        )
        # Without any it was begun, and never written to.
        loaded = make_branch(new, self.make_session(events or [self.make_opened_event()]), self.guards)
        loaded.saved_events = len(events)
        loaded.exists = True
        return loaded

    def load_root_branch(self) -> SessionBranch | None:
        """The session as it is in the store, without looking at any history; None if it is not there."""
        try:
            if self.family and self.store.info(self.root).family != self.family:
                return None
            return self.load_branch(self.root)
        except UnknownHandle:
            return None

    def load_latest_branch(self) -> SessionBranch | None:
        """Of the session's branches the one that changed last; None if the store has none."""
        if self.family:
            # Others of the family are other runs, which are told apart by their histories alone.
            return self.load_root_branch()
        keys = [info.key for info in self.store.sessions() if info.family == self.root]
        if keys:
            return self.load_branch(keys[0])
        return None

    def find_branch(self, history: History, at_hand: SessionBranch | None = None) -> tuple[SessionBranch, str]:
        """The branch that `history` goes on with, and how. Raises StoreError.

        at_hand: what the client's messages went on with so far; without turns it has no name to be found by.
        """
        if found := self.store.locate(self.search_family, history.list_nodes()):
            return self._continue_from(self.load_branch(found[0]), found[1], history)
        # In a family there is no session that the history must be of.
        known = _without_turns(at_hand) if self.is_shared else None
        if known is None and not self.family:
            known = self.load_root_branch()
        if known is None:
            return self._take_free_key(self.begin_session()), "continue"
        if not known.session.state.turns:
            return known, "continue"
        return self.fork_branch(known, -1, "replaced"), "replaced"

    def follow_divergence(self, current: SessionBranch, history: History, intact: int) -> tuple[SessionBranch, str]:
        """Where `history` goes on that shares `intact` turns (-1: not even the head) with `current`."""
        try:
            found = self.store.locate(self.search_family, history.list_nodes())
        except ConflictError:
            raise
        except StoreError:
            # What is in memory is enough to go on with; saving will say that the store fails.
            found = None
        if found is not None and found[1] > intact:
            # In another branch, or further in this one: what differs are prompts, which name no history.
            if found[0] == current.key and found[1] > len(current.session.state.turns):
                raise ConflictError(f"session {current.key!r}: another writer was there meanwhile; open it again")
            return self._continue_from(
                current if found[0] == current.key else self.load_branch(found[0]), found[1], history, current
            )
        return self._continue_from(current, intact, history, current)

    def _continue_from(
        self, found: SessionBranch, turns: int, history: History, current: SessionBranch | None = None
    ) -> tuple[SessionBranch, str]:
        """`found` where it ends with turn `turns`, else a fork of it there. current: the branch that is left."""
        akin = current is not None and session_name(current.key) == session_name(found.key)
        if current is not None and akin:
            last = max(found.key, current.key, key=branch_number)
        else:
            last = found.key
        known = len(found.session.state.turns)
        while 0 < turns < known and history.has_turn(turns + 1, found.nodes.get(turns + 1)):
            # Written by another process since it was looked for.
            turns += 1
        if turns == known:
            return found, "continue"
        if (
            self.is_shared
            and 0 <= turns == known - 1 < history.conversation.turn_count
            and found.is_amended_by(history)
        ):
            # Only what stands behind the newest turn came another way, to another process.
            return found, "amended"
        if found.history is not None:
            said = found.history.collect_digests()
        else:
            said = set[bytes]()
        if turns >= 0 and history.conversation.turn_count == turns:
            return self._take_free_key(self.fork_branch(found, turns, "fork", last)), "undo"
        how = relate_history(history, said - _collect_shared_digests(found, turns))
        if self.family and turns < 0 and how == "fork":
            # Nothing in common at all: another run of the family.
            return self._take_free_key(self.begin_session()), "continue"
        return self._take_free_key(self.fork_branch(found, turns, how, last)), how

    def _take_free_key(self, made: SessionBranch) -> SessionBranch:
        """A new branch under a name that nobody has: what is told of it stays true, however late it is written."""
        if self.is_shared and (made.may_rename or made.new.relation in ("fork", "replaced")):
            try:
                while has_session(self.store, made.key):
                    made.new = replace(made.new, key=next_branch_key(made.key))
            except StoreError:
                # It is looked for again when the branch is written.
                pass
        return made

    def fork_branch(self, found: SessionBranch, turns: int, how: Relation, last: str = "") -> SessionBranch:
        """A branch that shares the log of `found` as it stood before turn `turns` + 1; nothing of it for -1.

        last: the key behind which its own is looked for, so that many forks of one branch do not try them all.
        """
        events: list[Event] = found.cut_log(turns) if turns >= 0 else [self.make_opened_event()]
        # A branch that the store does not know yet is no parent in it; the one it came from is.
        if found.exists:
            parent, saved = (found.key, found.saved_events)
        else:
            parent, saved = (found.new.parent, found.new.shared)
        shared = min(len(events), saved) if turns >= 0 else 0
        new = NewSession(
            key=next_branch_key(last or found.key),
            family=self.search_family,
            at=self.clock(),
            parent=parent,
            relation=how,
            shared=shared,
        )
        made = make_branch(new, self.make_session(events), self.guards)
        made.saved_events = shared
        return made


def _without_turns(found: SessionBranch | None) -> SessionBranch | None:
    """`found` if its first turn has yet to come."""
    if found is None or found.session.state.turns:
        return None
    found.unverified = False
    return found


def _collect_shared_digests(found: SessionBranch, turns: int) -> set[bytes]:
    """What the messages say that both histories begin with."""
    history = found.history
    if history is not None and turns >= 0:
        return history.collect_digests(history.count_messages(turns))
    return set()
