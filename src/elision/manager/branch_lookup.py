"""Find the branch of a session that a history belongs to, by content; make one where there is none.

Every method may wait for the store. None writes to it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import takewhile

from elision.errors import ConflictError, CorruptError, StoreError, UnknownHandle, words_of_error
from elision.manager.branch import (
    HistoryChange,
    SessionBranch,
    branch_number,
    count_replaced_turns,
    has_session,
    make_branch,
    map_nodes,
    next_branch_key,
    relate_history,
    session_name,
)
from elision.manager.history import History
from elision.manager.shared_log import LogFactory
from elision.stores.store import NewSession, Relation, Store
from elision.stores.store_errors import name_check_command
from elision.trajectory.events import Event, HistoryReplaced, SessionOpened, TurnAdded, TurnsDropped


@dataclass(frozen=True, slots=True)
class BranchLookup:
    """Finds, loads and forks the branches of one session, or of a whole family.

    root:   the session's name. opened: the first record of a log that is begun.
    """

    store: Store
    root: str
    logs: LogFactory
    opened: SessionOpened

    @property
    def search_family(self) -> str:
        """The family in which histories are searched: the session's own name where it has none."""
        return self.logs.options.advanced.family or self.root

    def begin_session(self) -> SessionBranch:
        """Return the session's first branch, which is in no store yet."""
        options = self.logs.options
        relation: Relation = "sub-agent" if options.advanced.parent else ""
        new = NewSession(
            key=self.root,
            family=self.search_family,
            at=options.advanced.clock(),
            parent=options.advanced.parent,
            relation=relation,
        )
        branch = make_branch(new, self.logs.make_log([self.opened]), options.effective_guards)
        # In a family the name is only a wish: a session that has it already may be another client's.
        branch.may_rename = bool(options.advanced.family)
        return branch

    def begin_beside_damage(self) -> SessionBranch:
        """Return a branch that begins anew, under the next free key, where the stored one cannot be read."""
        branch = self.begin_session()
        branch.may_rename = True
        return self._find_free_key(branch)

    def load_branch(self, key: str) -> SessionBranch:
        """Return a whole branch of the store. Raises UnknownHandle, StoreError.

        CorruptError too where its records are no session's: reading them must not fail at every call.
        """
        info = self.store.info(key)
        try:
            events = list(self.store.events(key))
            # A session without events was created, and nothing was written to it.
            log = self.logs.make_log(events or [self.opened])
        except Exception as error:
            if isinstance(error, UnknownHandle | StoreError) and not isinstance(error, CorruptError):
                raise
            raise CorruptError(name_check_command(f"session {key!r}: {words_of_error(error)}")) from error
        new = NewSession(
            key=key, family=info.family, at=info.begun, parent=info.parent, relation=info.relation, shared=0
        )
        branch = make_branch(new, log, self.logs.options.effective_guards)
        branch.saved_events = len(events)
        branch.exists = True
        return branch

    def load_root_branch(self) -> SessionBranch | None:
        """Return the branch named as the session, whatever its history; None if the store has none."""
        try:
            family = self.logs.options.advanced.family
            if family and self.store.info(self.root).family != family:
                return None
            return self.load_branch(self.root)
        except UnknownHandle:
            return None

    def load_latest_branch(self) -> SessionBranch | None:
        """Return the session's branch that changed last; None if the store has none."""
        if self.logs.options.advanced.family:
            # Other sessions of the family are other runs, and only their histories tell them apart.
            return self.load_root_branch()
        keys = [info.key for info in self.store.sessions() if info.family == self.root]
        for key in keys:
            # One may have been deleted since they were listed.
            with suppress(UnknownHandle):
                return self.load_branch(key)
        return None

    def _locate_branch(self, history: History) -> tuple[SessionBranch, int] | None:
        """Return the branch that has most of `history`, and how many of its turns; None if the store has none."""
        gone = None
        while found := self.store.locate(self.search_family, history.list_nodes()):
            key, turns = found
            try:
                return self.load_branch(key), turns
            except UnknownHandle:
                # It was deleted since it was found. What is found again under its key is damage.
                if key == gone:
                    raise
                gone = key
        return None

    def find_branch(
        self, history: History, at_hand: SessionBranch | None = None
    ) -> tuple[SessionBranch, HistoryChange]:
        """Return the branch that `history` continues, and how it continues it. Raises StoreError.

        at_hand: the branch of the client's messages so far. Without turns it cannot be found by its history.
        """
        begun = _without_turns(at_hand)
        if found := self._locate_branch(history):
            branch, turns = found
            if begun is None or turns == len(branch.log.state.turns):
                return self._continue_from(branch, turns, history)
            # Another run began in the same way. A fork of it would leave the branch at hand behind, without a turn.
            return begun, HistoryChange.CONTINUE
        # In a family no session is given that the history must belong to.
        known = None
        if self.logs.options.is_shared:
            known = begun
        if known is None and not self.logs.options.advanced.family:
            known = self.load_root_branch()
        if known is None:
            return self._take_free_key(self.begin_session()), HistoryChange.CONTINUE
        if not known.log.state.turns:
            return known, HistoryChange.CONTINUE
        return self.fork_branch(known, -1, "replaced"), HistoryChange.REPLACED

    def find_trimmed(self, history: History) -> tuple[SessionBranch, int] | None:
        """Return the session's newest branch, and how many of its turns `history` lacks at the front.

        None where the history is known as it is, or has not the newest turns of that branch.
        """
        if self.store.locate(self.search_family, history.list_nodes()):
            return None
        branch = self.load_latest_branch()
        if branch is None or branch.history is not None:
            return None
        dropped = count_dropped_turns(history, branch)
        return (branch, dropped) if dropped else None

    def fork_before_drop(self, found: SessionBranch) -> SessionBranch:
        """Return a branch that shares the log of `found` up to a turn before its client first dropped turns."""
        turns = 0
        for event in found.log.events:
            if isinstance(event, TurnsDropped):
                break
            if isinstance(event, TurnAdded):
                turns = event.turn.index
        return self._take_free_key(self.fork_branch(found, max(0, turns - 1), "fork"))

    def follow_divergence(
        self, current: SessionBranch, history: History, intact: int
    ) -> tuple[SessionBranch, HistoryChange]:
        """Return the branch that `history` continues after it diverged from `current`, and how it continues it.

        intact: turns that both share; -1 where not even the head is the same.
        """
        try:
            found = self.store.locate(self.search_family, history.list_nodes())
        except ConflictError:
            raise
        except StoreError:
            # What is in memory is enough to continue; the next write reports that the store fails.
            found = None
        if found is None or found[1] <= intact:
            return self.continue_known(current, history, intact)
        # Another branch has more turns of it, or this one has: prompts differ then, which are no part of a name.
        key, turns = found
        if key != current.key:
            try:
                other = self.load_branch(key)
            except UnknownHandle:
                # It was deleted since it was found.
                return self.continue_known(current, history, intact)
            return self._continue_from(other, turns, history, current)
        if turns > len(current.log.state.turns):
            raise ConflictError(f"session {current.key!r}: another writer was there meanwhile; open it again")
        return self._continue_from(current, turns, history, current)

    def continue_known(
        self, current: SessionBranch, history: History, intact: int
    ) -> tuple[SessionBranch, HistoryChange]:
        """Do as `follow_divergence`, with nothing but what is in memory."""
        return self._continue_from(current, intact, history, current)

    def _continue_from(
        self, found: SessionBranch, turns: int, history: History, current: SessionBranch | None = None
    ) -> tuple[SessionBranch, HistoryChange]:
        """Return `found` if it ends with turn `turns`, else a fork of it there, and how `history` continues it.

        current: the branch that the client leaves.
        """
        known = len(found.log.state.turns)
        while 0 < turns < known and history.has_turn(turns + 1, found.nodes.get(turns + 1)):
            # Another process wrote this turn after the search.
            turns += 1
        if turns == known:
            return found, HistoryChange.CONTINUE
        if (
            (current is None or self.logs.options.is_shared)
            and 0 <= turns == known - 1 < history.turns.turn_count
            and found.is_amended_by(history)
        ):
            # Another process was given the newest turn with another ending.
            return found, HistoryChange.AMENDED
        last = found.key
        if current is not None and session_name(current.key) == session_name(found.key):
            last = max(found.key, current.key, key=branch_number)
        if turns >= 0 and history.turns.turn_count == turns:
            return self._take_free_key(self.fork_branch(found, turns, "fork", last)), HistoryChange.UNDO
        change = relate_history(history, _collect_left_digests(found, turns))
        if self.logs.options.advanced.family and turns < 0 and change is HistoryChange.FORK:
            # The two have nothing in common: this is another run of the family.
            return self._take_free_key(self.begin_session()), HistoryChange.CONTINUE
        relation: Relation = "replaced" if change is HistoryChange.REPLACED else "fork"
        return self._take_free_key(self.fork_branch(found, turns, relation, last)), change

    def _take_free_key(self, branch: SessionBranch) -> SessionBranch:
        """Give a new branch a key that no session has, so that the key stays true however late it is written."""
        if self.logs.options.is_shared and branch.takes_free_key:
            return self._find_free_key(branch)
        return branch

    def _find_free_key(self, branch: SessionBranch) -> SessionBranch:
        try:
            while has_session(self.store, branch.key):
                branch.new = replace(branch.new, key=next_branch_key(branch.key))
        except StoreError:
            # A free key is searched for again when the branch is written.
            pass
        return branch

    def fork_branch(self, found: SessionBranch, turns: int, relation: Relation, last: str = "") -> SessionBranch:
        """Return a branch that shares the log of `found` up to turn `turns`; nothing of it for -1.

        last: the key after which a free one is searched for, so that many forks of one branch do not try all keys.
        """
        # A branch that the store does not have cannot be a parent in it; the one it came from can.
        parent = found.new.parent
        saved = found.new.shared
        replaced_turns = _count_inherited_turns(found)
        if found.exists:
            parent = found.key
            saved = found.saved_events
            replaced_turns = len(found.log.state.turns)
        elif found.new.relation == "replaced":
            # What came before a rewritten history stays what its forks came from.
            relation = "replaced"
        if turns < 0:
            # It is the same session, and a head that stays is read from the cache.
            events: list[Event] = [self.opened.defer(found.log.state.deferral)]
            shared = 0
        else:
            events = found.cut_log(turns)
            shared = min(len(events), saved)
        if relation == "replaced":
            events.append(HistoryReplaced(replaced_turns))
        new = NewSession(
            key=next_branch_key(last or found.key),
            family=self.search_family,
            at=self.logs.options.advanced.clock(),
            parent=parent,
            relation=relation,
            shared=shared,
        )
        branch = make_branch(new, self.logs.make_log(events), self.logs.options.effective_guards)
        branch.saved_events = shared
        return branch


def _count_inherited_turns(branch: SessionBranch) -> int:
    """Return how many turns of its parent a branch may read."""
    if branch.new.relation == "replaced":
        return count_replaced_turns(branch.log.events)
    return len(map_nodes(branch.log.events[: branch.new.shared]))


def count_dropped_turns(history: History, branch: SessionBranch) -> int:
    """Return how many leading turns of `branch` a history lacks that has all others up to the newest; 0 for none."""
    known = len(branch.log.state.turns)
    ends = [history.count_messages(turn) for turn in range(history.turns.turn_count + 1)]
    for dropped in range(max(1, known - history.turns.turn_count), known):
        kept = known - dropped
        names = history.name_turns(branch.nodes.get(dropped, ""), ends[: kept + 1])
        # Up to the first that is another: most histories part at once.
        same = sum(
            1 for _ in takewhile(lambda each: each[1] == branch.nodes.get(each[0]), enumerate(names, dropped + 1))
        )
        # The user's words after the newest turn may be new.
        if same == kept or same == kept - 1 > 0:
            return dropped
    return 0


def _without_turns(branch: SessionBranch | None) -> SessionBranch | None:
    """Return `branch` if it has no turn yet, else None."""
    if branch is None or branch.log.state.turns:
        return None
    branch.unverified = False
    return branch


def _collect_left_digests(found: SessionBranch, turns: int) -> set[bytes]:
    """Return the digests of the messages of `found` that none of its first `turns` turns has."""
    history = found.history
    if history is None:
        return set()
    digests = history.collect_digests()
    if turns >= 0:
        digests -= history.collect_digests(end=history.count_messages(turns))
    return digests
