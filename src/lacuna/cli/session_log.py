"""A stored session gone through once, call by call: what each pass hid, what it cost, and what followed.

The log says what was decided and when; tokens and dollars are worked out from it anew. No placeholder is written again:
what a later pass may rewrite is taken to begin behind what was hidden last, which spares nearly all of the time and
moves a bill by less than a per cent (`tests/cli/test_show.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from lacuna.engine import Session
from lacuna.errors import CorruptError, PriceError, SpecError
from lacuna.manager.branch import Branch, branch
from lacuna.manager.ledger import Ledger
from lacuna.manager.options import RECALL_TOOL, SEARCH_TOOL
from lacuna.manager.report import diagnostics
from lacuna.stores.store import NewSession, SessionInfo, Store
from lacuna.strategies.guards import Guards
from lacuna.strategies.policy import Policy
from lacuna.strategies.raw import Raw
from lacuna.strategies.situation import Situation
from lacuna.strategies.spec import describe, parse
from lacuna.telemetry.diagnostics import Diagnostics
from lacuna.trajectory.events import (
    Amended,
    Answered,
    Attempted,
    Called,
    Decided,
    Event,
    HeadSet,
    Learned,
    Opened,
    Recalled,
    TurnAdded,
)
from lacuna.trajectory.plan import Key, Plan
from lacuna.trajectory.price_lookup import for_model
from lacuna.trajectory.price_sets import named
from lacuna.trajectory.prices import Bill, Prices
from lacuna.trajectory.state import State
from lacuna.trajectory.tokens import Sizer
from lacuna.trajectory.turn import Turn
from lacuna.trajectory.usage import Usage

#: Turns without progress that are worth a word where the settings name no number (docs/guards.md).
PLATEAU = 5
#: Prices of a session that names no model, or an unknown one: as the context manager bills it.
USUAL = "anthropic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One request of a session.

    told:    what the live pass told. at: when, in seconds since the epoch; None if unknown. bill: of its prompt.
    usage:   as the provider reported it. failed: summaries that were not taken. recalled: read again behind it.
    head:    whether system prompt, tools or task changed before it. amended: whether the newest turn came again.
    learned: the window that the provider named when it refused this call, in tokens; 0 for none.
    """

    told: Diagnostics
    at: float | None
    bill: Bill
    usage: Usage | None = None
    failed: tuple[Attempted, ...] = ()
    recalled: tuple[Recalled, ...] = ()
    head: bool = False
    amended: bool = False
    learned: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A session from its first call to its last.

    model:    of most calls, "" if none is named. strategy: as it was begun with. priced: whether its own model's prices
              are known; else it is billed as `USUAL`.
    end:      the newest pass with everything that came behind it; None before the first call.
    """

    info: SessionInfo
    model: str
    strategy: str
    prices: Prices
    priced: bool
    passes: tuple[Pass, ...]
    end: Diagnostics | None

    @property
    def sent(self) -> int:
        """Prompt tokens of all calls."""
        return sum(each.told.after for each in self.passes)

    @property
    def raw(self) -> int:
        """What they would have been had nothing been hidden."""
        return sum(each.told.raw for each in self.passes)

    @property
    def failures(self) -> int:
        """Summaries that were asked for and not taken."""
        return sum(len(each.failed) for each in self.passes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """The events of a session, and how they are gone through.

    prices: instead of the model's own.
    """

    info: SessionInfo
    events: Sequence[Event]
    sizer: Sizer
    guards: Guards
    prices: Prices | None = None

    def account(self) -> Account:
        """Raises CorruptError where the log is no session's."""
        passes: list[Pass] = []
        end: Diagnostics | None = None
        model, (prices, priced) = self.model, self._rates()
        for made, going in self.passes():
            if made is not None:
                passes.append(made)
            elif going.session.newest is not None:
                end = self._told(going)
        return Account(
            info=self.info,
            model=model,
            strategy=self.strategy,
            prices=prices,
            priced=priced,
            passes=tuple(passes),
            end=end,
        )

    def passes(self) -> Iterator[tuple[Pass | None, Branch]]:
        """Every pass with the session as it stood behind it; at the end None, with everything that came after.

        Raises CorruptError.
        """
        try:
            yield from self._passes()
        except (ValueError, KeyError, IndexError) as error:
            raise CorruptError(f"session {self.info.key!r}: its log is no session's: {error}") from error

    def _passes(self) -> Iterator[tuple[Pass | None, Branch]]:
        going, later = self._begun(), _Later.of(self.events)
        waiting: list[Event] = []
        amended = False
        for event in _settled(self.events):
            if isinstance(event, Amended):
                # The turn is in its place as it is now; what came of it is all there is to see here.
                amended = True
                continue
            waiting.append(event)
            if isinstance(event, Called):
                yield self._pass(going, waiting, event, later, amended), going
                waiting, amended = [], False
        going.session.take_up(waiting)
        going.catch_up()
        yield None, going

    def _pass(self, going: Branch, events: list[Event], called: Called, later: _Later, amended: bool) -> Pass:
        began = not going.session.state.calls
        going.session.take_up(events)
        going.catch_up()
        newest = going.session.newest
        assert newest is not None
        return Pass(
            told=self._told(going, called.model),
            at=called.at,
            bill=newest.bill,
            usage=later.usage.get(called.call),
            failed=tuple(event for event in events if isinstance(event, Attempted)),
            recalled=tuple(later.recalled.pop(called.call, ())),
            head=not began and any(isinstance(event, HeadSet) for event in events),
            amended=amended,
            learned=later.learned.pop(called.call, 0),
        )

    def _told(self, going: Branch, model: str = "") -> Diagnostics:
        assert going.ledger is not None
        return diagnostics(going, going.ledger, session=self.info.key, history="continue", model=model or self.model)

    def _begun(self) -> Branch:
        info, (prices, _) = self.info, self._rates()
        new = NewSession(key=info.key, family=info.family, at=info.begun, parent=info.parent, relation=info.relation)
        begun = branch(new, Session(AsDecided(), prices, self.sizer), self.guards)
        begun.ledger = Ledger(prices)
        return begun

    @property
    def opened(self) -> Opened | None:
        return next((event for event in self.events if isinstance(event, Opened)), None)

    @property
    def model(self) -> str:
        """That was asked most often."""
        asked = Counter(event.model for event in self.events if isinstance(event, Called) and event.model)
        return asked.most_common(1)[0][0] if asked else ""

    @property
    def strategy(self) -> str:
        """As the session was begun with, without the rules of the recall tools; "" if the log does not say."""
        return _short(self.opened.strategy) if self.opened else ""

    def _rates(self) -> tuple[Prices, bool]:
        if self.prices is not None:
            return self.prices, True
        try:
            return (for_model(self.model), True) if self.model else (named(USUAL), False)
        except PriceError:
            return named(USUAL), False


def log_of(store: Store, info: SessionInfo, sizer: Sizer, guards: Guards, prices: Prices | None = None) -> Log:
    """The log of a session. Raises StoreError, UnknownHandle."""
    return Log(info=info, events=list(store.events(info.key)), sizer=sizer, guards=guards, prices=prices)


def watchful(guards: Guards) -> Guards:
    """`guards`, and a look at whether a session stands still."""
    return guards if guards.plateau_window is not None else replace(guards, plateau_window=PLATEAU)


# -- reading ----------------------------------------------------------------------------------------------------------


class AsDecided(Raw):
    """Decides nothing: what was decided is in the log."""

    hides: ClassVar[bool] = False

    def start(self) -> Policy:
        return _Frontier(self)


class _Frontier(Policy):
    """Knows where the stable front of a view ends: behind what was hidden last."""

    def __init__(self, strategy: AsDecided) -> None:
        super().__init__(strategy)
        self._keys: list[Key] = []
        self._at = 0

    def turn_added(self, state: State, turn: Turn) -> None:
        self._keys.extend((turn.index, place) for place in range(1, len(turn.observations) + 1))

    def decide(self, state: State, situation: Situation, *, forced: bool = False) -> Plan:
        return Plan(reason="")

    def decided(self, state: State, event: Decided) -> None:
        newest = max((mask.key for mask in event.masks), default=(state.covered + 1, 0))
        while self._at < len(self._keys) and self._keys[self._at] <= newest:
            self._at += 1

    def frontier(self, state: State) -> int | None:
        return state.places.get(self._keys[self._at]) if self._at < len(self._keys) else None


@dataclass(slots=True)
class _Later:
    """What the log says of a call behind it, by call."""

    usage: dict[int, Usage] = field(default_factory=dict)
    recalled: dict[int, list[Recalled]] = field(default_factory=dict)
    learned: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Sequence[Event]) -> _Later:
        later = cls()
        for event in events:
            match event:
                case Answered():
                    later.usage[event.call] = event.usage
                case Recalled():
                    later.recalled.setdefault(event.call, []).append(event)
                case Learned():
                    later.learned[event.call] = event.window
                case _:
                    pass
        return later


def _settled(events: Sequence[Event]) -> Iterator[Event]:
    """The log with every turn as it is now, in the place where it first came."""
    last: Mapping[int, Turn] = {
        event.turn.index: event.turn for event in events if isinstance(event, TurnAdded | Amended)
    }
    for event in events:
        yield TurnAdded(last[event.turn.index], event.node) if isinstance(event, TurnAdded) else event


def _short(strategy: str) -> str:
    try:
        parsed = parse(strategy)
    except SpecError:
        return strategy
    rules = tuple(rule for rule in parsed.rules if rule.tool not in (RECALL_TOOL, SEARCH_TOOL))
    return describe(replace(parsed, rules=rules))
