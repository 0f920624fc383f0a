"""Which branch of a session a history belongs to: found by content, made where there is none.

Everything here may wait for the store; nothing is written to it before there is something to write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from elision.engine import Session
from elision.errors import ConflictError, StoreError, UnknownHandle
from elision.manager.branch import Branch, branch, following, is_there, number, relation, stem
from elision.manager.history import History
from elision.stores.store import NewSession, Relation, Store
from elision.strategies.guards import Guards
from elision.trajectory.events import Event, Opened

#: Makes the engine's session of a log.
Maker = Callable[[Sequence[Event]], Session]


@dataclass(frozen=True, slots=True)
class Lineage:
    """One session's branches, or a whole family's.

    root: the session's name. family: whose histories are looked up; "" for the session's own, which is all there is
    then. shared: whether other processes may write to the same logs. parent: of a sub-agent. opened: what a new log
    begins with.
    """

    store: Store
    root: str
    family: str
    shared: bool
    parent: str
    make: Maker
    opened: Callable[[], Opened]
    guards: Guards
    clock: Callable[[], float]

    @property
    def kin(self) -> str:
        """Within what histories are looked up."""
        return self.family or self.root

    def begin(self) -> Branch:
        """The session itself, as nobody has written to it yet."""
        relation: Relation = "sub-agent" if self.parent else ""
        new = NewSession(key=self.root, family=self.kin, at=self.clock(), parent=self.parent, relation=relation)
        session = self.make([self.opened()])
        made = branch(new, session, self.guards)
        # In a family the name is but a wish: the session that has it already may be anybody's.
        made.renamed = bool(self.family)
        return made

    def load(self, key: str) -> Branch:
        """A branch of the store, whole. Raises UnknownHandle, StoreError."""
        info = self.store.info(key)
        events = list(self.store.events(key))
        new = NewSession(
            key=key, family=info.family, at=info.begun, parent=info.parent, relation=info.relation, shared=0
        )
        # Without any it was begun, and never written to.
        loaded = branch(new, self.make(events or [self.opened()]), self.guards)
        loaded.saved = len(events)
        loaded.made = True
        return loaded

    def newest(self) -> Branch | None:
        """The session as it is in the store, without looking at any history; None if it is not there."""
        try:
            if self.family and self.store.info(self.root).family != self.family:
                return None
            return self.load(self.root)
        except UnknownHandle:
            return None

    def latest(self) -> Branch | None:
        """Of the session's branches the one that changed last; None if the store has none."""
        if self.family:
            # Others of the family are other runs, which are told apart by their histories alone.
            return self.newest()
        keys = [info.key for info in self.store.sessions() if info.family == self.root]
        if keys:
            return self.load(keys[0])
        return None

    def open(self, history: History, at_hand: Branch | None = None) -> tuple[Branch, str]:
        """The branch that `history` goes on with, and how. Raises StoreError.

        at_hand: what the client's messages went on with so far; without turns it has no name to be found by.
        """
        if found := self.store.locate(self.kin, history.nodes()):
            return self._at(self.load(found[0]), found[1], history)
        # In a family there is no session that the history must be of.
        known = _begun(at_hand) if self.shared else None
        if known is None and not self.family:
            known = self.newest()
        if known is None:
            return self._named(self.begin()), "continue"
        if not known.session.state.turns:
            return known, "continue"
        return self.fork(known, -1, "replaced"), "replaced"

    def turn_back(self, current: Branch, history: History, intact: int) -> tuple[Branch, str]:
        """Where `history` goes on that shares `intact` turns (-1: not even the head) with `current`."""
        try:
            found = self.store.locate(self.kin, history.nodes())
        except ConflictError:
            raise
        except StoreError:
            # What is in memory is enough to go on with; saving will say that the store fails.
            found = None
        if found is not None and found[1] > intact:
            # In another branch, or further in this one: what differs are prompts, which name no history.
            if found[0] == current.key and found[1] > len(current.session.state.turns):
                raise ConflictError(f"session {current.key!r}: another writer was there meanwhile; open it again")
            return self._at(current if found[0] == current.key else self.load(found[0]), found[1], history, current)
        return self._at(current, intact, history, current)

    def _at(self, found: Branch, turns: int, history: History, current: Branch | None = None) -> tuple[Branch, str]:
        """`found` where it ends with turn `turns`, else a fork of it there. current: the branch that is left."""
        akin = current is not None and stem(current.key) == stem(found.key)
        if current is not None and akin:
            last = max(found.key, current.key, key=number)
        else:
            last = found.key
        known = len(found.session.state.turns)
        while 0 < turns < known and history.has(turns + 1, found.nodes.get(turns + 1)):
            # Written by another process since it was looked for.
            turns += 1
        if turns == known:
            return found, "continue"
        if self.shared and 0 <= turns == known - 1 < history.conversation.turns and found.amends(history):
            # Only what stands behind the newest turn came another way, to another process.
            return found, "amended"
        if found.history is not None:
            said = found.history.says()
        else:
            said = set[bytes]()
        if turns >= 0 and history.conversation.turns == turns:
            return self._named(self.fork(found, turns, "fork", last)), "undo"
        how = relation(history, said - _shared(found, turns))
        if self.family and turns < 0 and how == "fork":
            # Nothing in common at all: another run of the family.
            return self._named(self.begin()), "continue"
        return self._named(self.fork(found, turns, how, last)), how

    def _named(self, made: Branch) -> Branch:
        """A new branch under a name that nobody has: what is told of it stays true, however late it is written."""
        if self.shared and (made.renamed or made.new.relation in ("fork", "replaced")):
            try:
                while is_there(self.store, made.key):
                    made.new = replace(made.new, key=following(made.key))
            except StoreError:
                # It is looked for again when the branch is written.
                pass
        return made

    def fork(self, found: Branch, turns: int, how: Relation, last: str = "") -> Branch:
        """A branch that shares the log of `found` as it stood before turn `turns` + 1; nothing of it for -1.

        last: the key behind which its own is looked for, so that many forks of one branch do not try them all.
        """
        events: list[Event] = found.prefix(turns) if turns >= 0 else [self.opened()]
        # A branch that the store does not know yet is no parent in it; the one it came from is.
        if found.made:
            parent, saved = (found.key, found.saved)
        else:
            parent, saved = (found.new.parent, found.new.shared)
        shared = min(len(events), saved) if turns >= 0 else 0
        new = NewSession(
            key=following(last or found.key),
            family=self.kin,
            at=self.clock(),
            parent=parent,
            relation=how,
            shared=shared,
        )
        made = branch(new, self.make(events), self.guards)
        made.saved = shared
        return made


def _begun(found: Branch | None) -> Branch | None:
    """`found` if its first turn has yet to come."""
    if found is None or found.session.state.turns:
        return None
    found.blind = False
    return found


def _shared(found: Branch, turns: int) -> set[bytes]:
    """What the messages say that both histories begin with."""
    history = found.history
    if history is not None and turns >= 0:
        return history.says(history.end(turns))
    return set()
