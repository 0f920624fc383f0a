"""The loop: state + strategy -> plan -> view. Read this first.

    session = Session(strategy, prices)
    session.set_head(head)
    for each call:
        view = run_pass(session.prepare_view(now, model), summarizer)   # a pass yields a request for each summary
        ... send the view ...
        session.add_turn(turn)                                          # raw first

The same session runs live and in a replay; nothing in it knows which. Everything that happened is in `events`, and
`Session.replay_events` makes the same session of them again.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, TypeAlias, get_args

import msgspec

from elision.errors import BudgetError, SpecError, SummaryCause, SummaryError, describe_error, words_of_error
from elision.strategies.billing import SessionBill
from elision.strategies.budget import apply_learned_window
from elision.strategies.budget_tiers import SHORT_SUMMARY_TOKENS, PossibleSummaries, fit_to_budget, fits_budget
from elision.strategies.decision_context import DecisionContext
from elision.strategies.extractors.registry import BUILT_IN, Extractors
from elision.strategies.policy import FORCED
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

#: Writes the summary that a request asks for. Raises SummaryError if it cannot.
Summarizer: TypeAlias = Callable[[SummaryRequest], "str | SummaryResult"]


@dataclass(frozen=True, slots=True)
class NotReady:
    """The answer while the summary is still being written: this pass continues without it."""


#: What a pass receives for the request that it yields.
SummaryAnswer: TypeAlias = str | SummaryResult | SummaryError | NotReady
PassSteps: TypeAlias = Generator[SummaryRequest, SummaryAnswer, View]

#: The reason of a pass whose summary is written in the background.
SUMMARY_BEING_WRITTEN: Final = "summary is being written"
#: Greater than the index of any turn.
ALL_TURNS: Final = sys.maxsize
#: Most characters of the reason why a summary failed.
_REASON: Final = 500


def count_output_tokens(turn: Turn, sizer: Sizer) -> int:
    """Return the output tokens that were recorded, or else those of the assistant message by our count."""
    if turn.usage is not None and turn.usage.output:
        return turn.usage.output
    return sizer.count_assistant(turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallResult:
    """What the newest pass did: its decision, its view, and both prompt-side bills, by our count of tokens.

    tokens_before:   of the view if this pass had hidden nothing.
    raw_view:        the view if nothing had ever been hidden.
    covered_before:  the newest turn that a summary covered before this pass.
    summarizer_bill: of this pass alone.
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
    """What the client and its model allow in the calls to come. No event holds it: a session that is built again from
    events is given the terms of the old one.

    may_summarize:  whether a summary could be sent. It cannot where the provider clears results itself and messages
                    stay whole.
    editable_from:  the first turn that may be edited, where the provider binds thinking to what precedes it.
    recall_blocked: whether the recall tools must not enter requests.
    no_cache_marks: whether the client sets no cache breakpoints. breakpoints: when we set some then.
    hour_turn:      the newest turn for which the client asks that cache entries live an hour; 0 for the head alone,
                    None for nothing.
    """

    may_summarize: bool = True
    editable_from: int = 1
    recall_blocked: bool = False
    no_cache_marks: bool = False
    breakpoints: Breakpoints = "gaps"
    hour_turn: int | None = None


class Session:
    """One agent run under one strategy.

    prices: at which the run is billed. sizer: counts tokens; exact o200k by default. extractors: describe observations
    in placeholders; the strategy's own by default. redaction: which secrets are kept out of summaries, placeholders and
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
            # The user's words that are kept must not break the budget.
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
        #: The newest prompt that the provider counted, and the model of its request.
        self._reported_request: tuple[View, str] | None = None
        #: Whether requests are sent unchanged. The provider's reports are then about the whole prompt.
        self.shadow = False
        #: The newest turn whose cache entries live an hour by the provider's report; 0 for the head alone, None for
        #: nothing.
        self._reported_hour_turn: int | None = None
        #: Why the newest pass could not make its view fit, if that was not to be raised.
        self.budget_error: BudgetError | None = None
        #: Why the newest pass made no summary although it had to; "" if it made one, or need not.
        self.summary_obstacle = ""
        self.terms = CallTerms()
        self.redaction = redaction
        self._view_limit = usable

    # -- what happened -------------------------------------------------------------------------------------------

    def set_head(self, head: Head) -> None:
        """Record the head, or that it changed."""
        if not self.state.turns and not self.state.calls:
            self.bill = SessionBill(self.prices, head.warm_tokens)
            self.costs = SessionCosts(self.prices)
        self._append_event(HeadSet(head))
        self.policy.set_head(head)

    def add_turn(self, turn: Turn, node: str = "") -> None:
        """Record a complete turn: assistant message, results, interjections."""
        self._append_event(TurnAdded(turn, node))
        self.policy.add_turn(self.state, turn)
        if self.newest_call is not None:
            sent = self.costs.newest
            output_tokens = count_output_tokens(turn, self.sizer)
            self.bill.record_answer(output_tokens, sent.ours.prompt_tokens, sent.raw.prompt_tokens)
            if turn.usage is not None:
                self._learn_cache_lifetime(turn.usage)

    def amend_turn(self, turn: Turn, node: str = "") -> Session:
        """Return the session in which the newest turn is `turn`.

        It is this session if only words of the user differ. Else it is a new one, which replays all events, since what
        was learned from the old turn has to be learned again.
        """
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
        """Record what the provider reported for the newest call. Its total corrects our count from now on."""
        self.record_event(UsageReported(call=self.state.calls, usage=usage))

    def record_event(
        self, event: SessionOpened | UsageReported | ObservationRecalled | WindowLearned | RecallExchanged
    ) -> None:
        """Record an event that changes no view."""
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
                    # The provider refused the request, but counted it.
                    self._apply_reported_prompt(self.newest_call, event.tokens)

    def _apply_reported_prompt(self, newest: CallResult, prompt: int) -> None:
        """Correct our count by the provider's, and bill the newest prompt again on its scale."""
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
        """Take note how long the cache entries of the newest request live; the requests to come write the same."""
        if not usage.cache_write or self.newest_call is None:
            return
        minutes = usage.cache_write - usage.cache_write_1h
        if not usage.cache_write_1h:
            # The end of the prompt lives five minutes. Its front was not written now: the head may live longer.
            if self._reported_hour_turn is not None:
                self._reported_hour_turn = 0
        elif minutes:
            self._reported_hour_turn = 0
        else:
            self._reported_hour_turn = ALL_TURNS
            self.bill.lengthen_lifetime(self.newest_call.model)

    def _is_usable_report(self, newest: CallResult, event: UsageReported) -> bool:
        """Return whether a provider's prompt total may correct our count.

        It has to be of the newest call, which another process may have made meanwhile. A total above the window is not
        of one request.
        """
        prompt = event.usage.sent_prompt
        window = self.prices.window
        return event.call == newest.decided.call and prompt > 0 and (window is None or prompt <= window)

    def convert_to_billed(self, tokens: int) -> int:
        """Return how many tokens the provider would count for `tokens` of ours."""
        return self.scale.convert_to_billed(tokens)

    def _apply_window(self, window: int) -> None:
        self.prices = apply_learned_window(self.prices, window)
        try:
            self._view_limit = self.strategy.limit_view(self.prices)
        except SpecError:
            # The window is smaller than what is reserved for the response. The smallest view may still fit.
            self._view_limit = 1

    def _append_event(self, event: Event) -> None:
        self.events.append(event)
        self.state.fold_event(event)

    # -- a pass --------------------------------------------------------------------------------------------------

    def prepare_view(
        self,
        now: float | None = None,
        model: str = "",
        *,
        forced: bool = False,
        summarized: bool = False,
        strict: bool = True,
    ) -> PassSteps:
        """Decide, and return the view of the next call.

        Yields a SummaryRequest if a summary must be written first. `redact_request` has to redact it before a
        summarizer gets it. forced: hide all that the strategy allows, whether it pays or not. summarized: also replace
        all turns but the tail by a summary; where none is made, `summary_obstacle` has the reason.

        Raises BudgetError if not even the smallest view fits; with `strict` False that view is returned, and
        `budget_error` has the error.
        """
        self.budget_error = None
        self.summary_obstacle = ""
        context = self._make_context(now, model)
        before = self.state.track.tokens
        wanted = self.policy.plan_pass(self.state, context, forced=forced)
        if summarized:
            wanted = self._plan_whole_summary(wanted, context)
        # Only from here on: a replay asks the policy again, and does not know what could be edited then.
        context = replace(context, editable_from=self.terms.editable_from)
        wanted = self._defer_bound_edits(self._avoid_summary(wanted), context)
        plan = self._fit_plan(context, wanted, summaries=self._list_possible_summaries(context.call), strict=strict)
        summary = None
        cost = Bill()
        if plan.summarize_to and self._is_worth_asking(plan) and self.breaker.may_ask(context.call):
            answer = yield self._request_summary(plan, context)
            summary, cost, plan = self._settle_summary(plan, answer, context)
        elif plan.is_model_free:
            summary = self._write_digest(plan, context)
        elif plan.summarize_to:
            # Nobody is asked now. Results that the summary would have covered are hidden as well.
            plan = self._plan_masks_instead(plan.reason, context)
        if summary is None:
            plan = replace(plan, summarize_to=0)
        if summary is None and self._is_over_budget(plan, context):
            summary, plan = self._fit_without_summarizer(plan, context, strict=strict)
        if summarized:
            self.summary_obstacle = self._find_summary_obstacle(summary, plan, context)
        offers = self._brings_recall_tools(masks=bool(plan.masks), others=bool(plan.clips or summary))
        decided = PassDecided(context.call, plan.reason, plan.masks, plan.clips, summary, offers)
        return self._finish_pass(decided, now, model, before, cost)

    def _plan_whole_summary(self, plan: Plan, context: DecisionContext) -> Plan:
        """Return a plan that replaces all turns but the tail by a summary; `plan` where that cannot be done."""
        covers, limit = self.policy.find_whole_summary(self.state, context)
        if not covers:
            self.summary_obstacle = "no turn outside the tail is left to summarize"
            return plan
        longest = self.strategy.summary_max_tokens
        if limit < min(SHORT_SUMMARY_TOKENS, longest):
            self.summary_obstacle = f"turns up to {covers} are too short for a summary to be shorter"
            return plan
        masks = self.policy.make_masks(key for key in self.policy.pending if key[0] > covers)
        return Plan(
            masks=masks, summarize_to=covers, summary_tokens=limit if limit < longest else 0, reason=plan.reason
        )

    def _find_summary_obstacle(self, summary: Summary | None, plan: Plan, context: DecisionContext) -> str:
        """Return why a pass that had to summarize has no summary; "" if it has one."""
        if summary is not None:
            return ""
        if self.summary_obstacle:
            return self.summary_obstacle
        if not self.terms.may_summarize:
            return "the provider clears results itself, and messages stay whole"
        if plan.reason == FORCED and not self.breaker.may_ask(context.call):
            return f"an earlier one failed, and the next is asked for at call {self.policy.retry_at}"
        return plan.reason

    def _brings_recall_tools(self, *, masks: bool = False, others: bool = False) -> bool:
        """Return whether the recall tools enter with a pass that hides `masks`, or `others`: clips, or a summary."""
        return self._can_add_recall_tools and (
            self.state.recall_offer == "start" or self.policy.needs_recall(masks=masks, others=others)
        )

    @property
    def _can_add_recall_tools(self) -> bool:
        """Whether there are recall tools that may enter and have not entered yet."""
        return bool(self.state.recall_tools) and not self.state.has_recall_tools and not self.terms.recall_blocked

    def _list_possible_summaries(self, call: int) -> PossibleSummaries:
        if not self.terms.may_summarize:
            return "none"
        if self.policy.trigger is None or not self.breaker.may_ask(call):
            return "digest"
        return "model"

    def _fit_plan(self, context: DecisionContext, plan: Plan, *, summaries: PossibleSummaries, strict: bool) -> Plan:
        try:
            return fit_to_budget(self.policy, self.state, context, plan, summaries=summaries)
        except BudgetError as error:
            if strict:
                raise
            self.budget_error = error
            return fit_to_budget(self.policy, self.state, context, plan, summaries=summaries, strict=False)

    def _avoid_summary(self, plan: Plan) -> Plan:
        """Return `plan`, or if no summary could be sent one that masks everything pending instead."""
        if self.terms.may_summarize or not plan.summarize_to:
            return plan
        return replace(plan, summarize_to=0, masks=self.policy.make_masks(self.policy.pending))

    @staticmethod
    def _defer_bound_edits(plan: Plan, context: DecisionContext) -> Plan:
        """Return what `plan` may do now: it must not edit what precedes thinking that stays and is bound to it."""
        first = context.editable_from
        if first <= 1 or plan.summarize_to >= first:
            return plan
        masks = tuple(mask for mask in plan.masks if mask.key[0] >= first)
        if masks == plan.masks and not plan.summarize_to:
            return plan
        reason = f"deferred: thinking in turn {first} is bound to what stands in front of it"
        return Plan(masks=masks, clips=plan.clips, reason=reason)

    def _plan_masks_instead(self, reason: str, context: DecisionContext) -> Plan:
        """Return a plan that masks everything pending in place of a summary, save what precedes bound thinking."""
        return Plan(masks=self.policy.make_editable_masks(context), reason=reason)

    def hold_view(self, reason: str, now: float | None = None, model: str = "") -> View:
        """Return the view as decided so far, after a pass that decides nothing."""
        offers = self._brings_recall_tools()
        decided = PassDecided(len(self.state.turns) + 1, f"held: {reason}", offers=offers, held=True)
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
        """Whether requests differ from the client's."""
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
        """Return the view with the breakpoints of its request, and how long their cache entries live."""
        terms = self.terms
        if terms.no_cache_marks and not (self.is_edited or terms.breakpoints == "always"):
            return replace(view, marks=())
        turn = self._newest_hour_turn
        if turn is None:
            return view
        return replace(view, hour_length=self._count_hour_segments(view, turn))

    @property
    def _newest_hour_turn(self) -> int | None:
        """The newest turn whose cache entries live an hour, by the client's request or the provider's report."""
        turns = [turn for turn in (self.terms.hour_turn, self._reported_hour_turn) if turn is not None]
        return max(turns, default=None)

    @property
    def writes_for_an_hour(self) -> bool:
        """Whether all that the next request writes to the cache lives an hour."""
        return self._newest_hour_turn is not None and self._newest_hour_turn >= len(self.state.turns)

    def _count_hour_segments(self, view: View, turn: int) -> int:
        """Return the number of leading segments of `view` up to the end of `turn`."""
        if turn >= len(self.state.turns):
            return view.length
        # Turns ascend along a track; head and summary, whose turn is 0, come first.
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
            scale=self.scale,
            # Never below a quarter: a report that is odd all the same must not be what stops the agent.
            view_limit=None
            if self._view_limit is None
            else max(self.scale.convert_to_counted(self._view_limit), self._view_limit // 4),
        )

    # -- summaries -----------------------------------------------------------------------------------------------

    def _summary_limit(self, plan: Plan) -> int:
        """Return the most tokens that the summary of `plan` may have."""
        return plan.summary_tokens or self.strategy.summary_max_tokens

    def _is_worth_asking(self, plan: Plan) -> bool:
        """Return whether a model is asked for the summary of `plan`. The digest says as much in so few tokens."""
        return not plan.is_model_free and self._summary_limit(plan) >= min(
            SHORT_SUMMARY_TOKENS, self.strategy.summary_max_tokens
        )

    def _request_summary(self, plan: Plan, context: DecisionContext) -> SummaryRequest:
        limit = self._summary_limit(plan)
        route = estimate_call(self.state, context, plan.summarize_to, limit).route
        asked = build_request(self.state, plan.summarize_to, limit, "extend" if route == "extend" else "fresh")
        # It is redacted just before the summary is written. That is work on all of the history, which would be wasted
        # while another summary is being written.
        # In shadow mode the view is not sent: the agent waits for nothing.
        return replace(asked, redaction=self.redaction, is_urgent=plan.is_urgent and not self.shadow)

    def _settle_summary(
        self, plan: Plan, answer: SummaryAnswer, context: DecisionContext
    ) -> tuple[Summary | None, Bill, Plan]:
        """Return the summary, its bill and the plan that is left."""
        if isinstance(answer, NotReady):
            return None, Bill(), Plan(reason=SUMMARY_BEING_WRITTEN)
        parsed = _parse_answer(answer)
        covers = (parsed.covers if isinstance(parsed, SummaryResult) else 0) or plan.summarize_to
        call = bill_call(self.state, context, covers, parsed)
        cost = self._bill_summary_call(call.input, call.cached, call.output, call.usd)
        try:
            summary = self._accept_answer(plan, covers, parsed, call, context)
        except Exception as error:  # noqa: BLE001 - after an answer that cannot be used the breaker delays the next one
            reason = self._reject_answer(error, call, context.call)
            reason = f"summary rejected: {reason}"
            # Above a strict threshold, or where all is to be hidden, masking is better than nothing; else a failed
            # summary changes nothing.
            if plan.is_urgent or plan.reason == FORCED:
                return None, cost, self._plan_masks_instead(reason, context)
            return None, cost, Plan(reason=reason)
        self.breaker.record_success()
        self.bill.record_summary(cost)
        if covers < plan.summarize_to:
            # It was written in the background for fewer turns. What is pending after them is masked in this rewrite.
            masks = self.policy.make_masks(key for key in self.policy.pending if key[0] > covers)
            plan = replace(plan, masks=masks, summarize_to=covers)
        return summary, cost, plan

    def _accept_answer(
        self,
        plan: Plan,
        covers: int,
        answer: SummaryResult | SummaryError,
        call: SummaryCall,
        context: DecisionContext,
    ) -> Summary:
        """Return the summary that `answer` is. Raises SummaryError if it must not replace turns 1 ... `covers`."""
        if isinstance(answer, SummaryError):
            raise answer
        if covers > plan.summarize_to:
            wrong = f"it covers turns up to {covers}, of which it was not asked: up to {plan.summarize_to}"
            raise SummaryError(wrong, cause="malformed")
        if self.policy.server_calls.limit_summary(covers) < covers:
            wrong = f"it covers turns up to {covers}, and so a call of the provider's without its result"
            raise SummaryError(wrong, cause="malformed")
        if covers < context.editable_from:
            wrong = f"it covers turns up to {covers}, and thinking in turn {context.editable_from} is bound to them"
            raise SummaryError(wrong, cause="malformed")
        limit = self._summary_limit(plan)
        room = self._measure_room(plan, covers, context)
        return accept_summary(
            self.state,
            self.policy,
            covers,
            answer.text,
            call,
            self.redaction,
            max_tokens=limit,
            room_tokens=room,
            writer=answer.writer,
        )

    def _measure_room(self, plan: Plan, covers: int, context: DecisionContext) -> int | None:
        """Return the most tokens that may replace turns 1 ... `covers` in a view that fits; None if no view does."""
        if context.view_limit is None or self.budget_error is not None:
            return None
        saved = sum(self.policy.pending[mask.key].saved_tokens for mask in plan.masks if mask.key[0] > covers)
        saved += sum(self.state.find_segment(clip.key).tokens - self.sizer.count_text(clip.text) for clip in plan.clips)
        rest = (
            self.state.track.tokens
            - count_replaced_tokens(self.state, covers)
            - saved
            + context.count_entering_tokens(hides=True)
        )
        return context.view_limit - rest

    def _reject_answer(self, error: Exception, used: SummaryCall, call: int) -> str:
        """Record that the summary that call `call` asked for failed. Return why, in a sentence."""
        cause: SummaryCause = "other"
        message = f"it could not be used: {describe_error(error)}"
        if isinstance(error, SummaryError):
            cause = error.cause if error.cause in get_args(SummaryCause) else cause
            message = words_of_error(error)
        reason = self.redaction.redact_text(make_encodable(message[: 4 * _REASON]))[:_REASON]
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
        """Record that a summary was paid for in a pass that was not stored; the breaker delays the next request.

        event: what that pass recorded. Nothing happens if it is in the log after all.
        """
        if event in self.events:
            return
        if isinstance(event, SummaryFailed):
            self._record_failure(msgspec.structs.replace(event, retry_at=self.breaker.record_failure(event.call)))
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

    def _is_over_budget(self, plan: Plan, context: DecisionContext) -> bool:
        """Return whether a pass without a summary leaves the view over its budget."""
        return context.view_limit is not None and not fits_budget(self.policy, self.state, context, plan)

    def _fit_without_summarizer(
        self, plan: Plan, context: DecisionContext, *, strict: bool
    ) -> tuple[Summary | None, Plan]:
        """Return a summary and a plan that fit without a summarizer: the model-free digest, then clipped results."""
        possible: PossibleSummaries = "digest" if self.terms.may_summarize else "none"
        wanted = self._fit_plan(context, replace(plan, summarize_to=0), summaries=possible, strict=strict)
        if wanted.summarize_to:
            summary = self._write_digest(wanted, context)
            if summary is not None:
                return summary, wanted
            # The digest does not fit either. What is left is clipping the newest results.
            wanted = self._fit_plan(context, Plan(reason=plan.reason), summaries="none", strict=strict)
        return None, wanted

    def _write_digest(self, plan: Plan, context: DecisionContext) -> Summary | None:
        """Return the model-free digest as the summary of `plan`; None if it may not replace the turns."""
        asked = build_request(self.state, plan.summarize_to, self._summary_limit(plan))
        clean = redact_request(replace(asked, redaction=self.redaction))
        written = SummaryResult(text=write_digest(clean, self.sizer.count), route=MODEL_FREE.route)
        try:
            return self._accept_answer(plan, plan.summarize_to, written, MODEL_FREE, context)
        except SummaryError:
            return None

    # -- the log again -------------------------------------------------------------------------------------------

    def replay_events(self, events: Iterable[Event]) -> None:
        """Replay events that were recorded elsewhere, in their order; decisions are adopted as they were made.

        They may follow the events that are here already, if `can_append` allows it.
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
                    # Its turn was replayed where it first came; only the log keeps that it came twice.
                    self.events.append(event)
                case SummaryFailed() | PassDecided():
                    waiting.append(event)
                case RequestSent():
                    self._replay_call(waiting, event)
                    waiting = []
                case _:
                    self.record_event(event)

    def can_append(self, events: Iterable[Event]) -> bool:
        """Return whether `events` only add to what is here. If not, a turn came again with another result, and the
        whole log must be replayed.
        """
        newest = dict(enumerate(self.state.turns[-1:], start=len(self.state.turns)))
        for event in events:
            if isinstance(event, TurnAmended) and (known := newest.get(event.turn.index)) is not None:
                if not known.has_only_new_user_words(event.turn):
                    return False
                newest[event.turn.index] = event.turn
        return True

    def _replay_call(self, waiting: Sequence[SummaryFailed | PassDecided], called: RequestSent) -> None:
        """Replay a pass: the schedule's clock sees what it saw then, and the decision is adopted."""
        self.terms = replace(
            self.terms, no_cache_marks=called.unmarked, breakpoints=called.ours, hour_turn=called.hour_turn
        )
        context = self._make_context(called.at, called.model)
        before = self.state.track.tokens
        (decided,) = (event for event in waiting if isinstance(event, PassDecided))
        if not decided.held:
            self.policy.plan_pass(self.state, context)
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
    """Return the event that each turn is replayed from where it first comes: the one with all of its results.

    Return also the ids of the later events of turns by which only words of the user changed. known: earlier turns.
    """
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
    """Return the result that `answer` is, or the error of an answer that cannot be read."""
    try:
        if isinstance(answer, SummaryError):
            return answer
        return parse_answer(answer)
    except SummaryError as error:
        return error


def run_pass(steps: PassSteps, summarizer: Summarizer) -> View:
    """Run a pass to its end, and return its view. `summarizer` writes each summary that the pass asks for."""
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
