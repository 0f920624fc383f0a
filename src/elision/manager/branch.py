"""One branch of a session: its log in the store, and the state computed from it in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from elision.engine import Session
from elision.errors import ConflictError, UnknownHandle
from elision.manager.history import History
from elision.manager.ledger import Ledger
from elision.stores.store import AtomicCreate, NewSession, Relation, Store
from elision.strategies.guards import Guards, RunWatch
from elision.trajectory.composition import TokenComposition, measure_turn
from elision.trajectory.events import Event, TurnAdded, TurnAmended
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Turn


@dataclass(slots=True)
class TurnTotals:
    """Running totals over a session's turns, for diagnostics and reports. Adding a turn is work O(turn)."""

    sizer: Sizer
    #: Number of observations up to and with each turn, and their tokens. The first entry is 0.
    observations: list[int] = field(default_factory=lambda: [0])
    tokens: list[int] = field(default_factory=lambda: [0])
    #: Where the tokens are, up to and with each turn, the head left out.
    compositions: list[TokenComposition] = field(default_factory=lambda: [TokenComposition()])

    def add_turn(self, turn: Turn) -> None:
        composition = measure_turn(turn, self.sizer)
        self.observations.append(self.observations[-1] + len(turn.observations))
        self.tokens.append(self.tokens[-1] + composition.observations)
        self.compositions.append(self.compositions[-1] + composition)

    def remove_newest(self) -> None:
        """Undo the newest `add_turn`."""
        del self.observations[-1], self.tokens[-1], self.compositions[-1]


@dataclass(slots=True)
class SessionBranch:
    """A log and its session.

    new:              what the store is told when the session is created.
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
    totals: TurnTotals
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
        """Whether the log has records to write. A session without calls and turns is not worth creating."""
        state = self.session.state
        return bool(self.unsaved) and (self.exists or bool(state.calls or state.turns))

    def save(self, store: Store, at: float) -> None:
        """Write all unsaved records durably.

        at: seconds since the epoch. Raises ConflictError where another process wrote, StoreError where the store fails.
        """
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
        """Remember what was to be written: the store may have it, and only its answer was lost."""
        unsaved = self.unsaved
        if unsaved:
            others = [attempt for attempt in self.pending_attempts if not _begins_with(unsaved, attempt)]
            self.pending_attempts = [*others, unsaved]

    def is_own_write(self, stored: Sequence[Event]) -> bool:
        """Return whether one of our attempts wrote `stored`, which the store has after the saved records."""
        if not stored or not self.pending_attempts:
            return False
        # An attempt whose events all begin the unsaved ones is not remembered by itself.
        return list(stored) in self.pending_attempts or _begins_with(self.unsaved, stored)

    def find_own_write(self, store: Store) -> list[Event]:
        """Return what an earlier attempt wrote although its answer was lost; [] if none did, or others wrote.

        Raises StoreError.
        """
        if not self.pending_attempts:
            return []
        stored = list(store.events(self.key, self.saved_events))
        return stored if self.is_own_write(stored) else []

    def _create_session(self, store: Store, at: float) -> None:
        """Create the session in the store. A branch whose key is taken uses the next free one."""
        while True:
            try:
                self._create_once(store, at)
            except ConflictError:
                if not has_session(store, self.key):
                    raise
                may_rename = self.may_rename or self.new.relation in ("fork", "replaced")
                if self._was_created(store, may_rename=may_rename):
                    self.exists = True
                    return
                if self.find_own_write(store):
                    # The caller continues after what was written.
                    self.exists = True
                    raise
                if not may_rename:
                    raise
                self.new = replace(self.new, key=next_branch_key(self.new.key))
            else:
                self.exists = True
                return

    def _was_created(self, store: Store, *, may_rename: bool) -> bool:
        """Return whether an earlier attempt created the session although its answer was lost, and it is still empty.

        may_rename: whether another key would do. Then the session must be ours for certain.
        """
        info = store.info(self.key)
        if not self.pending_attempts or info.records != self.new.shared:
            return False
        return not may_rename or (info.family, info.begun) == (self.new.family, self.new.at)

    def _create_once(self, store: Store, at: float) -> None:
        # The class is asked: a store that fails may raise at every access to the object.
        if issubclass(type(store), AtomicCreate):
            self.saved_events = cast("AtomicCreate", store).create_with_events(self.new, self.unsaved, at=at)
        else:
            store.create(self.new)

    def count_new_turns(self) -> None:
        """Add the turns since the last call to the guards and totals."""
        for turn in self.session.state.turns[self.turns_counted :]:
            self.watch_before_newest = self.watch.copy()
            self.watch.add_turn(turn)
            self.totals.add_turn(turn)
        self.turns_counted = len(self.session.state.turns)

    def amend_newest(self, turn: Turn, node: str) -> None:
        """Replace the newest turn, which came with another ending."""
        self.session = self.session.amend_turn(turn, node)
        if self.turns_counted == turn.index:
            self.forget_newest()

    def replace_session(self, session: Session) -> None:
        """Use `session`, rebuilt from events, under the terms of the present one."""
        session.terms = self.session.terms
        self.session = session

    def forget_newest(self) -> None:
        """Remove the newest turn from the guards and totals."""
        self.turns_counted -= 1
        self.watch = self.watch_before_newest
        self.totals.remove_newest()

    def is_amended_by(self, history: History) -> bool:
        """Return whether `history` has the newest turn with another ending, of which nothing is hidden."""
        newest = self.session.state.turns[-1]
        history.conversation.adopt_tags(newest)
        amended, _ = history.conversation.build_turn(newest.index)
        if _keep_assistant_part(newest) != _keep_assistant_part(amended):
            return False
        for turn, position in self.session.state.hidden:
            hidden = slice(position - 1, position)
            if turn == newest.index and newest.observations[hidden] != amended.observations[hidden]:
                return False
        return True

    def cut_log(self, turns: int) -> list[Event]:
        """Return the leading events of the log, up to turn `turns` + 1, which is left out."""
        events: list[Event] = []
        for event in self.session.events:
            if isinstance(event, TurnAdded) and event.turn.index > turns:
                break
            events.append(event)
        return events


def _begins_with(events: Sequence[Event], first: Sequence[Event]) -> bool:
    return list(events[: len(first)]) == list(first)


def map_nodes(events: Sequence[Event]) -> dict[int, str]:
    """Return for each turn of a log the name of the history that ends with it."""
    return {event.turn.index: event.node for event in events if isinstance(event, TurnAdded | TurnAmended)}


def _keep_assistant_part(turn: Turn) -> Turn:
    """Return `turn` with nothing but what the assistant wrote."""
    return replace(turn, observations=(), interjections=(), usage=None, at=None, model="", pinned=False)


def make_branch(new: NewSession, session: Session, guards: Guards) -> SessionBranch:
    """Return a branch whose log is `session.events`, none of it in the store yet."""
    watch = guards.start_watch()
    branch = SessionBranch(
        new=new,
        session=session,
        watch=watch,
        totals=TurnTotals(session.sizer),
        watch_before_newest=watch,
        nodes=map_nodes(session.events),
    )
    branch.count_new_turns()
    return branch


def has_session(store: Store, key: str) -> bool:
    """Return whether the store has a session of that key. Raises StoreError."""
    try:
        store.info(key)
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


def relate_history(history: History | None, known: set[bytes]) -> Relation:
    """Return how a history that differs from the `known` messages relates to them.

    "replaced" where some of them come again in another place, as after a compaction by the client; else "fork".
    """
    if history is not None and known & history.collect_digests():
        return "replaced"
    return "fork"
