"""The log of one agent run: its events, and everything that follows from them.

`Log.fold` is the only way to make one. What is appended live goes through the same code as what is read again, so the
log of a session is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from elision.engine.money import CallResult, Money, bill_summary_call
from elision.engine.terms import CallTerms, ProviderReports, mark_view, read_terms, writes_for_an_hour
from elision.errors import BudgetError, SpecError
from elision.strategies.decision_context import DecisionContext, apply_learned_window
from elision.strategies.extractors.registry import BUILT_IN, Extractors
from elision.strategies.mask_candidates import PlaceholderTexts
from elision.strategies.strategy import Strategy
from elision.summarizers.summary_acceptance import MODEL_FREE, CircuitBreaker
from elision.trajectory.events import (
    Event,
    HeadSet,
    PassDecided,
    RequestSent,
    SummaryFailed,
    TurnAdded,
    TurnAmended,
    TurnsDropped,
    UsageReported,
    WindowLearned,
)
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Head, Message, Turn
from elision.trajectory.usage import Usage
from elision.trajectory.view import View


@dataclass(frozen=True, slots=True)
class LogSetup:
    """Under what a log is folded.

    prices: at which the run is billed. sizer: counts tokens, exact o200k if None; the log counts on the scale of the
    prices. extractors: describe observations in placeholders; the strategy's own if they are the built-in ones.
    redaction: which secrets are kept out of summaries, placeholders and reasons. texts: the placeholders of other logs
    with the same turns, see `MaskCandidates.share_texts`.
    """

    strategy: Strategy
    prices: Prices
    sizer: Sizer | None = None
    extractors: Extractors = BUILT_IN
    redaction: Redaction = DEFAULT
    texts: PlaceholderTexts | None = None


@dataclass(frozen=True, slots=True)
class ClientTrims:
    """What the client's own trimming costs: calls in which it dropped turns, and what it made new to the cache.

    tokens: that it kept, and that had to be written to the cache again. usd: what that costs more than reading them.
    """

    calls: int = 0
    tokens: int = 0
    usd: float = 0.0


class Log:
    """One agent run under one strategy. Read its attributes freely; only its methods change them.

    state:  what was added and decided. policy: the strategy's memory of it.
    view_limit: tokens that a view may have, by the provider's count; None for no limit.
    """

    def __init__(self, setup: LogSetup) -> None:
        """Make an empty log. Others call `fold`."""
        self.setup = setup
        strategy = setup.strategy
        self.view_limit = strategy.limit_view(setup.prices)
        if self.view_limit is not None:
            # The user's words that are kept must not break the budget.
            strategy = replace(strategy, keep_user_tokens=min(strategy.keep_user_tokens, self.view_limit // 4))
        self.strategy = strategy
        self.prices = setup.prices
        self.sizer = (setup.sizer or Sizer(make_counter())).count_as(self.prices.tokenizer)
        placeholders = strategy.placeholders
        extractors = placeholders.extractors if setup.extractors is BUILT_IN else setup.extractors
        self.policy = strategy.start_policy(replace(placeholders, extractors=extractors, redaction=setup.redaction))
        if setup.texts is not None:
            self.policy.candidates.share_texts(setup.texts)
        self.events: list[Event] = []
        self.state = State(self.sizer)
        self.reports = ProviderReports()
        self._money = Money(self.prices, self.reports.scale, self.sizer)
        self.breaker = CircuitBreaker()
        self.newest_call: CallResult | None = None
        self.client_trims = ClientTrims()
        #: The model whose way of counting is expected.
        self._expected_model = ""
        #: Tokens of the answer to the newest call, as the provider reported them; 0 before that.
        self._reported_output = 0
        #: Records of a pass whose request is not in the log yet.
        self._open_pass: list[SummaryFailed | PassDecided] = []

    @property
    def money(self) -> Money:
        """What the run cost and would have cost."""
        self._money.settle()
        return self._money

    @classmethod
    def fold(cls, events: Iterable[Event], setup: LogSetup) -> Log:
        """Return the log that has `events`. Decisions are adopted as they were made."""
        return cls(setup).extend(events)

    # -- what happened -------------------------------------------------------------------------------------------

    def extend(self, events: Iterable[Event]) -> Log:
        """Return the log with `events`, which were recorded elsewhere, after its own.

        It is this log unless a turn that it has came again with another result. What was learned from the old turn has
        to be learned again then, so the whole log is folded anew.
        """
        events = list(events)
        if not _only_add(events, self.state.turns):
            return Log.fold([*self.events, *events], self.setup)
        chosen, reworded = _choose_turn_versions(events, self.state.turns)
        for event in events:
            self.events.append(event)
            if isinstance(event, TurnAdded):
                self._fold_event(TurnAdded(chosen[event.turn.index], event.node))
            elif not isinstance(event, TurnAmended) or id(event) in reworded:
                self._fold_event(event)
        return self

    def record_event(self, event: Event) -> None:
        """Append an event that is no part of a pass, and takes nothing back."""
        self.events.append(event)
        self._fold_event(event)

    def set_head(self, head: Head) -> None:
        """Record the head, or that it changed."""
        self.record_event(HeadSet(head))

    def add_turn(self, turn: Turn, node: str = "") -> None:
        """Record a complete turn: assistant message, results, interjections."""
        self.record_event(TurnAdded(turn, node))

    def drop_turns(self, through: int, words: Message | None = None) -> None:
        """Record that the client no longer sends turns 1 ... `through`. words: what it sends in their place."""
        folding = self.policy.plan_dropped(self.state, through)
        self.record_event(TurnsDropped(through=through, words=words, edits=folding.edits))

    def record_call(
        self,
        failures: Sequence[SummaryFailed],
        decided: PassDecided,
        terms: CallTerms,
        budget_error: BudgetError | None = None,
        summary_obstacle: str = "",
    ) -> View:
        """Record a pass and that its request is sent. Return the view of the request."""
        self._open_pass = []
        self.events += [*failures, decided]
        newest = self._fold_pass(failures, decided, terms, budget_error, summary_obstacle)
        self.newest_call = newest
        sent = RequestSent(
            call=decided.call,
            at=terms.now,
            model=terms.model,
            tokens=newest.view.tokens,
            unmarked=terms.no_cache_marks,
            ours=terms.breakpoints if terms.no_cache_marks else "gaps",
            hour_turn=terms.hour_turn,
            blocked=terms.recall_blocked,
        )
        self.events.append(sent)
        self.state.fold_event(sent)
        return newest.view

    def write_off_summary(self, failed: SummaryFailed) -> None:
        """Record a summary that was paid for in a pass that is not in the log."""
        self.events.append(failed)
        self._record_failure(failed)

    # -- the fold ------------------------------------------------------------------------------------------------

    def _fold_event(self, event: Event) -> None:
        if isinstance(event, RequestSent):
            self._fold_call(event)
            return
        if isinstance(event, PassDecided):
            self._open_pass.append(event)
            return
        if isinstance(event, SummaryFailed):
            if event.call > len(self.state.turns):
                self._open_pass.append(event)
            else:
                # It was written off after its call, and before this one was planned.
                self._record_failure(event)
            return
        if isinstance(event, TurnsDropped):
            self._bill_dropped(event)
        self.state.fold_event(event)
        if isinstance(event, TurnAdded):
            self._fold_turn(event.turn)
        elif isinstance(event, UsageReported):
            self._fold_report(event)
        elif isinstance(event, HeadSet):
            if not self.state.turns and not self.state.calls:
                self._money = Money(self.prices, self.reports.scale, self.sizer, event.head.warm_tokens)
            self.policy.set_head(event.head)
        elif isinstance(event, TurnsDropped):
            self.policy.record_dropped(self.state, event)
        elif isinstance(event, TurnAmended):
            self.policy.replace_user_words(self.state, event.turn)
        elif isinstance(event, WindowLearned):
            self._fold_window(event)

    def _bill_dropped(self, event: TurnsDropped) -> None:
        """Add up what the client's trimming costs: what it keeps was in the cache, and is written again."""
        state = self.state
        last = state.last_view
        kept = state.turn_places.get(event.through + 1)
        if last is None or kept is None or kept >= last.length:
            return
        tokens = self.reports.scale.convert_part(last.tokens - last.track.count_tokens_before(kept))
        rates = self.prices.find_rates(last.tokens)
        usd = tokens * (rates.write_price - rates.read_price) / 1_000_000
        before = self.client_trims
        self.client_trims = ClientTrims(before.calls + 1, before.tokens + tokens, before.usd + usd)

    def _fold_turn(self, turn: Turn) -> None:
        if self.policy.learns:
            self.policy.add_turn(self.state, turn)
        if self.newest_call is None:
            return
        output = self._reported_output or (turn.usage.output if turn.usage is not None else 0)
        if not output:
            # It was counted when the turn became segments.
            output = self.state.raw_track.segments[self.state.raw_turn_places[-1]].tokens
        self._money.add_answer(turn, output, may_recall=self._can_recall)
        self._reported_output = 0
        if turn.usage is not None and turn.usage.cache_write:
            self._fold_cache_writes(turn.usage, self.newest_call)

    def _fold_report(self, event: UsageReported) -> None:
        """Learn from what the provider reported, where it is about the newest call.

        Another process may have made a call meanwhile. A prompt above the window is not of one request.
        """
        newest = self.newest_call
        prompt = event.usage.sent_prompt
        if newest is None or event.call != newest.decided.call or prompt <= 0:
            return
        if self.prices.window is not None and prompt > self.prices.window:
            return
        usage = event.usage
        if not usage.others:
            self._reported_output = usage.output
        is_used = self._correct_count(newest, prompt)
        is_of_prompt = is_used and not (usage.others or usage.first_prompt or usage.played)
        self._money.confirm_newest(usage if is_of_prompt else None)
        self._fold_cache_writes(event.usage, newest)

    def _fold_cache_writes(self, usage: Usage, newest: CallResult) -> None:
        """Learn how long cache entries live."""
        if self.reports.add_cache_writes(usage):
            self._money.lengthen_lifetime(newest.model)

    def _fold_window(self, event: WindowLearned) -> None:
        self.prices = apply_learned_window(self.prices, event.window)
        try:
            self.view_limit = self.strategy.limit_view(self.prices)
        except SpecError:
            # The window is smaller than what is reserved for the response. The smallest view may still fit.
            self.view_limit = 1
        newest = self.newest_call
        if newest is not None and newest.decided.call == event.call and event.tokens:
            # The provider refused the request, but counted it.
            self._correct_count(newest, event.tokens)

    def _correct_count(self, newest: CallResult, prompt: int) -> bool:
        """Correct our count by the provider's, and bill the newest prompt again on its scale.

        Return whether the provider's count can be.
        """
        if newest.decided.overtaken:
            # Its request was not this view, so the length of that says nothing about our count.
            return True
        # In shadow mode requests are sent unchanged, and reports are about the whole prompt.
        view = newest.raw_view if self.state.shadow else newest.view
        self._money.settle()
        is_used = self.reports.add_prompt(view, newest.model, prompt)
        self._money.rebill_newest()
        return is_used

    def _fold_call(self, sent: RequestSent) -> None:
        """Fold a pass that was recorded: the schedule's clock sees what it saw then, and the decision is adopted."""
        decided = [event for event in self._open_pass if isinstance(event, PassDecided)]
        failures = [event for event in self._open_pass if isinstance(event, SummaryFailed)]
        self._open_pass = []
        # Of an earlier decision no request was sent: the log ended there once.
        adopted = decided[-1]
        terms = read_terms(sent, adopted)
        if self.policy.decides and not adopted.held:
            self.policy.plan_pass(self.state, self.make_context(terms))
        self.newest_call = self._fold_pass(failures, adopted, terms)
        self.state.fold_event(sent)

    def _fold_pass(
        self,
        failures: Sequence[SummaryFailed],
        decided: PassDecided,
        terms: CallTerms,
        budget_error: BudgetError | None = None,
        summary_obstacle: str = "",
    ) -> CallResult:
        """Fold a pass."""
        self._reported_output = 0
        self._expect_model(terms.model)
        state = self.state
        tokens_before = state.track.tokens
        covered_before = state.covered_turns
        begins_anew = decided.offers and bool(state.calls)
        cost = Bill()
        for failed in failures:
            cost += self._record_failure(failed)
        summary = decided.summary
        if summary is not None:
            if summary.route != MODEL_FREE.route or self.breaker.may_ask(decided.call):
                self.breaker.record_success()
            paid = bill_summary_call(
                self.prices, summary.input_tokens, summary.cached_tokens, summary.output_tokens, summary.usd
            )
            self._money.add_summary(paid)
            cost += paid
        state.fold_event(decided)
        stable_length = None
        if self.policy.learns or decided.edits:
            self.policy.record_decision(state, decided)
            stable_length = self.policy.find_stable_length(state)
        view = state.make_view(stable_length)
        newest = CallResult(
            decided,
            terms,
            mark_view(view, terms, state, self.reports),
            mark_view(state.make_raw_view(), terms, state, self.reports),
            tokens_before,
            covered_before,
            begins_anew,
            cost,
            budget_error,
            summary_obstacle,
        )
        self._money.add_call(
            newest,
            state.head if self._can_recall else None,
            state.turns[-1] if state.turns else None,
            is_shadow=state.shadow,
        )
        return newest

    @property
    def _can_recall(self) -> bool:
        """Whether recalls are caused by what we hide: in a live session, whose requests show it."""
        return bool(self.state.recall_offer) and not self.state.shadow

    def _record_failure(self, failed: SummaryFailed) -> Bill:
        """Fold a failed summary: the next one is asked for later. Return what it cost."""
        self.breaker.record_failure(failed.call)
        cost = bill_summary_call(self.prices, failed.input, failed.cached, failed.output, failed.usd)
        self._money.add_summary(cost)
        return cost

    # -- a call --------------------------------------------------------------------------------------------------

    def make_context(self, terms: CallTerms) -> DecisionContext:
        """Return what the strategy may know of the next call. It may edit every turn."""
        self._expect_model(terms.model)
        money = self.money
        raw_view = mark_view(self.state.make_raw_view(), terms, self.state, self.reports)
        view_limit = self.view_limit
        if view_limit is not None:
            # Never below a quarter: a report that is odd all the same must not be what stops the agent.
            view_limit = max(self.reports.scale.convert_to_counted(view_limit), view_limit // 4)
        return DecisionContext(
            call=len(self.state.turns) + 1,
            now=terms.now,
            model=terms.model,
            prices=self.prices,
            cache=money.cache,
            spent_usd=money.spent_usd,
            raw_usd=money.raw_spent_usd + money.cost_raw_prompt(raw_view, terms.now, terms.model),
            recall_tokens=self.state.recall_tokens if self.can_add_recall_tools(terms) else 0,
            offers_recall_at_once=self.state.recall_offer == "start",
            writes_for_an_hour=writes_for_an_hour(terms, self.state, self.reports),
            scale=self.reports.scale,
            view_limit=view_limit,
            has_breakpoints=terms.breakpoints != "never",
            may_ask_for_summary=(
                terms.may_summarize
                and self.policy.trigger is not None
                and self.breaker.may_ask(len(self.state.turns) + 1)
            ),
        )

    def _expect_model(self, model: str) -> None:
        """Expect what is known of how `model` counts tokens."""
        if model != self._expected_model:
            self._money.settle()
            self._expected_model = model
            self.reports.expect_tokenizer(self.prices.tokenizer, model)

    def can_add_recall_tools(self, terms: CallTerms) -> bool:
        """Return whether there are recall tools that may enter and have not entered yet."""
        return bool(self.state.recall_tools) and not self.state.has_recall_tools and not terms.recall_blocked


def _only_add(events: Iterable[Event], known: Sequence[Turn]) -> bool:
    """Return whether `events` leave each of the `known` turns as it is, but for the user's words after the newest."""
    newest = dict(enumerate(known[-1:], start=len(known)))
    for event in events:
        if isinstance(event, TurnAmended) and event.turn.index in newest:
            if not newest[event.turn.index].has_only_new_user_words(event.turn):
                return False
            newest[event.turn.index] = event.turn
    return True


def _choose_turn_versions(events: Iterable[Event], known: Sequence[Turn]) -> tuple[dict[int, Turn], set[int]]:
    """Return by index the turn that is folded where it first comes: the one with all of its results.

    Return also the ids of the later events of turns by which only words of the user changed. known: earlier turns.
    """
    chosen: dict[int, Turn] = {}
    newest: dict[int, Turn] = dict(enumerate(known[-1:], start=len(known)))
    reworded: dict[int, list[int]] = {len(known): []}
    for event in events:
        if not isinstance(event, TurnAdded | TurnAmended):
            continue
        index = event.turn.index
        if isinstance(event, TurnAmended) and newest[index].has_only_new_user_words(event.turn):
            reworded[index].append(id(event))
        else:
            chosen[index] = event.turn
            reworded[index] = []
        newest[index] = event.turn
    return chosen, {id for ids in reworded.values() for id in ids}
