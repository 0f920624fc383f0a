"""One branch of a session: its log in the store, the state computed from it in memory, and what enters it.

The head enters where it changed, and turns when they are complete. Of the sessions that it came from, a session may
read what was handed on to it, and nothing that came later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from msgspec.structs import replace

from elision.engine import Log
from elision.errors import ConflictError, UnknownHandle
from elision.manager.advanced_options import Pin
from elision.manager.deferred_tools import read_tools
from elision.manager.history import History
from elision.manager.ledger import Ledger
from elision.providers.live.client_messages import Location, convert_to_json, copy_structure
from elision.providers.live.conversation import TurnSources
from elision.stores.packing import make_batch_id
from elision.stores.store import NewSession, SessionInfo, Store
from elision.strategies.guards import Guards
from elision.trajectory.events import Event, HistoryReplaced, RequestSent, TurnAdded, TurnAmended, UsageReported
from elision.trajectory.run_roles import Role, find_run_role
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import TokenComposition, measure_turn
from elision.trajectory.turn import Head, Message, Turn


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
                self.new = dataclasses.replace(self.new, key=next_branch_key(self.key))
            except UnknownHandle:
                if self.exists or not self.new.parent:
                    raise
                # The session that it came from was deleted: its own log is whole without it.
                self.pending_attempts.clear()
                self.saved_events = 0
                self.new = dataclasses.replace(self.new, parent="", relation="", shared=0)
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
            self.new = dataclasses.replace(self.new, key=next_branch_key(self.key), parent=self.key, relation="fork")
        self.new = dataclasses.replace(self.new, shared=0)
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
    return replace(turn, observations=(), interjections=(), usage=None, at=None, model="", pinned=False)


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


#: Returns facts about the session of that key; None where it is not there, or not shown.
FindSession = Callable[[str], SessionInfo | None]


def trace_stored_turn(
    store: Store, find_session: FindSession, session: SessionInfo, index: int
) -> Iterator[tuple[str, Turn | None]]:
    """Yield a stored session's key and its turn `index`, then what `trace_turn` yields."""
    turn = _read_turn(store, session, index)
    yield session.key, turn
    yield from trace_turn(store, find_session, session, index, turn=turn, events=store.events(session.key))


def trace_turn(
    store: Store,
    find_session: FindSession,
    session: SessionInfo | NewSession,
    index: int,
    *,
    turn: Turn | None,
    events: Iterable[Event],
) -> Iterator[tuple[str, Turn | None]]:
    """Yield the key of each session that `session` came from, nearest first, and its turn `index`.

    The turn is None where it is not there, and where it was not handed on. A fork is handed the turns that it shares,
    so the parent's turn must be the fork's own. A history that the client rewrote is handed all turns that its parent
    had then. A sub-agent's caller names the parent itself, and the sub-agent may read all of it.

    turn: the session's own turn `index`, None if it has none. events: its log. Raises StoreError.
    """
    seen = {session.key}
    child: SessionInfo | NewSession = session
    while child.parent not in seen and (parent := find_session(child.parent)) is not None:
        seen.add(parent.key)
        found = _read_turn(store, parent, index)
        if child.relation == "replaced":
            is_handed_on = index <= count_replaced_turns(events)
        else:
            is_handed_on = child.relation == "sub-agent" or found == turn
        turn = found if is_handed_on else None
        yield parent.key, turn
        child = parent
        events = store.events(parent.key)


def _read_turn(store: Store, session: SessionInfo, index: int) -> Turn | None:
    if index > session.turns:
        return None
    return next(iter(store.turns(session.key, index, index)), None)


def count_replaced_turns(events: Iterable[Event]) -> int:
    """Return how many turns the parent of a session had when the client rewrote the history. events: the session's."""
    turns = 0
    for event in events:
        # A log begins with a copy of its parent's, which may have one as well.
        if isinstance(event, HistoryReplaced):
            turns = event.turns
    return turns


def ingest_turns(branch: SessionBranch, first: int, system: Any, tools: Any, pin: Pin | None) -> None:
    """Add the turns of the branch's history from `first` (1-based) on to its session, and a head that changed."""
    history = branch.history
    assert history is not None
    _ingest_head(branch, history, system, tools, pin)
    called, answered = find_newest_call(branch.log.events)
    if called is not None and called.call == len(branch.log.state.turns) + 1 <= history.turns.turn_count:
        # This turn answers the newest call: what the provider reported for that is the turn's.
        usage = answered.usage if answered is not None else None
        history.turns.set_call_facts(called.call, usage=usage, at=called.at, model=called.model)
    for index in range(max(first, 1), history.turns.turn_count + 1):
        if index <= len(branch.log.state.turns):
            history.turns.adopt_tags(branch.log.state.turns[index - 1])
        turn, sources = history.turns.build_turn(index)
        history.splice.set_turn(index, sources)
        if pin:
            turn = _pin_turn(turn, sources, history, pin)
        node = history.get_node(index)
        turns = branch.log.state.turns
        if index > len(turns):
            branch.log.add_turn(turn, node)
        else:
            known = turns[index - 1]
            # What the provider reported when the turn first came still holds.
            turn = replace(turn, usage=known.usage, at=known.at, model=known.model)
            if turn != known:
                history.turns.set_call_facts(index, usage=turn.usage, at=turn.at, model=turn.model)
                branch.amend_newest(turn, node)
        branch.nodes[index] = node


def _ingest_head(branch: SessionBranch, history: History, system: Any, tools: Any, pin: Pin | None) -> None:
    """Set the session's head, unless it is the one that it has."""
    kept = history.list_kept_head()
    if history.ingested_head == ([message for message, _ in kept], system, tools):
        return
    known = read_tools(tools)
    history.ingested_head = ([message for message, _ in kept], copy_structure(system), known.copy)
    apart: list[Message] = []
    if system is not None:
        apart = history.dialect.parse_system(convert_to_json(system))
    messages = [_pin_message(message, history, spot, pin) for message, spot in kept]
    state = branch.log.state
    head = Head(
        messages=(*apart, *messages),
        tools=known.json,
        hidden_tokens=state.head.hidden_tokens,
        warm_tokens=state.head.warm_tokens,
    )
    spots: list[Location | None] = [*(None for _ in apart), *(spot for _, spot in kept)]
    history.splice.set_head(spots)
    if head != state.head or not any(state.track.segments):
        branch.log.set_head(head)


def find_newest_call(events: Sequence[Event]) -> tuple[RequestSent | None, UsageReported | None]:
    """Return the newest request of a log, and the usage that was last reported for it; work O(events after it)."""
    reports: list[UsageReported] = []
    for event in reversed(events):
        if isinstance(event, UsageReported):
            reports.append(event)
        elif isinstance(event, RequestSent):
            # Another process may have recorded the usage of an earlier call after it.
            for report in reports:
                if report.call == event.call:
                    return event, report
            return event, None
    return None, reports[0] if reports else None


def _pin_turn(turn: Turn, sources: TurnSources, history: History, pin: Pin) -> Turn:
    observations = tuple(
        replace(observation, pinned=observation.pinned or _is_pinned(history, (spot,), pin))
        for observation, spot in zip(turn.observations, sources.observations, strict=True)
    )
    interjections = tuple(
        _pin_message(message, history, spot, pin)
        for message, spot in zip(turn.interjections, sources.interjections, strict=True)
    )
    return replace(
        turn,
        observations=observations,
        interjections=interjections,
        pinned=_is_pinned(history, sources.assistant, pin),
    )


def _pin_message(message: Message, history: History, spot: Location, pin: Pin | None) -> Message:
    return replace(message, pinned=message.pinned or _is_pinned(history, (spot,), pin))


def _is_pinned(history: History, spots: Sequence[Location], pin: Pin | None) -> bool:
    return pin is not None and any(pin(history.messages[spot.message].json) for spot in spots)
