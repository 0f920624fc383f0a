"""One line of a session's history: its log in the store, and what follows from it in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from lacuna.engine import Session
from lacuna.errors import ConflictError
from lacuna.manager.history import History
from lacuna.manager.ledger import Ledger
from lacuna.stores.store import NewSession, Relation, Store
from lacuna.strategies.guards import Guards, Watch
from lacuna.trajectory.events import Amended, Event, TurnAdded
from lacuna.trajectory.tokens import Sizer
from lacuna.trajectory.turn import Turn


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


@dataclass(slots=True)
class Branch:
    """A log and its session.

    saved:   records of `session.events` that are in the store. made: whether the store knows the key.
    failing: what the store said when it last failed; "" while it serves.
    handled: turns that `watch` and `tally` have seen.
    """

    new: NewSession
    session: Session
    watch: Watch
    tally: Tally
    history: History | None = None
    saved: int = 0
    made: bool = False
    failing: str = ""
    handled: int = 0
    nodes: dict[int, str] = field(default_factory=dict)
    ledger: Ledger | None = None

    @property
    def key(self) -> str:
        return self.new.key

    @property
    def unsaved(self) -> list[Event]:
        return self.session.events[self.saved :]

    def save(self, store: Store, at: float) -> None:
        """Write what the store has not seen yet, durably. Raises StoreError; then nothing was written."""
        if not self.made:
            self._make(store)
        if unsaved := self.unsaved:
            self.saved = store.append(self.key, unsaved, after=self.saved, at=at)
        self.failing = ""

    def _make(self, store: Store) -> None:
        """Begin the session in the store; a branch whose number is taken takes the next one."""
        while True:
            try:
                store.create(self.new)
            except ConflictError:
                if self.new.relation not in ("fork", "replaced"):
                    raise
                self.new = replace(self.new, key=following(self.new.key))
            else:
                self.made = True
                return

    def catch_up(self) -> None:
        """Show guards and totals the turns that they have not seen."""
        for turn in self.session.state.turns[self.handled :]:
            self.watch.turn_added(turn)
            self.tally.turn_added(turn)
        self.handled = len(self.session.state.turns)

    def prefix(self, turns: int) -> list[Event]:
        """The log as it stood before turn `turns` + 1 came."""
        return list(_until(self.session.events, turns + 1))


def _until(events: Sequence[Event], turn: int) -> Iterator[Event]:
    for event in events:
        if isinstance(event, TurnAdded) and event.turn.index >= turn:
            return
        yield event


def last_nodes(events: Sequence[Event]) -> dict[int, str]:
    """For each turn of a log the name of the history that ends with it, as it is now."""
    return {event.turn.index: event.node for event in events if isinstance(event, TurnAdded | Amended)}


def branch(new: NewSession, session: Session, guards: Guards) -> Branch:
    """A branch whose log is `session.events`, none of it in the store yet."""
    made = Branch(new=new, session=session, watch=guards.start(), tally=Tally(session.sizer))
    made.nodes = last_nodes(session.events)
    made.catch_up()
    return made


def following(key: str) -> str:
    """The key of a session's next branch: a number behind the session's name."""
    root, mark, number = key.rpartition("~")
    return f"{root}~{int(number) + 1}" if mark and number.isdigit() else f"{key}~2"


def relation(history: History | None, known: set[bytes]) -> Relation:
    """What a history is that goes another way than `known` messages did.

    Rewritten by the client where some of them come again in another place, else a fork.
    """
    return "replaced" if history is not None and known & history.says() else "fork"
