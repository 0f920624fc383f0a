"""One line of a session's history: its log in the store, and what follows from it in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from elision.engine import Session
from elision.errors import ConflictError, UnknownHandle
from elision.manager.history import History
from elision.manager.ledger import Ledger
from elision.stores.store import AtomicCreate, NewSession, Relation, Store
from elision.strategies.guards import Guards, RunWatch
from elision.trajectory.events import Event, TurnAdded, TurnAmended
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Turn


@dataclass(slots=True)
class ObservationTotals:
    """Running totals that the diagnostics tell; a fold over turns and decisions, work O(new)."""

    sizer: Sizer
    #: Observations up to and with each turn, and their tokens; 0 before the first.
    observations: list[int] = field(default_factory=lambda: [0])
    tokens: list[int] = field(default_factory=lambda: [0])

    def add_turn(self, turn: Turn) -> None:
        self.observations.append(self.observations[-1] + len(turn.observations))
        self.tokens.append(self.tokens[-1] + sum(self.sizer.count_observation(each) for each in turn.observations))

    def remove_newest(self) -> None:
        """The newest turn is to come again."""
        del self.observations[-1], self.tokens[-1]


@dataclass(slots=True)
class SessionBranch:
    """A log and its session.

    totals:           counted over the first `turns_counted` turns, which `watch` has seen as well.
    watch_before_newest: `watch` without the newest of them, which may still change.
    saved_events:     leading records of `session.events` that are in the store.
    exists:           whether the store knows the key.
    unverified:       begun without a look into the store, which failed. The next pass looks.
    diverged:         other processes wrote to the log, and their records were read. The history may differ by now.
    may_rename:       whether the next free key is used where this one is taken, as it always is for a fork.
    pending_attempts: what was to be written at each attempt since the store failed, without those that a later attempt
                      only added to.
    store_error:      why the store failed last; "" while it serves.
    """

    new: NewSession
    session: Session
    watch: RunWatch
    totals: ObservationTotals
    watch_before_newest: RunWatch
    history: History | None = None
    saved_events: int = 0
    exists: bool = False
    store_error: str = ""
    pending_attempts: list[list[Event]] = field(default_factory=list)
    turns_counted: int = 0
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
        return self.session.events[self.saved_events :]

    @property
    def has_unsaved(self) -> bool:
        """Whether something happened that is not in the store."""
        return bool(self.unsaved) and (self.exists or bool(self.session.state.calls or self.session.state.turns))

    def save(self, store: Store, at: float) -> None:
        """Write what the store has not seen yet, durably. Raises StoreError; then nothing was written."""
        try:
            if not self.exists:
                self._create_session(store, at)
            if unsaved := self.unsaved:
                self.saved_events = store.append(self.key, unsaved, after=self.saved_events, at=at)
        except ConflictError:
            raise
        except BaseException:
            self._note_attempt()
            raise
        self.store_error = ""
        self.pending_attempts = []

    def _note_attempt(self) -> None:
        """Remember what was to be written: it may be in the store, and only the answer lost."""
        if unsaved := self.unsaved:
            self.pending_attempts = [tried for tried in self.pending_attempts if not _begins_with(unsaved, tried)] + [
                unsaved
            ]

    def is_own_write(self, there: Sequence[Event]) -> bool:
        """Whether `there`, found in the store behind what is saved, is what a try of ours wrote, whichever it was."""
        if not there or not self.pending_attempts:
            return False
        # A try whose events all stand in what is owed now is not remembered by itself.
        return list(there) in self.pending_attempts or _begins_with(self.unsaved, there)

    def find_own_write(self, store: Store) -> list[Event]:
        """What an earlier try wrote though its answer was lost; [] if none did, or others wrote. Raises StoreError."""
        if self.pending_attempts:
            there = list(store.events(self.key, self.saved_events))
        else:
            there = []
        if self.is_own_write(there):
            return there
        return []

    def _create_session(self, store: Store, at: float) -> None:
        """Begin the session in the store; a branch whose number is taken takes the next one."""
        while True:
            try:
                self._create_once(store, at)
            except ConflictError:
                if not has_session(store, self.key):
                    raise
                free = self.may_rename or self.new.relation in ("fork", "replaced")
                if self._was_created(store, free=free):
                    self.exists = True
                    return
                if self.find_own_write(store):
                    # Whoever is told goes on behind it.
                    self.exists = True
                    raise
                if not free:
                    raise
                self.new = replace(self.new, key=next_branch_key(self.new.key))
            else:
                self.exists = True
                return

    def _was_created(self, store: Store, *, free: bool) -> bool:
        """Whether an earlier try began the session, though its answer was lost, and nothing is in it yet.

        free: whether another name would do, so that it must be ours for certain.
        """
        info = store.info(self.key)
        own = (info.family, info.begun) == (self.new.family, self.new.at)
        return bool(self.pending_attempts) and info.records == self.new.shared and (own or not free)

    def _create_once(self, store: Store, at: float) -> None:
        # Its class is asked, not the store: one that fails says so at every question.
        if issubclass(type(store), AtomicCreate):
            self.saved_events = cast("AtomicCreate", store).create_with_events(self.new, self.unsaved, at=at)
        else:
            store.create(self.new)

    def count_new_turns(self) -> None:
        """Show guards and totals the turns that they have not seen."""
        for turn in self.session.state.turns[self.turns_counted :]:
            self.watch_before_newest = self.watch.copy()
            self.watch.add_turn(turn)
            self.totals.add_turn(turn)
        self.turns_counted = len(self.session.state.turns)

    def amend_newest(self, turn: Turn, node: str) -> None:
        """The newest turn came with another ending."""
        self.session = self.session.amend_turn(turn, node)
        if self.turns_counted == turn.index:
            self.forget_newest()

    def replace_session(self, session: Session) -> None:
        """Go on with `session`, made anew of events, under the terms that hold for the client's calls."""
        session.terms = self.session.terms
        self.session = session

    def forget_newest(self) -> None:
        """The newest turn that guards and totals were shown is to come again."""
        self.turns_counted -= 1
        self.watch = self.watch_before_newest
        self.totals.remove_newest()

    def is_amended_by(self, history: History) -> bool:
        """Whether the newest turn is the one in `history` but for its ending, of which nothing is hidden."""
        newest = self.session.state.turns[-1]
        came, _ = history.conversation.build_turn(newest.index)
        if _keep_assistant_part(newest) != _keep_assistant_part(came):
            return False
        places = [position - 1 for turn, position in self.session.state.hidden if turn == newest.index]
        return all(newest.observations[at : at + 1] == came.observations[at : at + 1] for at in places)

    def cut_log(self, turns: int) -> list[Event]:
        """The log as it stood before turn `turns` + 1 came."""
        return list(_iterate_until(self.session.events, turns + 1))


def _begins_with(events: Sequence[Event], first: Sequence[Event]) -> bool:
    return list(events[: len(first)]) == list(first)


def _iterate_until(events: Sequence[Event], turn: int) -> Iterator[Event]:
    for event in events:
        if isinstance(event, TurnAdded) and event.turn.index >= turn:
            return
        yield event


def map_nodes(events: Sequence[Event]) -> dict[int, str]:
    """For each turn of a log the name of the history that ends with it, as it is now."""
    return {event.turn.index: event.node for event in events if isinstance(event, TurnAdded | TurnAmended)}


def _keep_assistant_part(turn: Turn) -> Turn:
    """What the assistant said in it alone."""
    return replace(turn, observations=(), interjections=(), usage=None, at=None, model="", pinned=False)


def make_branch(new: NewSession, session: Session, guards: Guards) -> SessionBranch:
    """A branch whose log is `session.events`, none of it in the store yet."""
    watch = guards.start_watch()
    made = SessionBranch(
        new=new, session=session, watch=watch, totals=ObservationTotals(session.sizer), watch_before_newest=watch
    )
    made.nodes = map_nodes(session.events)
    made.count_new_turns()
    return made


def has_session(store: Store, key: str) -> bool:
    """Whether the store knows a session by that name. Raises StoreError."""
    try:
        store.info(key)
    except UnknownHandle:
        return False
    return True


def next_branch_key(key: str) -> str:
    """The key of a session's next branch: a number behind the session's name."""
    return f"{session_name(key)}~{branch_number(key) + 1}"


def session_name(key: str) -> str:
    """The session's name in the key of one of its branches."""
    if branch_number(key) > 1:
        return key.rpartition("~")[0]
    return key


def branch_number(key: str) -> int:
    """Which branch of its session `key` names; 1 for the session itself."""
    _, mark, told = key.rpartition("~")
    if mark and told.isdecimal() and told.isascii() and len(told) < 10:
        return int(told)
    return 1


def relate_history(history: History | None, known: set[bytes]) -> Relation:
    """What a history is that goes another way than `known` messages did.

    Rewritten by the client where some of them come again in another place, else a fork.
    """
    if history is not None and known & history.collect_digests():
        return "replaced"
    return "fork"
