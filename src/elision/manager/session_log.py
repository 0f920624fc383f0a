"""A stored session gone through once, call by call: what each pass hid, what it cost, and what followed.

The log says what was decided and when; tokens and dollars are worked out from it anew. No placeholder is written again:
what a later pass may rewrite is taken to begin behind what was hidden last, which spares nearly all of the time and
moves a bill by less than a per cent (`tests/cli/test_show.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from elision.engine import Session
from elision.errors import CorruptError, PriceError, SpecError
from elision.manager.branch import Branch, branch
from elision.manager.ledger import Ledger
from elision.manager.options import RECALL_TOOLS, SEARCH_TOOLS
from elision.manager.report import diagnostics
from elision.stores.store import NewSession, SessionInfo, Store
from elision.strategies.guards import Guards
from elision.strategies.policy import Policy
from elision.strategies.raw import Raw
from elision.strategies.session_costs import CallBills
from elision.strategies.situation import Situation
from elision.strategies.spec import describe, parse
from elision.telemetry.diagnostics import Diagnostics, Hidden
from elision.trajectory.events import (
    Amended,
    Answered,
    Attempted,
    Called,
    Decided,
    Event,
    Exchanged,
    HeadSet,
    Learned,
    Opened,
    Recalled,
    TurnAdded,
)
from elision.trajectory.plan import Key, Plan, Summary, handle
from elision.trajectory.price_lookup import find_price_set, find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Turn
from elision.trajectory.usage import Usage

#: Turns without progress that are worth a word where the settings name no number (docs/guides/guards.md).
PLATEAU = 5
#: Prices of a session that names no model, or an unknown one: as the context manager bills it.
USUAL = "anthropic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One request of a session.

    told:    what the live pass told, before the answer. at: when, in seconds since the epoch; None if unknown.
    bills:   of its prompt and of the one that would have held everything, by the answer's usage where it was reported.
    expected: the same as expected before the answer, which is what `told` has.
    prices:  of its model, which what the provider reported is billed at.
    usage:   as the provider reported it. failed: summaries that were not taken. recalled: read again behind it.
    summary: that it put in, and what of the newly covered turns' results stands behind it.
    head:    whether system prompt, tools or task changed before it. amended: whether the newest turn came again.
    learned: the window that the provider named when it refused this call, in tokens; 0 for none.
    exchanged: what was answered behind it without the client. offers: whether the recall tools entered with it.
    """

    told: Diagnostics
    at: float | None
    bills: CallBills
    expected: CallBills
    prices: Prices
    usage: Usage | None = None
    failed: tuple[Attempted, ...] = ()
    recalled: tuple[Recalled, ...] = ()
    summary: Summary | None = None
    covered: tuple[Hidden, ...] = ()
    head: bool = False
    amended: bool = False
    learned: int = 0
    exchanged: tuple[Exchanged, ...] = ()
    offers: bool = False

    @property
    def sent(self) -> int:
        """Tokens of its prompt, as the provider counts them."""
        return self.bills.ours.sent

    @property
    def raw(self) -> int:
        """Tokens of the prompt that would have held everything, as the provider counts them."""
        return self.bills.raw.sent

    @property
    def before(self) -> int:
        """Tokens of the prompt had this pass hidden nothing, as the provider counts them."""
        return self.told.before + self.sent - self.told.after


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A session from its first call to its last.

    model:    of most calls, "" if none is named. strategy: as it was begun with. priced: whether its own model's prices
              are known; else it is billed as `USUAL`.
    end:      the newest pass with everything that came behind it; None before the first call.
    shadow:   whether its requests go out as they came, whatever was decided.
    """

    info: SessionInfo
    model: str
    strategy: str
    prices: Prices
    priced: bool
    passes: tuple[Pass, ...]
    end: Diagnostics | None
    shadow: bool = False

    @property
    def sent(self) -> int:
        """Prompt tokens of all calls."""
        return sum(each.sent for each in self.passes)

    @property
    def raw(self) -> int:
        """What they would have been had nothing been hidden."""
        return sum(each.raw for each in self.passes)

    @property
    def failures(self) -> int:
        """Summaries that were asked for and not taken."""
        return sum(len(each.failed) for each in self.passes)


class Reading:
    """A session's log, gone through as far as it is known; what is new is gone through behind it, work O(new).

    prices: instead of the model's own. Every method raises CorruptError where the log is no session's.
    """

    def __init__(self, info: SessionInfo, sizer: Sizer, guards: Guards, prices: Prices | None = None) -> None:
        self.info = info
        self._sizer = sizer
        self._guards = guards
        self._given = prices
        self._asked: Counter[str] = Counter()
        self._opened: Opened | None = None
        self._going: Branch | None = None
        self._passes: list[Pass] = []
        #: Behind the newest call: what waits for the next one, what was seen, and whether the newest turn came again.
        self._waiting: list[Event] = []
        self._since: list[Event] = []
        self._amended = False
        #: Records gone through, and how many of them were turns that came again.
        self.records = 0
        self.amendments = 0

    @property
    def model(self) -> str:
        """That was asked most often."""
        return _most(self._asked)

    def takes(self, events: Sequence[Event]) -> bool:
        """Whether `events` only add to what was gone through; where not, the log must be read from its beginning: a
        turn came again, or another model sets the prices now."""
        if self._going is None:
            return True
        known = len(self._going.session.state.turns)
        again = any(isinstance(event, Amended) and event.turn.index <= known for event in events)
        return not again and (self._given is not None or _most(self._asked + _models(events)) == self.model)

    def read(self, events: Sequence[Event]) -> None:
        """Go through the records behind those that were gone through. Raises ValueError where `takes` says no."""
        for _ in self.steps(events):
            pass

    def steps(self, events: Sequence[Event]) -> Iterator[tuple[Pass | None, Branch]]:
        """The same pass by pass, each with the session as it stood behind it; at the end None, with what came after."""
        if not self.takes(events):
            raise ValueError(f"session {self.info.key!r}: what is new changes what was read; read it anew")
        try:
            yield from self._steps(events)
        except (ValueError, KeyError, IndexError) as error:
            raise CorruptError(f"session {self.info.key!r}: its log is no session's: {error}") from error

    def account(self, info: SessionInfo | None = None) -> Account:
        """All of it so far. info: what the store says of the session by now."""
        prices, priced = _rates(self._given, self.model)
        going = self._going
        return Account(
            info=info or self.info,
            model=self.model,
            strategy=_short(self._opened.strategy) if self._opened else "",
            prices=prices,
            priced=priced,
            passes=tuple(self._passes),
            end=self._told(going) if going is not None and going.session.newest is not None else None,
            shadow=going is not None and going.session.shadow,
        )

    def _steps(self, events: Sequence[Event]) -> Iterator[tuple[Pass | None, Branch]]:
        self._asked += _models(events)
        behind = _behind(events)
        self._late(next(behind))
        going = self._going = self._going or self._begun()
        for event in _settled(events):
            self._note(event)
            if isinstance(event, Called):
                made = self._pass(going, event, next(behind))
                self._passes.append(made)
                yield made, going
        self._catch_up(going)
        self.records += len(events)
        yield None, going

    def _note(self, event: Event) -> None:
        if isinstance(event, Amended):
            # The turn is in its place as it is now; what came of it is all there is to see here.
            self._amended = True
            self.amendments += 1
            return
        if isinstance(event, Opened) and self._opened is None:
            self._opened = event
        self._waiting.append(event)
        self._since.append(event)

    def _pass(self, going: Branch, called: Called, behind: _Behind) -> Pass:
        began = not going.session.state.calls
        going.session.take_up(self._waiting)
        self._bill_again(going.session.costs.previous)
        going.catch_up()
        newest = going.session.newest
        assert newest is not None
        told = self._told(going, called.model)
        summary = newest.decided.summary
        made = Pass(
            told=told,
            at=called.at,
            bills=going.session.costs.newest,
            expected=going.session.costs.newest,
            prices=self._of(called.model),
            usage=behind.usage(called.call),
            failed=tuple(event for event in self._since if isinstance(event, Attempted)),
            recalled=tuple(behind.recalled),
            summary=summary,
            covered=tuple(_covered(going.session.state, newest.covered, summary)) if summary else (),
            head=not began and any(isinstance(event, HeadSet) for event in self._since),
            amended=self._amended,
            learned=behind.learned,
            exchanged=tuple(behind.exchanged),
            offers=newest.decided.offers,
        )
        self._waiting = []
        self._since = []
        self._amended = False
        return made

    def _catch_up(self, going: Branch) -> None:
        """Fold what stands behind the newest call; half a pass waits for its other half."""
        half: list[Event] = [event for event in self._waiting if isinstance(event, Attempted | Decided)]
        going.session.take_up([event for event in self._waiting if not isinstance(event, Attempted | Decided)])
        self._bill_again(going.session.costs.newest)
        going.catch_up()
        self._waiting = half

    def _bill_again(self, bills: CallBills) -> None:
        """The newest pass has its bills as its answer's usage has them."""
        if self._passes:
            self._passes[-1] = replace(self._passes[-1], bills=bills)

    def _late(self, behind: _Behind) -> None:
        """What was said of the newest pass since it was gone through."""
        if self._passes:
            made = self._passes[-1]
            self._passes[-1] = replace(
                made,
                usage=behind.usage(made.told.call) or made.usage,
                recalled=(*made.recalled, *behind.recalled),
                learned=behind.learned or made.learned,
                exchanged=(*made.exchanged, *behind.exchanged),
            )

    def _told(self, going: Branch, model: str = "") -> Diagnostics:
        assert going.ledger is not None
        key = self.info.key
        return diagnostics(going, going.ledger, session=key, history="continue", model=model or self.model)

    def _begun(self) -> Branch:
        info, (prices, _) = self.info, _rates(self._given, self.model)
        new = NewSession(key=info.key, family=info.family, at=info.begun, parent=info.parent, relation=info.relation)
        begun = branch(new, Session(AsDecided(), prices, self._sizer), self._guards)
        begun.ledger = Ledger(prices, self._of)
        return begun

    def _of(self, model: str) -> Prices:
        return _rates(self._given, model or self.model)[0]


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
        reading = self._reading()
        reading.read(self.events)
        return reading.account()

    def passes(self) -> Iterator[tuple[Pass | None, Branch]]:
        """Every pass with the session as it stood behind it; at the end None, with everything that came after.

        Raises CorruptError.
        """
        return self._reading().steps(self.events)

    def _reading(self) -> Reading:
        return Reading(self.info, self.sizer, self.guards, self.prices)

    @property
    def opened(self) -> Opened | None:
        return next((event for event in self.events if isinstance(event, Opened)), None)

    @property
    def model(self) -> str:
        """That was asked most often."""
        return _most(_models(self.events))

    @property
    def strategy(self) -> str:
        """As the session was begun with, without the rules of the recall tools; "" if the log does not say."""
        if self.opened:
            return _short(self.opened.strategy)
        return ""


def log_of(store: Store, info: SessionInfo, sizer: Sizer, guards: Guards, prices: Prices | None = None) -> Log:
    """The log of a session. Raises StoreError, UnknownHandle."""
    return Log(info=info, events=list(store.events(info.key)), sizer=sizer, guards=guards, prices=prices)


def watchful(guards: Guards) -> Guards:
    """`guards`, and a look at whether a session stands still."""
    if guards.plateau_window is not None:
        return guards
    return replace(guards, plateau_window=PLATEAU)


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
        if self._at < len(self._keys):
            return state.places.get(self._keys[self._at])
        return None


@dataclass(slots=True)
class _Behind:
    """What the log says of a call behind it. call: which; 0 in front of the first."""

    call: int = 0
    answered: Answered | None = None
    recalled: list[Recalled] = field(default_factory=list)
    learned: int = 0
    exchanged: list[Exchanged] = field(default_factory=list)

    def usage(self, call: int) -> Usage | None:
        """Of that call. What is said late, of an earlier one, is none of it."""
        if self.answered is not None and self.answered.call == call:
            return self.answered.usage
        return None


def _behind(events: Iterable[Event]) -> Iterator[_Behind]:
    """What stands in front of the first call of `events`, and then behind each of them."""
    found = _Behind()
    for event in events:
        match event:
            case Called():
                yield found
                found = _Behind(call=event.call)
            case Answered() if found.call in (0, event.call):
                found.answered = event
            case Recalled():
                found.recalled.append(event)
            case Learned():
                found.learned = event.window
            case Exchanged():
                found.exchanged.append(event)
            case _:
                pass
    yield found


def _settled(events: Sequence[Event]) -> Iterator[Event]:
    """The log with every turn as it is now, in the place where it first came."""
    last = {event.turn.index: event.turn for event in events if isinstance(event, TurnAdded | Amended)}
    for event in events:
        yield TurnAdded(last[event.turn.index], event.node) if isinstance(event, TurnAdded) else event


def _models(events: Iterable[Event]) -> Counter[str]:
    return Counter(event.model for event in events if isinstance(event, Called) and event.model)


def _most(asked: Counter[str]) -> str:
    if asked:
        return asked.most_common(1)[0][0]
    return ""


def _rates(given: Prices | None, model: str) -> tuple[Prices, bool]:
    """The prices a session is billed at, and whether they are known to be its own."""
    if given is not None:
        return given, True
    try:
        if model:
            return (find_prices(model), True)
        return (find_price_set(USUAL), False)
    except PriceError:
        return find_price_set(USUAL), False


def _covered(state: State, before: int, summary: Summary) -> Iterator[Hidden]:
    """The results of the turns that `summary` newly covers, behind turn `before`."""
    for turn in state.turns[before : summary.covers]:
        for place, observation in enumerate(turn.observations, start=1):
            tokens = state.sizer.observation(observation)
            yield Hidden(handle=handle((turn.index, place)), tool=observation.tool, tokens=tokens, left=0)


def _short(strategy: str) -> str:
    try:
        parsed = parse(strategy)
    except SpecError:
        return strategy
    rules = tuple(rule for rule in parsed.rules if rule.tool not in RECALL_TOOLS | SEARCH_TOOLS)
    return describe(replace(parsed, rules=rules))
