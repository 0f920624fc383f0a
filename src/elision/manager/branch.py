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
from elision.strategies.guards import Guards, Watch
from elision.trajectory.events import Amended, Event, TurnAdded
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Turn


@dataclass(slots=True)
class Tally:
    """Running totals that the diagnostics tell; a fold over turns and decisions, work O(new)."""

    sizer: Sizer
    #: Observations up to and with each turn, and their tokens; 0 before the first.
    observations: list[int] = field(default_factory=lambda: [0])
    tokens: list[int] = field(default_factory=lambda: [0])

    def turn_added(self, turn: Turn) -> None:
        self.observations.append(self.observations[-1] + len(turn.observations))
        self.tokens.append(self.tokens[-1] + sum(self.sizer.observation(each) for each in turn.observations))

    def forget(self) -> None:
        """The newest turn is to come again."""
        del self.observations[-1], self.tokens[-1]


@dataclass(slots=True)
class Branch:
    """A log and its session.

    saved:   records of `session.events` that are in the store. made: whether the store knows the key.
    failing: what the store said when it last failed; "" while it serves. tried: what was to be written since it
             failed, but for what later tries only added to.
    handled: turns that `watch` and `tally` have seen. earlier: `watch` before the newest of them, which may change.
    moved:   others wrote to the log, which was caught up with: the history may go another way by now.
    renamed: whether a name that is taken is no obstacle: the next one is taken then, as it always is for a fork.
    blind:   begun without a look into the store, which failed: what is there is looked for as soon as it serves.
    """

    new: NewSession
    session: Session
    watch: Watch
    tally: Tally
    earlier: Watch
    history: History | None = None
    saved: int = 0
    made: bool = False
    failing: str = ""
    tried: list[list[Event]] = field(default_factory=list)
    handled: int = 0
    blind: bool = False
    moved: bool = False
    renamed: bool = False
    nodes: dict[int, str] = field(default_factory=dict)
    ledger: Ledger | None = None

    @property
    def key(self) -> str:
        return self.new.key

    @property
    def unsaved(self) -> list[Event]:
        return self.session.events[self.saved :]

    @property
    def owes(self) -> bool:
        """Whether something happened that is not in the store."""
        return bool(self.unsaved) and (self.made or bool(self.session.state.calls or self.session.state.turns))

    def save(self, store: Store, at: float) -> None:
        """Write what the store has not seen yet, durably. Raises StoreError; then nothing was written."""
        try:
            if not self.made:
                self._make(store, at)
            if unsaved := self.unsaved:
                self.saved = store.append(self.key, unsaved, after=self.saved, at=at)
        except ConflictError:
            raise
        except BaseException:
            self._note_try()
            raise
        self.failing = ""
        self.tried = []

    def _note_try(self) -> None:
        """Remember what was to be written: it may be in the store, and only the answer lost."""
        if unsaved := self.unsaved:
            self.tried = [tried for tried in self.tried if not _begins_with(unsaved, tried)] + [unsaved]

    def is_own(self, there: Sequence[Event]) -> bool:
        """Whether `there`, found in the store behind what is saved, is what a try of ours wrote, whichever it was."""
        if not there or not self.tried:
            return False
        # A try whose events all stand in what is owed now is not remembered by itself.
        return list(there) in self.tried or _begins_with(self.unsaved, there)

    def find_own_write(self, store: Store) -> list[Event]:
        """What an earlier try wrote though its answer was lost; [] if none did, or others wrote. Raises StoreError."""
        if self.tried:
            there = list(store.events(self.key, self.saved))
        else:
            there = []
        if self.is_own(there):
            return there
        return []

    def _make(self, store: Store, at: float) -> None:
        """Begin the session in the store; a branch whose number is taken takes the next one."""
        while True:
            try:
                self._begin(store, at)
            except ConflictError:
                if not is_there(store, self.key):
                    raise
                free = self.renamed or self.new.relation in ("fork", "replaced")
                if self._was_begun(store, free=free):
                    self.made = True
                    return
                if self.find_own_write(store):
                    # Whoever is told goes on behind it.
                    self.made = True
                    raise
                if not free:
                    raise
                self.new = replace(self.new, key=following(self.new.key))
            else:
                self.made = True
                return

    def _was_begun(self, store: Store, *, free: bool) -> bool:
        """Whether an earlier try began the session, though its answer was lost, and nothing is in it yet.

        free: whether another name would do, so that it must be ours for certain.
        """
        info = store.info(self.key)
        own = (info.family, info.begun) == (self.new.family, self.new.at)
        return bool(self.tried) and info.records == self.new.shared and (own or not free)

    def _begin(self, store: Store, at: float) -> None:
        # Its class is asked, not the store: one that fails says so at every question.
        if issubclass(type(store), AtomicCreate):
            self.saved = cast("AtomicCreate", store).create_with_events(self.new, self.unsaved, at=at)
        else:
            store.create(self.new)

    def catch_up(self) -> None:
        """Show guards and totals the turns that they have not seen."""
        for turn in self.session.state.turns[self.handled :]:
            self.earlier = self.watch.copy()
            self.watch.turn_added(turn)
            self.tally.turn_added(turn)
        self.handled = len(self.session.state.turns)

    def amended(self, turn: Turn, node: str) -> None:
        """The newest turn came with another ending."""
        self.session = self.session.amended(turn, node)
        if self.handled == turn.index:
            self.forget()

    def rebuild(self, session: Session) -> None:
        """Go on with `session`, made anew of events, under the terms that hold for the client's calls."""
        session.terms = self.session.terms
        self.session = session

    def forget(self) -> None:
        """The newest turn that guards and totals were shown is to come again."""
        self.handled -= 1
        self.watch = self.earlier
        self.tally.forget()

    def amends(self, history: History) -> bool:
        """Whether the newest turn is the one in `history` but for its ending, of which nothing is hidden."""
        newest = self.session.state.turns[-1]
        came, _ = history.conversation.turn(newest.index)
        if _said(newest) != _said(came):
            return False
        places = [position - 1 for turn, position in self.session.state.hidden if turn == newest.index]
        return all(newest.observations[at : at + 1] == came.observations[at : at + 1] for at in places)

    def prefix(self, turns: int) -> list[Event]:
        """The log as it stood before turn `turns` + 1 came."""
        return list(_until(self.session.events, turns + 1))


def _begins_with(events: Sequence[Event], first: Sequence[Event]) -> bool:
    return list(events[: len(first)]) == list(first)


def _until(events: Sequence[Event], turn: int) -> Iterator[Event]:
    for event in events:
        if isinstance(event, TurnAdded) and event.turn.index >= turn:
            return
        yield event


def last_nodes(events: Sequence[Event]) -> dict[int, str]:
    """For each turn of a log the name of the history that ends with it, as it is now."""
    return {event.turn.index: event.node for event in events if isinstance(event, TurnAdded | Amended)}


def _said(turn: Turn) -> Turn:
    """What the assistant said in it alone."""
    return replace(turn, observations=(), interjections=(), usage=None, at=None, model="", pinned=False)


def branch(new: NewSession, session: Session, guards: Guards) -> Branch:
    """A branch whose log is `session.events`, none of it in the store yet."""
    watch = guards.start()
    made = Branch(new=new, session=session, watch=watch, tally=Tally(session.sizer), earlier=watch)
    made.nodes = last_nodes(session.events)
    made.catch_up()
    return made


def is_there(store: Store, key: str) -> bool:
    """Whether the store knows a session by that name. Raises StoreError."""
    try:
        store.info(key)
    except UnknownHandle:
        return False
    return True


def following(key: str) -> str:
    """The key of a session's next branch: a number behind the session's name."""
    return f"{stem(key)}~{number(key) + 1}"


def stem(key: str) -> str:
    """The session's name in the key of one of its branches."""
    if number(key) > 1:
        return key.rpartition("~")[0]
    return key


def number(key: str) -> int:
    """Which branch of its session `key` names; 1 for the session itself."""
    _, mark, told = key.rpartition("~")
    if mark and told.isdecimal() and told.isascii() and len(told) < 10:
        return int(told)
    return 1


def relation(history: History | None, known: set[bytes]) -> Relation:
    """What a history is that goes another way than `known` messages did.

    Rewritten by the client where some of them come again in another place, else a fork.
    """
    if history is not None and known & history.says():
        return "replaced"
    return "fork"
