"""The loop: state + strategy -> plan -> view. Read this first.

    session = Session(strategy, prices)
    session.begin(head)
    for each call:
        view = drive(session.prepare(now, model), summarizer)     # a strategy that needs an LLM yields the request
        ... send the view ...
        session.add(turn)                                           # raw first

The same session runs live and in a replay; nothing in it knows which. Everything that happened is in `events`, and
`Session.from_events` makes the same session of them again.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, TypeAlias, get_args

from elision.errors import BudgetError, SpecError, SummaryCause, SummaryError, describe_error, words_of_error
from elision.strategies.billing import SessionBill
from elision.strategies.budget import apply_learned_window
from elision.strategies.budget_tiers import SHORT_SUMMARY_TOKENS, fit_to_budget, fits_budget
from elision.strategies.decision_context import DecisionContext
from elision.strategies.extractors.registry import BUILT_IN, Extractors
from elision.strategies.session_costs import SessionCosts
from elision.strategies.strategy import Strategy
from elision.strategies.summary_cost import SummaryCall
from elision.summarizers.circuit_breaker import CircuitBreaker
from elision.summarizers.digest import write_digest
from elision.summarizers.request_redaction import redact_request
from elision.summarizers.summary_acceptance import (
    MODEL_FREE,
    accept_summary,
    bill_call,
    build_request,
    count_replaced_tokens,
    estimate_call,
)
from elision.summarizers.summary_result import SummaryResult, parse_answer
from elision.trajectory.encodable import make_encodable
from elision.trajectory.events import (
    Breakpoints,
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
from elision.trajectory.plan import Plan, Summary, SummaryRequest
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.redact import DEFAULT, Redaction
from elision.trajectory.state import State
from elision.trajectory.token_scale import TokenScale
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Head, Turn
from elision.trajectory.usage import Usage
from elision.trajectory.view import View

#: Writes the summary that a request asks for; raises SummaryError if it cannot.
Summarizer: TypeAlias = Callable[[SummaryRequest], "str | SummaryResult"]


@dataclass(frozen=True, slots=True)
class NotReady:
    """The answer of somebody who is still writing: this pass goes on without."""


#: What a pass is sent for the request it yielded.
SummaryAnswer: TypeAlias = str | SummaryResult | SummaryError | NotReady
PassSteps: TypeAlias = Generator[SummaryRequest, SummaryAnswer, View]

#: How the reason of a pass begins that was not to decide anything.
HELD_PREFIX = "held"
#: A turn behind every turn.
ALL_TURNS: Final = sys.maxsize
#: Characters of the reason why a summary came to nothing.
_REASON: Final = 500


def count_output_tokens(turn: Turn, sizer: Sizer) -> int:
    """Recorded output as it is, else the counted assistant message; tokens."""
    if turn.usage is not None and turn.usage.output:
        return turn.usage.output
    return sizer.count_assistant(turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What the newest pass did: its decision, its view, and both prompt-side bills, by our count of tokens.

    tokens_before: tokens of the view had this pass hidden nothing. raw_view: the view had nothing ever been hidden.
    covered_before: the newest turn that was covered before it. summarizer_bill: bill of this pass alone.
    """

    decided: PassDecided
    model: str
    view: View
    bill: Bill
    raw_bill: Bill
    tokens_before: int
    raw_view: View
    covered_before: int
    summarizer_bill: Bill


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTerms:
    """What the client and its model allow in the calls to come; no event says it, so it outlives a session made anew.

    may_summarize:  whether a summary could be sent: not where the provider clears by itself, and messages stay whole.
    editable_from:  the first turn that may be edited, where the provider binds thinking to what stands before it.
    recall_blocked: whether the recall tools must not enter requests.
    no_cache_marks: whether the client sets no cache breakpoints. breakpoints: when we set some then.
    hour_turn:      the newest turn whose cache entries live an hour, as the client asks for; 0 for the head alone, None
                    for nothing.
    """

    may_summarize: bool = True
    editable_from: int = 1
    recall_blocked: bool = False
    no_cache_marks: bool = False
    breakpoints: Breakpoints = "gaps"
    hour_turn: int | None = None


class Session:
    """One agent run under one strategy.

    prices: what the run is billed at. sizer: counts tokens; exact o200k by default. extractors: what placeholders say
    of observations; the strategy's own by default. redaction: which secrets are kept out of summaries, placeholders and
    reasons.
    """

    def __init__(
        self,
        strategy: Strategy,
        prices: Prices,
        sizer: Sizer | None = None,
        extractors: Extractors = BUILT_IN,
        redaction: Redaction = DEFAULT,
    ) -> None:
        self._options = strategy, prices
        usable = strategy.limit_view(prices)
        if usable is not None:
            # Words kept for their own sake must not be what breaks the budget.
            strategy = replace(strategy, keep_user_tokens=min(strategy.keep_user_tokens, usable // 4))
        self.strategy = strategy
        self.prices = prices
        self.sizer = sizer or Sizer(make_counter())
        self.state = State(self.sizer)
        placeholders = strategy.placeholders
        if extractors is BUILT_IN:
            self.extractors = placeholders.extractors
        else:
            self.extractors = extractors
        self.policy = strategy.start_policy()
        self.policy.placeholders = replace(placeholders, extractors=self.extractors, redaction=redaction)
        self.bill = SessionBill(prices)
        self.breaker = CircuitBreaker()
        self.events: list[Event] = []
        self.newest_call: CallResult | None = None
        #: What the calls cost and would have cost, on the provider's scale.
        self.costs = SessionCosts(prices)
        self.scale = TokenScale()
        #: The newest prompt that the provider counted, and which model it was asked of.
        self._reported_request: tuple[View, str] | None = None
        #: Whether requests go out as they came: what the provider reports is of the whole prompt then.
        self.shadow = False
        #: The newest turn whose cache entries live an hour, as the provider reported it; 0 for the head alone, None for
        #: nothing.
        self._reported_hour_turn: int | None = None
        #: Why the newest pass could not make its view fit, where it was to do without.
        self.budget_error: BudgetError | None = None
        self.terms = CallTerms()
        self.redaction = redaction
        self._view_limit = usable

    @classmethod
    def from_events(
        cls,
        events: Sequence[Event],
        strategy: Strategy,
        prices: Prices,
        sizer: Sizer | None = None,
        extractors: Extractors = BUILT_IN,
    ) -> Session:
        """The session that `events` are of, as it stood behind the last one; work O(events), nothing is asked again."""
        session = cls(strategy, prices, sizer, extractors)
        session.replay_events(events)
        return session

    # -- what happened -------------------------------------------------------------------------------------------

    def set_head(self, head: Head) -> None:
        """The head is known, or known to have changed."""
        if not self.state.turns and not self.state.calls:
            self.bill, self.costs = SessionBill(self.prices, head.warm_tokens), SessionCosts(self.prices)
        self._append_event(HeadSet(head))
        self.policy.set_head(head)

    def add_turn(self, turn: Turn, node: str = "") -> None:
        """A turn is complete: assistant message, results, interjections."""
        self._append_event(TurnAdded(turn, node))
        self.policy.add_turn(self.state, turn)
        if self.newest_call is not None:
            sent = self.costs.newest
            self.bill.record_answer(
                count_output_tokens(turn, self.sizer), sent.ours.prompt_tokens, sent.raw.prompt_tokens
            )
            if turn.usage is not None:
                self._learn_cache_lifetime(turn.usage)

    def amend_turn(self, turn: Turn, node: str = "") -> Session:
        """The session in which the newest turn came with another ending: this one where only words of the user differ,
        else a new one, work O(events), for which what was learned of the turn is learned anew."""
        if self.state.turns[-1].has_only_new_user_words(turn):
            self._replace_user_words(TurnAmended(turn, node))
            return self
        session = Session(*self._options, self.sizer, self.extractors, self.redaction)
        session.replay_events([*self.events, TurnAmended(turn, node)])
        session.terms = self.terms
        return session

    def _replace_user_words(self, event: TurnAmended) -> None:
        self._append_event(event)
        self.policy.replace_user_words(self.state, event.turn)

    def record_usage(self, usage: Usage) -> None:
        """What the provider reported for the newest call; its total corrects our count from now on."""
        self.record_event(UsageReported(call=self.state.calls, usage=usage))

    def record_event(
        self, event: SessionOpened | UsageReported | ObservationRecalled | WindowLearned | RecallExchanged
    ) -> None:
        """Something that changes no view."""
        self._append_event(event)
        match event:
            case UsageReported() if self.newest_call is not None and self._is_usable_report(self.newest_call, event):
                self._apply_reported_prompt(self.newest_call, event.usage.sent_prompt)
                self._learn_cache_lifetime(event.usage)
            case SessionOpened():
                self.shadow = event.shadow
            case WindowLearned():
                self._apply_window(event.window)
                if self.newest_call is not None and self.newest_call.decided.call == event.call and event.tokens:
                    # Refused it was, and counted all the same.
                    self._apply_reported_prompt(self.newest_call, event.tokens)

    def _apply_reported_prompt(self, newest: CallResult, prompt: int) -> None:
        """The provider counted the newest prompt, which is billed again on its scale."""
        if self.shadow:
            view = newest.raw_view
        else:
            view = newest.view
        before, model = self._reported_request or (None, "")
        extends = before is not None and model == newest.model and view.count_common(before) == before.length
        self.scale.add_report(view.tokens, prompt, extends=extends)
        self._reported_request = view, newest.model
        self.costs.apply_scale(self.scale)

    def _learn_cache_lifetime(self, usage: Usage) -> None:
        """How long the entries live that the newest request wrote: what is reported holds for the requests to come."""
        if not usage.cache_write or self.newest_call is None:
            return
        minutes = usage.cache_write - usage.cache_write_1h
        if not usage.cache_write_1h:
            # The end of the prompt lives five minutes. Nothing is said of its front, which was not written now.
            if self._reported_hour_turn is None:
                self._reported_hour_turn = None
            else:
                self._reported_hour_turn = 0
            return
        self._reported_hour_turn = 0 if minutes else ALL_TURNS
        if not minutes:
            self.bill.lengthen_lifetime(self.newest_call.model)

    def _is_usable_report(self, newest: CallResult, event: UsageReported) -> bool:
        """Whether a provider's prompt total may correct our count: it is the newest call's, which another process may
        have made meanwhile, and it was answered, so its window was not exceeded."""
        prompt = event.usage.sent_prompt
        window = self.prices.window
        return event.call == newest.decided.call and prompt > 0 and (window is None or prompt <= window)

    def convert_to_billed(self, tokens: int) -> int:
        """`tokens` of a prompt as the provider would count them."""
        return self.scale.convert_to_billed(tokens)

    def _apply_window(self, window: int) -> None:
        self.prices = apply_learned_window(self.prices, window)
        try:
            self._view_limit = self.strategy.limit_view(self.prices)
        except SpecError:
            # Smaller than what is kept for the response: nothing fits for sure, and what is smallest may.
            self._view_limit = 1

    def _append_event(self, event: Event) -> None:
        self.events.append(event)
        self.state.fold_event(event)

    # -- a pass --------------------------------------------------------------------------------------------------

    def prepare_view(
        self, now: float | None = None, model: str = "", *, forced: bool = False, strict: bool = True
    ) -> PassSteps:
        """Decide, and return the view of the next call; yields a SummaryRequest where one must be written first, to be
        redacted (`redact_request`) before a summarizer is given it.

        forced: hide all that the strategy allows, whether it pays or not. Raises BudgetError where not even the floor
        of the view fits; with `strict` False the view is as small as it gets then, and `budget_error` says by how much.
        """
        self.budget_error = None
        situation = self._make_context(now, model)
        before = self.state.track.tokens
        wanted = self._avoid_summary(self.policy.plan_pass(self.state, situation, forced=forced))
        plan = self._fit_plan(situation, wanted, summaries=self.terms.may_summarize, strict=strict)
        plan = self._defer_bound_edits(plan)
        summary = None
        cost = Bill()
        if plan.summarize_to and self._is_worth_asking(plan) and self.breaker.may_ask(situation.call):
            answer = yield self._request_summary(plan, situation)
            summary, cost, plan = self._settle_summary(plan, answer, situation)
        if summary is None:
            plan = replace(plan, summarize_to=0)
        if summary is None and self._is_over_budget(plan, situation):
            summary, plan = self._fit_without_summarizer(plan, situation, strict=strict)
        offers = self._brings_recall_tools(masks=bool(plan.masks), others=bool(plan.clips or summary))
        decided = PassDecided(situation.call, plan.reason, plan.masks, plan.clips, summary, offers)
        return self._finish_pass(decided, now, model, before, cost)

    def _brings_recall_tools(self, *, masks: bool = False, others: bool = False) -> bool:
        """Whether the recall tools enter with a pass that hides `masks`, or `others`: clips, or a summary."""
        return self._can_add_recall_tools and (
            self.state.recall_offer == "start" or self.policy.needs_recall(masks, others)
        )

    @property
    def _can_add_recall_tools(self) -> bool:
        """Whether there are recall tools that may enter, and do not stand there yet."""
        return bool(self.state.recall_tools) and not self.state.has_recall_tools and not self.terms.recall_blocked

    def _fit_plan(self, situation: DecisionContext, plan: Plan, *, summaries: bool = True, strict: bool) -> Plan:
        try:
            return fit_to_budget(self.policy, self.state, situation, plan, summaries=summaries)
        except BudgetError as error:
            if strict:
                raise
            self.budget_error = error
            return fit_to_budget(self.policy, self.state, situation, plan, summaries=summaries, strict=False)

    def _avoid_summary(self, plan: Plan) -> Plan:
        """`plan`, or where no summary could be sent all that may be hidden without one."""
        if self.terms.may_summarize or not plan.summarize_to:
            return plan
        return replace(plan, summarize_to=0, masks=self.policy.make_masks(self.policy.pending))

    def _defer_bound_edits(self, plan: Plan) -> Plan:
        """What of `plan` may be done now: nothing in front of thinking bound to it, unless that goes as well."""
        first = self.terms.editable_from
        if first <= 1 or plan.summarize_to >= first:
            return plan
        masks = tuple(mask for mask in plan.masks if mask.key[0] >= first)
        if masks == plan.masks and not plan.summarize_to:
            return plan
        reason = f"deferred: thinking in turn {first} is bound to what stands in front of it"
        return Plan(masks=masks, clips=plan.clips, reason=reason)

    def hold_view(self, reason: str, now: float | None = None, model: str = "") -> View:
        """A pass that decides nothing; the view goes out as decided so far."""
        decided = PassDecided(len(self.state.turns) + 1, f"{HELD_PREFIX}: {reason}", offers=self._brings_recall_tools())
        return self._finish_pass(decided, now, model, self.state.track.tokens, Bill())

    def _finish_pass(self, decided: PassDecided, now: float | None, model: str, before: int, cost: Bill) -> View:
        covered = self.state.covered_turns
        first = not self.state.calls
        self._append_event(decided)
        self.policy.record_decision(self.state, decided)
        view = self._mark_view(self.state.make_view(self.policy.find_stable_length(self.state)))
        everything = self._mark_view(self.state.make_raw_view())
        raw = self.bill.record_raw_prompt(everything, now, model)
        ours = self.bill.record_prompt(view, now, model, anew=decided.offers and not first)
        self.costs.record_call(ours, raw, self.scale, client_marks=not self.terms.no_cache_marks)
        self._append_event(self._describe_request(decided, now, model, view))
        self.newest_call = CallResult(
            decided=decided,
            model=model,
            view=view,
            bill=ours.bill_at(self.prices),
            raw_bill=raw.bill_at(self.prices),
            tokens_before=before,
            raw_view=everything,
            covered_before=covered,
            summarizer_bill=cost,
        )
        return view

    @property
    def is_edited(self) -> bool:
        """Whether requests are other than the client's."""
        return bool(self.state.hidden or self.state.covered_turns or self.state.has_recall_tools)

    def _describe_request(self, decided: PassDecided, now: float | None, model: str, view: View) -> RequestSent:
        terms = self.terms
        return RequestSent(
            call=decided.call,
            at=now,
            model=model,
            tokens=view.tokens,
            unmarked=terms.no_cache_marks,
            ours=terms.breakpoints if terms.no_cache_marks else "gaps",
            hour_turn=terms.hour_turn,
        )

    def _mark_view(self, view: View) -> View:
        """The view with the breakpoints that its request bears now, and how long their entries live."""
        terms = self.terms
        if terms.no_cache_marks and not (self.is_edited or terms.breakpoints == "always"):
            return replace(view, marks=())
        turn = self._newest_hour_turn
        if turn is None:
            return view
        return replace(view, hour_length=self._count_hour_segments(view, turn))

    @property
    def _newest_hour_turn(self) -> int | None:
        """The newest turn whose cache entries live an hour, as the client asks for or the provider reported."""
        kept = [turn for turn in (self.terms.hour_turn, self._reported_hour_turn) if turn is not None]
        return max(kept, default=None)

    @property
    def writes_for_an_hour(self) -> bool:
        """Whether all that the next request writes to the cache lives an hour."""
        return self._newest_hour_turn is not None and self._newest_hour_turn >= len(self.state.turns)

    def _count_hour_segments(self, view: View, turn: int) -> int:
        """Leading segments of `view` up to the end of `turn`."""
        if turn >= len(self.state.turns):
            return view.length
        # Turns ascend along a track; head and summary, whose turn is 0, stand first.
        return bisect_right(view.track.segments, turn, hi=view.length, key=attrgetter("turn"))

    def _make_context(self, now: float | None, model: str) -> DecisionContext:
        return DecisionContext(
            call=len(self.state.turns) + 1,
            now=now,
            model=model,
            prices=self.prices,
            cache=self.bill.cache,
            spent_usd=self.bill.spent_usd,
            raw_usd=self.bill.raw_spent_usd
            + self.bill.cost_raw_prompt(self._mark_view(self.state.make_raw_view()), now, model),
            recall_tokens=self.state.recall_tokens if self._can_add_recall_tools else 0,
            offers_recall_at_once=self.state.recall_offer == "start",
            writes_for_an_hour=self.writes_for_an_hour,
            # Never below a quarter: a report that is odd all the same must not be what stops the agent.
            view_limit=None
            if self._view_limit is None
            else max(self.scale.convert_to_counted(self._view_limit), self._view_limit // 4),
        )

    # -- summaries -----------------------------------------------------------------------------------------------

    def _summary_limit(self, plan: Plan) -> int:
        """Most tokens that the summary of `plan` may have."""
        return plan.summary_tokens or self.strategy.summary_max_tokens

    def _is_worth_asking(self, plan: Plan) -> bool:
        """Whether a model is asked for the summary of `plan`; the digest says as much in next to nothing."""
        return self._summary_limit(plan) >= min(SHORT_SUMMARY_TOKENS, self.strategy.summary_max_tokens)

    def _request_summary(self, plan: Plan, situation: DecisionContext) -> SummaryRequest:
        limit = self._summary_limit(plan)
        route = estimate_call(self.state, situation, plan.summarize_to, limit).route
        asked = build_request(self.state, plan.summarize_to, limit, "extend" if route == "extend" else "fresh")
        # Redacted just before it is written: that is work on all of the history, in vain while a writer is at work.
        return replace(asked, redaction=self.redaction)

    def _settle_summary(
        self, plan: Plan, answer: SummaryAnswer, situation: DecisionContext
    ) -> tuple[Summary | None, Bill, Plan]:
        """The summary, its bill, and the plan that is left: a failed candidate changes nothing."""
        if isinstance(answer, NotReady):
            return None, Bill(), Plan(reason="summary is being written")
        parsed = _parse_answer(answer)
        covers = (parsed.covers if isinstance(parsed, SummaryResult) else 0) or plan.summarize_to
        call = bill_call(self.state, situation, covers, parsed)
        cost = self._bill_summary_call(call.input, call.cached, call.output, call.usd)
        try:
            summary = self._accept_answer(plan, covers, parsed, call, situation)
        except Exception as error:  # noqa: BLE001 - an answer that cannot be used is not asked for again at once
            reason = self._reject_answer(error, call, situation.call)
            return None, cost, Plan(reason=f"summary rejected: {reason}")
        self.breaker.record_success()
        self.bill.record_summary(cost)
        if covers < plan.summarize_to:
            # Written in the background for fewer turns: what is pending behind them is masked in the same rewrite.
            masks = self.policy.make_masks(key for key in self.policy.pending if key[0] > covers)
            plan = replace(plan, masks=masks, summarize_to=covers)
        return summary, cost, plan

    def _accept_answer(
        self,
        plan: Plan,
        covers: int,
        answer: SummaryResult | SummaryError,
        call: SummaryCall,
        situation: DecisionContext,
    ) -> Summary:
        """The summary that `answer` is. Raises SummaryError if it may not stand for turns 1 ... `covers`."""
        if isinstance(answer, SummaryError):
            raise answer
        if covers > plan.summarize_to:
            wrong = f"it covers turns up to {covers}, of which it was not asked: up to {plan.summarize_to}"
            raise SummaryError(wrong, cause="malformed")
        if self.policy.server_calls.limit_summary(covers) < covers:
            wrong = f"it covers turns up to {covers}, and so a call of the provider's without its result"
            raise SummaryError(wrong, cause="malformed")
        limit = self._summary_limit(plan)
        room = self._measure_room(plan, covers, situation)
        return accept_summary(
            self.state, self.policy, covers, answer.text, call, self.redaction, max_tokens=limit, room_tokens=room
        )

    def _measure_room(self, plan: Plan, covers: int, situation: DecisionContext) -> int | None:
        """Tokens that may stand in the place of turns 1 ... `covers` in a view that fits; None where none does."""
        if situation.view_limit is None or self.budget_error is not None:
            return None
        saved = sum(self.policy.pending[mask.key].saved_tokens for mask in plan.masks if mask.key[0] > covers)
        saved += sum(self.state.find_segment(clip.key).tokens - self.sizer.count_text(clip.text) for clip in plan.clips)
        rest = (
            self.state.track.tokens
            - count_replaced_tokens(self.state, covers)
            - saved
            + situation.count_entering_tokens(hides=True)
        )
        return situation.view_limit - rest

    def _reject_answer(self, error: Exception, used: SummaryCall, call: int) -> str:
        """Record that the summary asked for at call `call` came to nothing; why, in a sentence."""
        cause: SummaryCause = "other"
        said = f"it could not be used: {describe_error(error)}"
        if isinstance(error, SummaryError):
            cause = error.cause if error.cause in get_args(SummaryCause) else cause
            said = words_of_error(error)
        reason = self.redaction.redact_text(make_encodable(said[: 4 * _REASON]))[:_REASON]
        self._record_failure(
            SummaryFailed(
                call=call,
                cause=cause,
                reason=reason,
                input=used.input,
                cached=used.cached,
                output=used.output,
                usd=self._bill_summary_call(used.input, used.cached, used.output, used.usd).usd,
                retry_at=self.breaker.record_failure(call),
            )
        )
        return reason

    def write_off_summary(self, event: SummaryFailed | PassDecided) -> None:
        """Learn that a summary was paid for in a pass that came to nothing; asking backs off.

        event: what that pass made of it; nothing happens if it is in the log after all.
        """
        if event in self.events:
            return
        if isinstance(event, SummaryFailed):
            self._record_failure(replace(event, retry_at=self.breaker.record_failure(event.call)))
        elif (made := event.summary) is not None:
            cost = self._bill_summary_call(made.input_tokens, made.cached_tokens, made.output_tokens, made.usd)
            used = SummaryCall(
                route=made.route,
                input=made.input_tokens,
                cached=made.cached_tokens,
                output=made.output_tokens,
                usd=cost.usd,
            )
            self._reject_answer(SummaryError("it was not stored, and is not used"), used, event.call)

    def _bill_summary_call(self, input: int, cached: int, output: int, usd: float | None) -> Bill:
        bill = self.prices.bill_call(input, cached, output)
        if usd is None:
            return bill
        return replace(bill, usd=usd)

    def _record_failure(self, event: SummaryFailed) -> None:
        self._append_event(event)
        self.policy.retry_at = event.retry_at
        self.bill.record_summary(self._bill_summary_call(event.input, event.cached, event.output, event.usd))

    def _is_over_budget(self, plan: Plan, situation: DecisionContext) -> bool:
        """Whether a pass that got no summary leaves the view over its budget."""
        return situation.view_limit is not None and not fits_budget(self.policy, self.state, situation, plan)

    def _fit_without_summarizer(
        self, plan: Plan, situation: DecisionContext, *, strict: bool
    ) -> tuple[Summary | None, Plan]:
        """Under pressure, without a summarizer that serves: the model-free digest, then cutting the newest results."""
        may_summarize = self.terms.may_summarize
        wanted = self._fit_plan(situation, replace(plan, summarize_to=0), summaries=may_summarize, strict=strict)
        if wanted.summarize_to:
            asked = build_request(self.state, wanted.summarize_to, self._summary_limit(wanted))
            clean = redact_request(replace(asked, redaction=self.redaction))
            written = SummaryResult(text=write_digest(clean, self.sizer.count), route=MODEL_FREE.route)
            try:
                return self._accept_answer(wanted, wanted.summarize_to, written, MODEL_FREE, situation), wanted
            except SummaryError:
                # Nothing can be said in fewer words; what is left is cutting the newest results.
                wanted = self._fit_plan(situation, Plan(reason=plan.reason), summaries=False, strict=strict)
        return None, wanted

    # -- the log again -------------------------------------------------------------------------------------------

    def replay_events(self, events: Iterable[Event]) -> None:
        """Fold events that happened elsewhere, in their order; decisions are taken as they were made.

        They may stand behind what is here already, unless `can_append` says no.
        """
        events = list(events)
        settled, reworded = _choose_turn_versions(events, self.state.turns)
        waiting: list[SummaryFailed | PassDecided] = []
        for event in events:
            match event:
                case HeadSet():
                    self.set_head(event.head)
                case TurnAdded():
                    self.add_turn(settled[event.turn.index].turn, event.node)
                    self.events[-1] = event
                case TurnAmended() if id(event) in reworded:
                    self._replace_user_words(event)
                case TurnAmended():
                    # Its turn was folded where it first came; only the log keeps that it came twice.
                    self.events.append(event)
                case SummaryFailed() | PassDecided():
                    waiting.append(event)
                case RequestSent():
                    self._replay_call(waiting, event)
                    waiting = []
                case _:
                    self.record_event(event)

    def can_append(self, events: Iterable[Event]) -> bool:
        """Whether `events` only add to what is here; where not, the log must be folded anew, for a turn came again
        with another result."""
        newest = dict(enumerate(self.state.turns[-1:], start=len(self.state.turns)))
        for event in events:
            if isinstance(event, TurnAmended) and (known := newest.get(event.turn.index)) is not None:
                if not known.has_only_new_user_words(event.turn):
                    return False
                newest[event.turn.index] = event.turn
        return True

    def _replay_call(self, waiting: Sequence[SummaryFailed | PassDecided], called: RequestSent) -> None:
        """A pass that was made: the schedule's clock sees what it saw then, and what was decided is done."""
        self.terms = replace(
            self.terms, no_cache_marks=called.unmarked, breakpoints=called.ours, hour_turn=called.hour_turn
        )
        situation = self._make_context(called.at, called.model)
        before = self.state.track.tokens
        (decided,) = (event for event in waiting if isinstance(event, PassDecided))
        if not decided.reason.startswith(HELD_PREFIX):
            self.policy.plan_pass(self.state, situation)
        cost = Bill()
        for event in waiting:
            if isinstance(event, SummaryFailed):
                self.breaker.record_failure(event.call)
                self._record_failure(event)
        if (summary := decided.summary) is not None:
            self.breaker.record_success()
            cost = self._bill_summary_call(
                summary.input_tokens, summary.cached_tokens, summary.output_tokens, summary.usd
            )
            self.bill.record_summary(cost)
        self._finish_pass(decided, called.at, called.model, before, cost)


def _choose_turn_versions(
    events: Iterable[Event], known: Sequence[Turn]
) -> tuple[dict[int, TurnAdded | TurnAmended], set[int]]:
    """For each turn what it is folded as where it first comes: as it was when all of its results were there; and the
    events (ids) behind that, by which only words of the user changed. known: turns that came before."""
    settled: dict[int, TurnAdded | TurnAmended] = {}
    newest: dict[int, Turn] = dict(enumerate(known[-1:], start=len(known)))
    reworded: dict[int, list[int]] = {len(known): []}
    for event in events:
        if not isinstance(event, TurnAdded | TurnAmended):
            continue
        index = event.turn.index
        if isinstance(event, TurnAmended) and newest[index].has_only_new_user_words(event.turn):
            reworded[index].append(id(event))
        else:
            settled[index], reworded[index] = event, []
        newest[index] = event.turn
    return settled, {id for ids in reworded.values() for id in ids}


def _parse_answer(answer: str | SummaryResult | SummaryError) -> SummaryResult | SummaryError:
    """`answer` as far as it has a meaning; an error where it has none."""
    try:
        if isinstance(answer, SummaryError):
            return answer
        return parse_answer(answer)
    except SummaryError as error:
        return error


def run_pass(steps: PassSteps, summarizer: Summarizer) -> View:
    """Run a pass to its end, writing each summary it asks for with `summarizer`."""
    try:
        request = next(steps)
        while True:
            request = steps.send(_run_summarizer(summarizer, request))
    except StopIteration as done:
        view: View = done.value
        return view


def _run_summarizer(summarizer: Summarizer, request: SummaryRequest) -> SummaryAnswer:
    try:
        return summarizer(redact_request(request))
    except SummaryError as error:
        return error
