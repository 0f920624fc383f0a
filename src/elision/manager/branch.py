"""One branch of a session: its log in the store, and the state computed from it in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import msgspec

from elision.engine import Log
from elision.errors import ConflictError, UnknownHandle
from elision.manager.history import History
from elision.manager.ledger import Ledger
from elision.stores.batch_ids import make_batch_id
from elision.stores.store import NewSession, Store
from elision.strategies.guards import Guards
from elision.trajectory.composition import TokenComposition, measure_turn
from elision.trajectory.events import Event, TurnAdded, TurnAmended
from elision.trajectory.run_roles import Role, find_run_role
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Turn


class HistoryChange(StrEnum):
    """How a request's messages continue what was known. The values are those of `Diagnostics.history`.

    CONTINUE: they begin with what was known. AMENDED: the newest turn has another ending. UNDO: the newest turns are
    gone. FORK: other turns follow. REPLACED: known messages come in another place, as after a compaction by the client.
    """

    CONTINUE = "continue"
    AMENDED = "amended"
    UNDO = "undo"
    FORK = "fork"
    REPLACED = "replaced"


class TurnTotals:
    """Running totals over a session's turns, and the guards that watch them, for diagnostics and reports.

    Adding a turn is work O(turn). turns: how many were added. The lists begin with 0 turns.
    """

    def __init__(self, sizer: Sizer, guards: Guards) -> None:
        self.turns = 0
        #: Number of observations up to and with each turn, and their tokens.
        self.observations = [0]
        self.tokens = [0]
        #: Where the tokens are, up to and with each turn, the head left out.
        self.compositions = [TokenComposition()]
        self.watch = guards.start_watch()
        #: The guards without the newest turn, which may still change.
        self._watch_before_newest = self.watch
        self._sizer = sizer

    def add_new(self, turns: Sequence[Turn]) -> None:
        """Add those of all `turns` that are not added yet."""
        for turn in turns[self.turns :]:
            self._watch_before_newest = self.watch.copy()
            self.watch.add_turn(turn)
            composition = measure_turn(turn, self._sizer)
            self.observations.append(self.observations[-1] + len(turn.observations))
            self.tokens.append(self.tokens[-1] + composition.observations)
            self.compositions.append(self.compositions[-1] + composition)
            self.turns = turn.index

    def remove_newest(self, index: int) -> None:
        """Remove turn `index`, the newest of the session, if it was added: it has another ending now."""
        if self.turns == index:
            self.turns -= 1
            self.watch = self._watch_before_newest
            del self.observations[-1], self.tokens[-1], self.compositions[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteAttempt:
    """One write to a log. However often it is repeated, it is written once.

    new: the session, which is created where `creates` says so. after: records that are in the store before it. at:
    seconds since the epoch. batch: its id.
    """

    new: NewSession
    creates: bool
    events: tuple[Event, ...]
    after: int
    at: float
    batch: bytes = field(default_factory=make_batch_id)

    def write(self, store: Store) -> None:
        """Write it, unless it is in the store. Raises ConflictError where others wrote before it, StoreError."""
        if self.creates:
            store.create_with_events(self.new, self.events, at=self.at, batch=self.batch)
        else:
            store.append(self.new.key, self.events, after=self.after, at=self.at, batch=self.batch)


@dataclass(slots=True)
class SessionBranch:
    """A log and its session.

    new:              what the store is told when the session is created.
    totals:           of the turns that diagnostics have seen.
    saved_events:     leading records of `log.events` that are in the store.
    exists:           whether the store knows the key.
    unverified:       begun without a look into the store, which failed. The next pass looks.
    diverged:         other processes wrote to the log, and their records were read. The history may differ by now.
    may_rename:       whether the next free key is used where this one is taken, as it always is for a fork.
    pending_attempts: writes whose outcome is not known, because the store failed, oldest first. All are for one place
                      in the log, so at most one is in the store. Nothing else is written before that is known.
    """

    new: NewSession
    log: Log
    totals: TurnTotals
    history: History | None = None
    saved_events: int = 0
    exists: bool = False
    pending_attempts: list[WriteAttempt] = field(default_factory=list)
    unverified: bool = False
    diverged: bool = False
    may_rename: bool = False
    nodes: dict[int, str] = field(default_factory=dict)
    ledger: Ledger | None = None

    @property
    def key(self) -> str:
        return self.new.key

    @property
    def unsaved(self) -> list[Event]:
        return self.log.events[self.saved_events :]

    @property
    def has_unsaved(self) -> bool:
        """Whether there is something to write. A session without calls and turns is not worth creating."""
        if self.pending_attempts:
            return True
        state = self.log.state
        return bool(self.unsaved) and (self.exists or bool(state.calls or state.turns))

    def find_role(self) -> Role:
        """Return the role of the agent whose session it is."""
        state = self.log.state
        is_started = self.new.relation == "sub-agent"
        return find_run_role(state.head, state.turns, is_started=is_started, said=state.role)

    def save(self, store: Store, at: float) -> None:
        """Write all unsaved records durably, after the outcome of all earlier writes is known.

        A new branch whose key is taken uses the next free one where it may. at: seconds since the epoch. Raises
        ConflictError where another process wrote; StoreError where the store fails, and then the write is in
        `pending_attempts`.
        """
        assert not self.pending_attempts
        while self.unsaved or not self.exists:
            attempt = self.begin_attempt(at)
            try:
                attempt.write(store)
            except ConflictError:
                self.pending_attempts.clear()
                if self.exists or not self.takes_free_key or not has_session(store, self.key):
                    raise
                self.new = replace(self.new, key=next_branch_key(self.key))
            except UnknownHandle:
                if self.exists or not self.new.parent:
                    raise
                # The session that it came from was deleted: its own log is whole without it.
                self.pending_attempts.clear()
                self.saved_events = 0
                self.new = replace(self.new, parent="", relation="", shared=0)
            else:
                self.pending_attempts.clear()
                self.saved_events += len(attempt.events)
                self.exists = True

    def begin_attempt(self, at: float) -> WriteAttempt:
        """Return a write of all unsaved records, which is in `pending_attempts` from now on."""
        attempt = WriteAttempt(
            new=self.new, creates=not self.exists, events=tuple(self.unsaved), after=self.saved_events, at=at
        )
        self.pending_attempts.append(attempt)
        return attempt

    def leave_stored_log(self) -> None:
        """Have the next write store the whole log under the next free key: what the store has of it is damaged.

        Nothing of the damaged session is changed.
        """
        if self.exists:
            self.new = replace(self.new, key=next_branch_key(self.key), parent=self.key, relation="fork")
        self.new = replace(self.new, shared=0)
        self.saved_events = 0
        self.exists = False
        self.pending_attempts.clear()

    @property
    def needs_stored_log(self) -> bool:
        """Whether a write continues, or copies, what the store has already."""
        return self.exists or self.saved_events > 0

    def count_same_unsaved(self, events: Sequence[Event]) -> int:
        """Return how many leading records of `events` the unsaved ones begin with."""
        unsaved = self.unsaved
        same = 0
        while same < min(len(events), len(unsaved)) and events[same] == unsaved[same]:
            same += 1
        return same

    @property
    def takes_free_key(self) -> bool:
        """Whether another key does as well where a session of this one is there already."""
        return self.may_rename or self.new.relation in ("fork", "replaced")

    def amend_newest(self, turn: Turn, node: str) -> None:
        """Replace the newest turn, which came with another ending."""
        self.log = self.log.extend([TurnAmended(turn, node)])
        self.totals.remove_newest(turn.index)

    def is_amended_by(self, history: History) -> bool:
        """Return whether `history` has the newest turn with another ending, of which nothing is hidden or folded."""
        newest = self.log.state.turns[-1]
        history.turns.adopt_tags(newest)
        amended, _ = history.turns.build_turn(newest.index)
        if _keep_assistant_part(newest) != _keep_assistant_part(amended):
            return False
        for _, position in self.log.state.list_fixed_keys(newest.index):
            fixed = slice(position - 1, position)
            if newest.observations[fixed] != amended.observations[fixed]:
                return False
        return True

    def cut_log(self, turns: int) -> list[Event]:
        """Return the leading events of the log, up to turn `turns` + 1, which is left out."""
        events: list[Event] = []
        for event in self.log.events:
            if isinstance(event, TurnAdded) and event.turn.index > turns:
                break
            events.append(event)
        return events


def map_nodes(events: Sequence[Event]) -> dict[int, str]:
    """Return for each turn of a log the name of the history that ends with it."""
    return {event.turn.index: event.node for event in events if isinstance(event, TurnAdded | TurnAmended)}


def _keep_assistant_part(turn: Turn) -> Turn:
    """Return `turn` with nothing but what the assistant wrote."""
    return msgspec.structs.replace(turn, observations=(), interjections=(), usage=None, at=None, model="", pinned=False)


def make_branch(new: NewSession, log: Log, guards: Guards) -> SessionBranch:
    """Return a branch whose log is `log.events`, none of it in the store yet."""
    return SessionBranch(new=new, log=log, totals=TurnTotals(log.sizer, guards), nodes=map_nodes(log.events))


def has_session(store: Store, key: str) -> bool:
    """Return whether the store has a session of that key. Raises StoreError."""
    try:
        store.length(key)
    except UnknownHandle:
        return False
    return True


def next_branch_key(key: str) -> str:
    """Return the key of a session's next branch: the session's name, `~` and a number."""
    return f"{session_name(key)}~{branch_number(key) + 1}"


def session_name(key: str) -> str:
    """Return the session's name in the key of one of its branches."""
    if branch_number(key) > 1:
        return key.rpartition("~")[0]
    return key


def branch_number(key: str) -> int:
    """Return the number of the branch in `key`; 1 for the session itself."""
    _, mark, digits = key.rpartition("~")
    if mark and digits.isdecimal() and digits.isascii() and len(digits) < 10:
        return int(digits)
    return 1


def relate_history(history: History, known: set[bytes]) -> HistoryChange:
    """Return how a history that differs from the `known` messages relates to them: FORK or REPLACED."""
    if known & history.collect_digests():
        return HistoryChange.REPLACED
    return HistoryChange.FORK
