"""A stored session, read once, call by call: what each call hid, what it cost, and what followed.

The log has what was decided and when; tokens and dollars are computed from it. Placeholders are not written again: a
later call is taken to rewrite only what comes after the newest hidden result. That saves nearly all of the time, and
changes a bill by less than a per cent (`tests/cli/test_show.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from elision.engine import Log, LogSetup
from elision.engine.money import CallBills
from elision.errors import CorruptError, PriceError, SpecError
from elision.manager.branch import SessionBranch, make_branch
from elision.manager.call_diagnostics import CallFacts, build_context_report, build_diagnostics
from elision.manager.context_options import describe_without_recall_rules
from elision.manager.ledger import Ledger, SessionSummary, make_entry
from elision.stores.store import NewSession, SessionInfo, Store
from elision.strategies.decision_context import DecisionContext
from elision.strategies.guards import Guards
from elision.strategies.placeholder import Placeholders
from elision.strategies.policy import Policy, PolicyOptions
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Raw
from elision.telemetry.context_report import ContextReport
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
from elision.trajectory.price_lookup import count_for_model, find_price_set, find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.run_roles import Role
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer
from elision.trajectory.turn import Head, Turn
from elision.trajectory.usage import Usage

#: Turns without progress that are reported where the settings name no number (docs/guides/choosing.md).
PLATEAU_TURNS = 5
#: Prices of a session whose model is unknown or not named. The context manager uses the same.
DEFAULT_PRICES = "anthropic"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReport:
    """One call of a session.

    diagnostics:      as when the call was prepared. at: its time, in seconds since the epoch; None if unknown.
    bills:            of its prompt, and of a prompt with everything, by the reported usage where there is one.
    expected_bills:   the same as estimated before the answer, as `diagnostics` has them.
    prices:           of its model; what the provider reported is billed at them.
    usage:            as the provider reported it.
    failed_summaries: summaries that were requested and not taken.
    recalled:         what was read again after the call.
    summary:          the summary that it added. covered: the results that the summary newly covers.
    head_changed:     whether system prompt, tools or task changed before it.
    amended:          whether the newest turn came again with another ending.
    learned_window:   the window, in tokens, that the provider named when it refused the call; 0 for none.
    exchanged:        what was answered after it without the client.
    tools_entered:    whether the recall tools were added with it. held: whether nothing was decided, because the store
                      failed.
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
    held: bool = False

    @property
    def sent_tokens(self) -> int:
        """Tokens of the prompt, as the provider counts them."""
        return self.bills.ours.prompt_tokens

    @property
    def raw_tokens(self) -> int:
        """Tokens of a prompt with everything, as the provider counts them."""
        return self.bills.raw.prompt_tokens

    @property
    def tokens_before(self) -> int:
        """Tokens of the prompt had this call hidden nothing, as the provider counts them."""
        return self.diagnostics.before + self.sent_tokens - self.diagnostics.after


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReport:
    """A session from its first call to its last.

    model:          of most calls; "" if none is named. strategy: the one it began with.
    has_own_prices: whether its own model's prices are known. Otherwise it is billed as `DEFAULT_PRICES`.
    final:          diagnostics of the newest call with everything that came after it; None before the first call.
    shadow:         whether its requests were sent unchanged, whatever was decided.
    role:           of the agent whose session it is.
    head, turns:    as they are by now. dialect: of its messages; "" if turns were added by hand.
    context:        phases, summaries, savings, as `ContextManager.report` has them; None before the first event.
    """

    info: SessionInfo
    model: str
    strategy: str
    prices: Prices
    has_own_prices: bool
    calls: tuple[CallReport, ...]
    final: Diagnostics | None
    shadow: bool = False
    role: Role = "main"
    head: Head = field(default_factory=Head)
    dialect: str = ""
    turns: tuple[Turn, ...] = ()
    context: ContextReport | None = None

    @property
    def sent_tokens(self) -> int:
        """Prompt tokens of all calls."""
        return sum(each.sent_tokens for each in self.calls)

    @property
    def raw_tokens(self) -> int:
        """Prompt tokens of all calls had nothing been hidden."""
        return sum(each.raw_tokens for each in self.calls)

    @property
    def summaries(self) -> list[SessionSummary]:
        """The summaries that entered, oldest first."""
        found = []
        for call in self.calls:
            made = call.diagnostics.summarized
            if call.summary is not None and made is not None:
                found.append(make_entry(call.summary, made.first, call.diagnostics.call, made.left, made.usd))
        return found

    @property
    def failed_summary_count(self) -> int:
        """Number of summaries that were requested and not taken."""
        return sum(len(each.failed_summaries) for each in self.calls)


class LogReader:
    """Reads a session's log as it grows; work O(new events).

    prices: used instead of the model's own. Methods that read raise CorruptError where the log is no session's.
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
        #: Events after the newest call that are not applied to the session yet.
        self._waiting: list[Event] = []
        #: All events after the newest call, and whether the newest turn came again among them.
        self._since_call: list[Event] = []
        self._is_amended = False
        #: Records that were read, and how many of them were turns that came again.
        self.records = 0
        self.amendments = 0

    @property
    def model(self) -> str:
        """The model of most calls; "" if none is named."""
        return _pick_most_common(self._models)

    def can_continue_with(self, events: Sequence[Event]) -> bool:
        """Return whether `events` only add to what was read.

        If not, the log must be read from its beginning: a turn came again, or another model sets the prices now.
        """
        if self._branch is None:
            return True
        known = len(self._branch.log.state.turns)
        for event in events:
            if isinstance(event, TurnAmended) and event.turn.index <= known:
                return False
        if self._fixed_prices is not None:
            return True
        return _pick_most_common(self._models + _count_models(events)) == self.model

    def read_events(self, events: Sequence[Event]) -> None:
        """Read `events`, which follow the ones read before.

        Raises ValueError unless `can_continue_with(events)`, CorruptError.
        """
        for _ in self.iterate_calls(events):
            pass

    def iterate_calls(self, events: Sequence[Event]) -> Iterator[tuple[CallReport | None, SessionBranch]]:
        """Read `events`, and yield each call with the session after it; at the end None, with the session after all.

        Raises ValueError unless `can_continue_with(events)`, CorruptError.
        """
        if not self.can_continue_with(events):
            raise ValueError(f"session {self.info.key!r}: new records change what was read; read it again")
        try:
            yield from self._iterate_calls(events)
        except (ValueError, KeyError, IndexError) as error:
            raise CorruptError(f"session {self.info.key!r}: its log is not a session's: {error}") from error

    def build_report(self, info: SessionInfo | None = None) -> SessionReport:
        """Return the report of what was read. info: what the store has about the session now."""
        prices, has_own_prices = _find_session_prices(self._fixed_prices, self.model)
        branch = self._branch
        final = None
        context = None
        strategy = shorten_strategy(self._opened.strategy) if self._opened else ""
        if branch is not None:
            assert branch.ledger is not None
            context = build_context_report(
                branch, branch.ledger, session=self.info.key, model=self.model, strategy=strategy
            )
            if branch.log.newest_call is not None:
                final = self._build_diagnostics(branch)
        return SessionReport(
            info=info or self.info,
            model=self.model,
            strategy=strategy,
            prices=prices,
            has_own_prices=has_own_prices,
            calls=tuple(self._calls),
            final=final,
            shadow=branch is not None and branch.log.state.shadow,
            role=branch.find_role() if branch is not None else "main",
            head=branch.log.state.head if branch is not None else Head(),
            dialect=self._opened.dialect if self._opened else "",
            turns=tuple(branch.log.state.turns) if branch is not None else (),
            context=context,
        )

    def _iterate_calls(self, events: Sequence[Event]) -> Iterator[tuple[CallReport | None, SessionBranch]]:
        self._models += _count_models(events)
        notes = _collect_notes(events)
        self._add_late_notes(next(notes))
        branch = self._branch or self._begin_branch()
        self._branch = branch
        for event in _apply_amendments(events):
            self._note_event(event)
            if isinstance(event, RequestSent):
                call = self._report_call(branch, event, next(notes))
                self._calls.append(call)
                yield call, branch
        self._fold_waiting(branch)
        self.records += len(events)
        yield None, branch

    def _note_event(self, event: Event) -> None:
        if isinstance(event, TurnAmended):
            # `_apply_amendments` has put the amended turn in the place of the first.
            self._is_amended = True
            self.amendments += 1
            return
        if isinstance(event, SessionOpened) and self._opened is None:
            self._opened = event
        self._waiting.append(event)
        self._since_call.append(event)

    def _report_call(self, branch: SessionBranch, sent: RequestSent, notes: _CallNotes) -> CallReport:
        """Apply the waiting events, of which `sent` is the last, and return the report of their call."""
        session = branch.log
        is_first = not session.state.calls
        session.extend(self._waiting)
        self._rebill_newest(session.money.previous)
        newest = session.newest_call
        assert newest is not None
        summary = newest.decided.summary
        covered: tuple[Hidden, ...] = ()
        if summary:
            covered = tuple(_list_covered(session, newest.covered_before, summary))
        call = CallReport(
            diagnostics=self._build_diagnostics(branch, sent.model),
            at=sent.at,
            bills=session.money.newest,
            expected_bills=session.money.newest,
            prices=self._find_prices(sent.model),
            usage=notes.find_usage_of(sent.call),
            failed_summaries=tuple(event for event in self._since_call if isinstance(event, SummaryFailed)),
            recalled=tuple(notes.recalled),
            summary=summary,
            covered=covered,
            head_changed=not is_first and any(isinstance(event, HeadSet) for event in self._since_call),
            amended=self._is_amended,
            learned_window=notes.learned_window,
            exchanged=tuple(notes.exchanged),
            tools_entered=newest.decided.offers,
            held=newest.decided.held,
        )
        self._waiting = []
        self._since_call = []
        self._is_amended = False
        return call

    def _fold_waiting(self, branch: SessionBranch) -> None:
        """Apply the events after the newest call. A decision waits for the request that it belongs to."""
        complete: list[Event] = []
        unfinished: list[Event] = []
        for event in self._waiting:
            if isinstance(event, SummaryFailed | PassDecided):
                unfinished.append(event)
            else:
                complete.append(event)
        branch.log.extend(complete)
        self._rebill_newest(branch.log.money.newest)
        self._waiting = unfinished

    def _rebill_newest(self, bills: CallBills) -> None:
        """Replace the bills of the newest call, whose usage was reported."""
        if self._calls:
            self._calls[-1] = replace(self._calls[-1], bills=bills)

    def _add_late_notes(self, notes: _CallNotes) -> None:
        """Add to the newest call what the log has about it since it was read."""
        if self._calls:
            call = self._calls[-1]
            self._calls[-1] = replace(
                call,
                usage=notes.find_usage_of(call.diagnostics.call) or call.usage,
                recalled=(*call.recalled, *notes.recalled),
                learned_window=notes.learned_window or call.learned_window,
                exchanged=(*call.exchanged, *notes.exchanged),
            )

    def _build_diagnostics(self, branch: SessionBranch, model: str = "") -> Diagnostics:
        assert branch.ledger is not None
        facts = CallFacts(session=self.info.key, history="continue", model=model or self.model)
        return build_diagnostics(branch, branch.ledger, facts)

    def _begin_branch(self) -> SessionBranch:
        info = self.info
        prices, _ = _find_session_prices(self._fixed_prices, self.model)
        new = NewSession(key=info.key, family=info.family, at=info.begun, parent=info.parent, relation=info.relation)
        branch = make_branch(new, Log.fold((), LogSetup(RecordedDecisions(), prices, self._sizer)), self._guards)
        branch.ledger = Ledger(prices, self._find_prices)
        return branch

    def _find_prices(self, model: str) -> Prices:
        return _find_session_prices(self._fixed_prices, model or self.model)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLog:
    """The events of a session, with what is needed to read them. prices: used instead of the model's own."""

    info: SessionInfo
    events: Sequence[Event]
    sizer: Sizer
    guards: Guards
    prices: Prices | None = None

    def build_report(self) -> SessionReport:
        """Return the report of the whole session. Raises CorruptError where the log is no session's."""
        reader = self._make_reader()
        reader.read_events(self.events)
        return reader.build_report()

    def iterate_calls(self) -> Iterator[tuple[CallReport | None, SessionBranch]]:
        """Yield each call with the session after it; at the end None, with the session after all events.

        Raises CorruptError.
        """
        return self._make_reader().iterate_calls(self.events)

    def _make_reader(self) -> LogReader:
        return LogReader(self.info, self.sizer, self.guards, self.prices)

    @property
    def opened(self) -> SessionOpened | None:
        """The event that began the log; None if the log has none."""
        for event in self.events:
            if isinstance(event, SessionOpened):
                return event
        return None

    @property
    def model(self) -> str:
        """The model of most calls; "" if none is named."""
        return _pick_most_common(_count_models(self.events))

    @property
    def strategy(self) -> str:
        """The strategy that the session began with, without the rules of the recall tools; "" if the log has none."""
        if self.opened:
            return shorten_strategy(self.opened.strategy)
        return ""


def load_session_log(
    store: Store, info: SessionInfo, sizer: Sizer, guards: Guards, prices: Prices | None = None
) -> SessionLog:
    """Return the log of a session. Raises StoreError, UnknownHandle."""
    return SessionLog(info=info, events=list(store.events(info.key)), sizer=sizer, guards=guards, prices=prices)


def add_plateau_guard(guards: Guards) -> Guards:
    """Return `guards` with a check for sessions without progress, unless they have one."""
    if guards.plateau_window is not None:
        return guards
    return replace(guards, plateau_window=PLATEAU_TURNS)


# -- reading ----------------------------------------------------------------------------------------------------------


class RecordedDecisions(Raw):
    """A strategy that decides nothing: the log has the decisions."""

    can_hide: ClassVar[bool] = False

    def start_policy(self, placeholders: Placeholders | None = None) -> Policy:
        return _RecordedPolicy(self.make_policy_options())


class _RecordedPolicy(Policy):
    """Tracks where the stable beginning of a view ends: after what was hidden last."""

    def __init__(self, options: PolicyOptions) -> None:
        super().__init__(options)
        self.learns = True
        self._keys: list[Key] = []
        #: Number of `_keys` up to the newest that was hidden.
        self._stable_keys = 0

    def add_turn(self, state: State, turn: Turn) -> None:
        self._keys.extend((turn.index, place) for place in range(1, len(turn.observations) + 1))

    def plan_pass(self, state: State, context: DecisionContext, *, forced: bool = False) -> Plan:
        return Plan(reason="")

    def record_decision(self, state: State, event: PassDecided) -> None:
        newest = max((mask.key for mask in event.masks), default=(state.covered_turns + 1, 0))
        while self._stable_keys < len(self._keys) and self._keys[self._stable_keys] <= newest:
            self._stable_keys += 1

    def find_stable_length(self, state: State) -> int | None:
        if self._stable_keys < len(self._keys):
            return state.observation_places.get(self._keys[self._stable_keys])
        return None


@dataclass(slots=True)
class _CallNotes:
    """What a log has about a call after it. call: its number; 0 before the first."""

    call: int = 0
    answered: UsageReported | None = None
    recalled: list[ObservationRecalled] = field(default_factory=list)
    learned_window: int = 0
    exchanged: list[RecallExchanged] = field(default_factory=list)

    def find_usage_of(self, call: int) -> Usage | None:
        """Return the usage of `call`; None where an earlier call's was reported late."""
        if self.answered is not None and self.answered.call == call:
            return self.answered.usage
        return None


def _collect_notes(events: Iterable[Event]) -> Iterator[_CallNotes]:
    """Yield the notes before the first call of `events`, then those after each call."""
    notes = _CallNotes()
    for event in events:
        match event:
            case RequestSent():
                yield notes
                notes = _CallNotes(call=event.call)
            case UsageReported() if notes.call in (0, event.call):
                notes.answered = event
            case ObservationRecalled():
                notes.recalled.append(event)
            case WindowLearned():
                notes.learned_window = event.window
            case RecallExchanged():
                notes.exchanged.append(event)
            case _:
                pass
    yield notes


def _apply_amendments(events: Sequence[Event]) -> Iterator[Event]:
    """Yield the log with the newest form of every turn, in the place where the turn first came."""
    newest = {event.turn.index: event.turn for event in events if isinstance(event, TurnAdded | TurnAmended)}
    for event in events:
        if isinstance(event, TurnAdded):
            yield TurnAdded(newest[event.turn.index], event.node)
        else:
            yield event


def _count_models(events: Iterable[Event]) -> Counter[str]:
    return Counter(event.model for event in events if isinstance(event, RequestSent) and event.model)


def _pick_most_common(models: Counter[str]) -> str:
    if not models:
        return ""
    return models.most_common(1)[0][0]


def _find_session_prices(fixed: Prices | None, model: str) -> tuple[Prices, bool]:
    """Return the prices that a session is billed at, and whether they are known to be its own."""
    if fixed is not None:
        return count_for_model(fixed, model), True
    if model:
        try:
            return find_prices(model), True
        except PriceError:
            pass
    return count_for_model(find_price_set(DEFAULT_PRICES), model), False


def _list_covered(log: Log, before: int, summary: Summary) -> Iterator[Hidden]:
    """Yield the results of the turns that `summary` newly covers, those after turn `before`."""
    for turn in log.state.turns[before : summary.covers]:
        for place, observation in enumerate(turn.observations, start=1):
            tokens = log.reports.scale.convert_part(log.sizer.count_observation(observation))
            yield Hidden(handle=make_handle((turn.index, place)), tool=observation.tool, tokens=tokens, left=0)


def shorten_strategy(strategy: str) -> str:
    """Return a strategy's text without the rules of the recall tools; unchanged where it does not parse."""
    try:
        parsed = parse_strategy(strategy)
    except SpecError:
        return strategy
    return describe_without_recall_rules(parsed)
