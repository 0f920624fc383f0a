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
from elision.manager.branch import SessionBranch, make_branch
from elision.manager.call_diagnostics import build_diagnostics
from elision.manager.context_options import RECALL_TOOLS, SEARCH_TOOLS
from elision.manager.ledger import Ledger
from elision.stores.store import NewSession, SessionInfo, Store
from elision.strategies.decision_context import DecisionContext
from elision.strategies.guards import Guards
from elision.strategies.policy import Policy, PolicyOptions
from elision.strategies.raw import Raw
from elision.strategies.session_costs import CallBills
from elision.strategies.spec import describe_strategy, parse_strategy
from elision.telemetry.diagnostics import Diagnostics, Hidden
from elision.trajectory.events import (
    Event,
    HeadSet,
    ObservationRecalled,
    PassDecided,
    RecallExchanged,
    RequestSent,
    SessionOpened,
    SummaryFailed,
    TurnAdded,
    TurnAmended,
    UsageReported,
    WindowLearned,
)
from elision.trajectory.plan import Key, Plan, Summary, make_handle
from elision.trajectory.price_lookup import find_price_set, find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Turn
from elision.trajectory.usage import Usage

#: Turns without progress that are worth a word where the settings name no number (docs/guides/guards.md).
PLATEAU_TURNS = 5
#: Prices of a session that names no model, or an unknown one: as the context manager bills it.
DEFAULT_PRICES = "anthropic"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
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

    diagnostics: Diagnostics
    at: float | None
    bills: CallBills
    expected_bills: CallBills
    prices: Prices
    usage: Usage | None = None
    failed_summaries: tuple[SummaryFailed, ...] = ()
    recalled: tuple[ObservationRecalled, ...] = ()
    summary: Summary | None = None
    covered: tuple[Hidden, ...] = ()
    head_changed: bool = False
    amended: bool = False
    learned_window: int = 0
    exchanged: tuple[RecallExchanged, ...] = ()
    tools_entered: bool = False

    @property
    def sent_tokens(self) -> int:
        """Tokens of its prompt, as the provider counts them."""
        return self.bills.ours.prompt_tokens

    @property
    def raw_tokens(self) -> int:
        """Tokens of the prompt that would have held everything, as the provider counts them."""
        return self.bills.raw.prompt_tokens

    @property
    def tokens_before(self) -> int:
        """Tokens of the prompt had this pass hidden nothing, as the provider counts them."""
        return self.diagnostics.before + self.sent_tokens - self.diagnostics.after


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """A session from its first call to its last.

    model:    of most calls, "" if none is named. strategy: as it was begun with. priced: whether its own model's prices
              are known; else it is billed as `DEFAULT_PRICES`.
    end:      the newest pass with everything that came behind it; None before the first call.
    shadow:   whether its requests go out as they came, whatever was decided.
    """

    info: SessionInfo
    model: str
    strategy: str
    prices: Prices
    has_own_prices: bool
    calls: tuple[CallReport, ...]
    final: Diagnostics | None
    shadow: bool = False

    @property
    def sent_tokens(self) -> int:
        """Prompt tokens of all calls."""
        return sum(each.sent_tokens for each in self.calls)

    @property
    def raw_tokens(self) -> int:
        """What they would have been had nothing been hidden."""
        return sum(each.raw_tokens for each in self.calls)

    @property
    def failed_summary_count(self) -> int:
        """Summaries that were asked for and not taken."""
        return sum(len(each.failed_summaries) for each in self.calls)


class LogReader:
    """A session's log, gone through as far as it is known; what is new is gone through behind it, work O(new).

    prices: instead of the model's own. Every method raises CorruptError where the log is no session's.
    """

    def __init__(self, info: SessionInfo, sizer: Sizer, guards: Guards, prices: Prices | None = None) -> None:
        self.info = info
        self._sizer = sizer
        self._guards = guards
        self._fixed_prices = prices
        self._models: Counter[str] = Counter()
        self._opened: SessionOpened | None = None
        self._branch: SessionBranch | None = None
        self._calls: list[CallReport] = []
        #: Behind the newest call: what waits for the next one, what was seen, and whether the newest turn came again.
        self._waiting: list[Event] = []
        self._since_call: list[Event] = []
        self._is_amended = False
        #: Records gone through, and how many of them were turns that came again.
        self.records = 0
        self.amendments = 0

    @property
    def model(self) -> str:
        """That was asked most often."""
        return _pick_most_common(self._models)

    def can_continue_with(self, events: Sequence[Event]) -> bool:
        """Whether `events` only add to what was gone through; where not, the log must be read from its beginning: a
        turn came again, or another model sets the prices now."""
        if self._branch is None:
            return True
        known = len(self._branch.session.state.turns)
        again = any(isinstance(event, TurnAmended) and event.turn.index <= known for event in events)
        return not again and (
            self._fixed_prices is not None or _pick_most_common(self._models + _count_models(events)) == self.model
        )

    def read_events(self, events: Sequence[Event]) -> None:
        """Read `events`, which follow the ones read before.

        Raises ValueError unless `can_continue_with(events)`, CorruptError.
        """
        for _ in self.iterate_calls(events):
            pass

    def iterate_calls(self, events: Sequence[Event]) -> Iterator[tuple[CallReport | None, SessionBranch]]:
        """The same pass by pass, each with the session as it stood behind it; at the end None, with what came after."""
        if not self.can_continue_with(events):
            raise ValueError(f"session {self.info.key!r}: what is new changes what was read; read it anew")
        try:
            yield from self._iterate_calls(events)
        except (ValueError, KeyError, IndexError) as error:
            raise CorruptError(f"session {self.info.key!r}: its log is no session's: {error}") from error

    def build_report(self, info: SessionInfo | None = None) -> SessionReport:
        """All of it so far. info: what the store says of the session by now."""
        prices, priced = _find_session_prices(self._fixed_prices, self.model)
        going = self._branch
        return SessionReport(
            info=info or self.info,
            model=self.model,
            strategy=_shorten_strategy(self._opened.strategy) if self._opened else "",
            prices=prices,
            has_own_prices=priced,
            calls=tuple(self._calls),
            final=self._build_diagnostics(going)
            if going is not None and going.session.newest_call is not None
            else None,
            shadow=going is not None and going.session.shadow,
        )

    def _iterate_calls(self, events: Sequence[Event]) -> Iterator[tuple[CallReport | None, SessionBranch]]:
        self._models += _count_models(events)
        behind = _collect_notes(events)
        self._add_late_notes(next(behind))
        going = self._branch = self._branch or self._begin_branch()
        for event in _apply_amendments(events):
            self._note_event(event)
            if isinstance(event, RequestSent):
                made = self._report_call(going, event, next(behind))
                self._calls.append(made)
                yield made, going
        self._fold_waiting(going)
        self.records += len(events)
        yield None, going

    def _note_event(self, event: Event) -> None:
        if isinstance(event, TurnAmended):
            # The turn is in its place as it is now; what came of it is all there is to see here.
            self._is_amended = True
            self.amendments += 1
            return
        if isinstance(event, SessionOpened) and self._opened is None:
            self._opened = event
        self._waiting.append(event)
        self._since_call.append(event)

    def _report_call(self, going: SessionBranch, called: RequestSent, behind: _CallNotes) -> CallReport:
        began = not going.session.state.calls
        going.session.replay_events(self._waiting)
        self._rebill_newest(going.session.costs.previous)
        going.count_new_turns()
        newest = going.session.newest_call
        assert newest is not None
        told = self._build_diagnostics(going, called.model)
        summary = newest.decided.summary
        made = CallReport(
            diagnostics=told,
            at=called.at,
            bills=going.session.costs.newest,
            expected_bills=going.session.costs.newest,
            prices=self._find_prices(called.model),
            usage=behind.usage(called.call),
            failed_summaries=tuple(event for event in self._since_call if isinstance(event, SummaryFailed)),
            recalled=tuple(behind.recalled),
            summary=summary,
            covered=tuple(_list_covered(going.session.state, newest.covered_before, summary)) if summary else (),
            head_changed=not began and any(isinstance(event, HeadSet) for event in self._since_call),
            amended=self._is_amended,
            learned_window=behind.learned,
            exchanged=tuple(behind.exchanged),
            tools_entered=newest.decided.offers,
        )
        self._waiting = []
        self._since_call = []
        self._is_amended = False
        return made

    def _fold_waiting(self, going: SessionBranch) -> None:
        """Fold what stands behind the newest call; half a pass waits for its other half."""
        half: list[Event] = [event for event in self._waiting if isinstance(event, SummaryFailed | PassDecided)]
        going.session.replay_events(
            [event for event in self._waiting if not isinstance(event, SummaryFailed | PassDecided)]
        )
        self._rebill_newest(going.session.costs.newest)
        going.count_new_turns()
        self._waiting = half

    def _rebill_newest(self, bills: CallBills) -> None:
        """The newest pass has its bills as its answer's usage has them."""
        if self._calls:
            self._calls[-1] = replace(self._calls[-1], bills=bills)

    def _add_late_notes(self, behind: _CallNotes) -> None:
        """What was said of the newest pass since it was gone through."""
        if self._calls:
            made = self._calls[-1]
            self._calls[-1] = replace(
                made,
                usage=behind.usage(made.diagnostics.call) or made.usage,
                recalled=(*made.recalled, *behind.recalled),
                learned_window=behind.learned or made.learned_window,
                exchanged=(*made.exchanged, *behind.exchanged),
            )

    def _build_diagnostics(self, going: SessionBranch, model: str = "") -> Diagnostics:
        assert going.ledger is not None
        key = self.info.key
        return build_diagnostics(going, going.ledger, session=key, history="continue", model=model or self.model)

    def _begin_branch(self) -> SessionBranch:
        info, (prices, _) = self.info, _find_session_prices(self._fixed_prices, self.model)
        new = NewSession(key=info.key, family=info.family, at=info.begun, parent=info.parent, relation=info.relation)
        begun = make_branch(new, Session(RecordedDecisions(), prices, self._sizer), self._guards)
        begun.ledger = Ledger(prices, self._find_prices)
        return begun

    def _find_prices(self, model: str) -> Prices:
        return _find_session_prices(self._fixed_prices, model or self.model)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLog:
    """The events of a session, and how they are gone through.

    prices: instead of the model's own.
    """

    info: SessionInfo
    events: Sequence[Event]
    sizer: Sizer
    guards: Guards
    prices: Prices | None = None

    def build_report(self) -> SessionReport:
        """Raises CorruptError where the log is no session's."""
        reading = self._make_reader()
        reading.read_events(self.events)
        return reading.build_report()

    def iterate_calls(self) -> Iterator[tuple[CallReport | None, SessionBranch]]:
        """Every pass with the session as it stood behind it; at the end None, with everything that came after.

        Raises CorruptError.
        """
        return self._make_reader().iterate_calls(self.events)

    def _make_reader(self) -> LogReader:
        return LogReader(self.info, self.sizer, self.guards, self.prices)

    @property
    def opened(self) -> SessionOpened | None:
        return next((event for event in self.events if isinstance(event, SessionOpened)), None)

    @property
    def model(self) -> str:
        """That was asked most often."""
        return _pick_most_common(_count_models(self.events))

    @property
    def strategy(self) -> str:
        """As the session was begun with, without the rules of the recall tools; "" if the log does not say."""
        if self.opened:
            return _shorten_strategy(self.opened.strategy)
        return ""


def load_session_log(
    store: Store, info: SessionInfo, sizer: Sizer, guards: Guards, prices: Prices | None = None
) -> SessionLog:
    """The log of a session. Raises StoreError, UnknownHandle."""
    return SessionLog(info=info, events=list(store.events(info.key)), sizer=sizer, guards=guards, prices=prices)


def add_plateau_guard(guards: Guards) -> Guards:
    """`guards`, and a look at whether a session stands still."""
    if guards.plateau_window is not None:
        return guards
    return replace(guards, plateau_window=PLATEAU_TURNS)


# -- reading ----------------------------------------------------------------------------------------------------------


class RecordedDecisions(Raw):
    """Decides nothing: what was decided is in the log."""

    can_hide: ClassVar[bool] = False

    def start_policy(self) -> Policy:
        return _RecordedPolicy(self.make_policy_options())


class _RecordedPolicy(Policy):
    """Knows where the stable front of a view ends: behind what was hidden last."""

    def __init__(self, options: PolicyOptions) -> None:
        super().__init__(options)
        self._keys: list[Key] = []
        self._at = 0

    def add_turn(self, state: State, turn: Turn) -> None:
        self._keys.extend((turn.index, place) for place in range(1, len(turn.observations) + 1))

    def plan_pass(self, state: State, situation: DecisionContext, *, forced: bool = False) -> Plan:
        return Plan(reason="")

    def record_decision(self, state: State, event: PassDecided) -> None:
        newest = max((mask.key for mask in event.masks), default=(state.covered_turns + 1, 0))
        while self._at < len(self._keys) and self._keys[self._at] <= newest:
            self._at += 1

    def find_stable_length(self, state: State) -> int | None:
        if self._at < len(self._keys):
            return state.observation_places.get(self._keys[self._at])
        return None


@dataclass(slots=True)
class _CallNotes:
    """What the log says of a call behind it. call: which; 0 in front of the first."""

    call: int = 0
    answered: UsageReported | None = None
    recalled: list[ObservationRecalled] = field(default_factory=list)
    learned: int = 0
    exchanged: list[RecallExchanged] = field(default_factory=list)

    def usage(self, call: int) -> Usage | None:
        """Of that call. What is said late, of an earlier one, is none of it."""
        if self.answered is not None and self.answered.call == call:
            return self.answered.usage
        return None


def _collect_notes(events: Iterable[Event]) -> Iterator[_CallNotes]:
    """What stands in front of the first call of `events`, and then behind each of them."""
    found = _CallNotes()
    for event in events:
        match event:
            case RequestSent():
                yield found
                found = _CallNotes(call=event.call)
            case UsageReported() if found.call in (0, event.call):
                found.answered = event
            case ObservationRecalled():
                found.recalled.append(event)
            case WindowLearned():
                found.learned = event.window
            case RecallExchanged():
                found.exchanged.append(event)
            case _:
                pass
    yield found


def _apply_amendments(events: Sequence[Event]) -> Iterator[Event]:
    """The log with every turn as it is now, in the place where it first came."""
    last = {event.turn.index: event.turn for event in events if isinstance(event, TurnAdded | TurnAmended)}
    for event in events:
        yield TurnAdded(last[event.turn.index], event.node) if isinstance(event, TurnAdded) else event


def _count_models(events: Iterable[Event]) -> Counter[str]:
    return Counter(event.model for event in events if isinstance(event, RequestSent) and event.model)


def _pick_most_common(asked: Counter[str]) -> str:
    if asked:
        return asked.most_common(1)[0][0]
    return ""


def _find_session_prices(given: Prices | None, model: str) -> tuple[Prices, bool]:
    """The prices a session is billed at, and whether they are known to be its own."""
    if given is not None:
        return given, True
    try:
        if model:
            return (find_prices(model), True)
        return (find_price_set(DEFAULT_PRICES), False)
    except PriceError:
        return find_price_set(DEFAULT_PRICES), False


def _list_covered(state: State, before: int, summary: Summary) -> Iterator[Hidden]:
    """The results of the turns that `summary` newly covers, behind turn `before`."""
    for turn in state.turns[before : summary.covers]:
        for place, observation in enumerate(turn.observations, start=1):
            tokens = state.sizer.count_observation(observation)
            yield Hidden(handle=make_handle((turn.index, place)), tool=observation.tool, tokens=tokens, left=0)


def _shorten_strategy(strategy: str) -> str:
    try:
        parsed = parse_strategy(strategy)
    except SpecError:
        return strategy
    rules = tuple(rule for rule in parsed.rules if rule.tool not in RECALL_TOOLS | SEARCH_TOOLS)
    return describe_strategy(replace(parsed, rules=rules))
