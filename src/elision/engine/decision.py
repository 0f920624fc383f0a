"""One pass over a log: decide what the next call hides, request the summary that this needs, and record it.

A summary that was requested and not used is recorded, too: why, and what it cost all the same. Where thinking is bound,
a folded result stays as it was first sent. So what it refers to leaves with it, or not before it: the provider clears a
run of the oldest results, and the end of that run must separate no reference from its source (`limit_clearing`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, get_args

import msgspec

from elision.engine.event_log import Log
from elision.engine.money import bill_summary_call
from elision.engine.terms import CallTerms
from elision.errors import BudgetError, SummaryCause, SummaryError, describe_error, words_of_error
from elision.strategies.budget_tiers import SHORT_SUMMARY_TOKENS, PossibleSummaries, fit_to_budget, fits_budget
from elision.strategies.decision_context import DecisionContext
from elision.strategies.policy import FORCED, NOTHING_ELIGIBLE, Policy
from elision.strategies.schedules import SummaryCall
from elision.summarizers.digest import write_digest
from elision.summarizers.summary_acceptance import (
    MODEL_FREE,
    accept_summary,
    bill_call,
    build_request,
    count_replaced_tokens,
    estimate_call,
    redact_request,
)
from elision.summarizers.summary_checks import SummaryResult, parse_answer
from elision.trajectory.events import PassDecided, SummaryFailed
from elision.trajectory.foreign_text import make_encodable
from elision.trajectory.plan import Edit, Key, Plan, Summary, SummaryRequest, find_end, list_spans, lower_end, raise_end
from elision.trajectory.state import State
from elision.trajectory.view import View

#: Most characters of the reason why a summary failed.
_REASON: Final = 500
#: Share of what a pass would free that it has to free where references keep results; else it waits. Chosen on long
#: recordings at Fable's prices: early passes that free little cost more than folding saves.
LEAST_SHARE: Final = 0.75


#: Writes the summary that a request asks for. Raises SummaryError if it cannot.
Summarizer: TypeAlias = Callable[[SummaryRequest], "str | SummaryResult"]

#: The reason of a pass whose summary is written in the background.
SUMMARY_BEING_WRITTEN: Final = "summary is being written"


@dataclass(frozen=True, slots=True)
class NotReady:
    """The answer while the summary is still being written: this pass continues without it."""


#: What a pass receives for the request that it yields.
SummaryAnswer: TypeAlias = str | SummaryResult | SummaryError | NotReady
PassSteps: TypeAlias = Generator[SummaryRequest, SummaryAnswer, View]


def decide(log: Log, terms: CallTerms) -> PassSteps:
    """Decide, record the decision in `log`, and return the view of the next call.

    Yields a SummaryRequest if a summary must be written first. `redact_request` has to redact it before a summarizer
    gets it. Nothing is recorded before the end: a pass that is broken off leaves the events of the log as they were.

    Raises BudgetError if not even the smallest view fits. Unless the terms are strict that view is returned, and
    `log.newest_call` has the error.
    """
    if log.policy.decides or terms.summarizes_all:
        return (yield from _Pass(log, terms).run())
    # A strategy that never hides: nothing is weighed, and nobody asks what the call would cost.
    reason = FORCED if terms.hides_all else NOTHING_ELIGIBLE
    decided = PassDecided(
        len(log.state.turns) + 1, reason, offers=_offers_at_once(log, terms), bound=not terms.may_summarize
    )
    return log.record_call((), decided, terms)


def hold_view(log: Log, reason: str, terms: CallTerms) -> View:
    """Return the view as decided so far, after a pass that decides nothing."""
    decided = PassDecided(len(log.state.turns) + 1, f"held: {reason}", offers=_offers_at_once(log, terms), held=True)
    return log.record_call((), decided, terms)


def _offers_at_once(log: Log, terms: CallTerms) -> bool:
    """Return whether the recall tools enter with the call although it hides nothing."""
    return log.state.recall_offer == "start" and log.can_add_recall_tools(terms)


class _Pass:
    """One pass.

    failures: of the summaries that it requested. summary_obstacle: why none was made, as far as known.
    """

    def __init__(self, log: Log, terms: CallTerms) -> None:
        self.log = log
        self.terms = terms
        self.state = log.state
        self.policy = log.policy
        self.context = log.make_context(terms)
        self.failures: list[SummaryFailed] = []
        self.budget_error: BudgetError | None = None
        self.summary_obstacle = ""

    def run(self) -> PassSteps:
        """Make the pass, stage by stage; see `decide`. Each stage changes the plan of the one before."""
        plan = self._plan_edits()
        if self.context.view_limit is not None:
            possible: PossibleSummaries = "model"
            if not self.terms.may_summarize:
                possible = "none"
            elif self.policy.trigger is None or not self.log.breaker.may_ask(self.context.call):
                possible = "digest"
            plan = self._fit_plan(plan, possible)
        is_asked = plan.summarize_to > 0
        summary = None
        if is_asked:
            summary, plan = yield from self._make_summary(plan)
        may_not_fit = summary is None and (is_asked or self.budget_error is not None)
        if may_not_fit and not fits_budget(self.policy, self.state, self.context, plan):
            summary, plan = self._fit_without_summarizer(plan)
        if self._is_bound:
            plan = limit_clearing(self.policy, self.state, self.context, plan, is_forced=self.terms.hides_all)
        return self._record(plan, summary)

    @property
    def _is_bound(self) -> bool:
        """Whether the provider clears results itself, and messages stay as this request first shows them."""
        return not self.terms.may_summarize

    def _plan_edits(self) -> Plan:
        """Return what the strategy wants, as far as the terms of the call allow it, whatever the budget is."""
        plan = self.policy.plan_pass(self.state, self.context, forced=self.terms.hides_all)
        if self.terms.summarizes_all:
            plan = self._plan_whole_summary(plan)
        if plan.summarize_to and not self.terms.may_summarize:
            # No summary could be sent: all that is pending is masked instead.
            plan = replace(plan, summarize_to=0, masks=self.policy.candidates.make_masks_after(0))
        if self.terms.editable_from > 1:
            # Only from here on: a fold asks the policy again, and does not know what could be edited then.
            self.context = msgspec.structs.replace(self.context, editable_from=self.terms.editable_from)
            plan = self._defer_bound_edits(plan)
        return plan

    def _make_summary(self, plan: Plan) -> Generator[SummaryRequest, SummaryAnswer, tuple[Summary | None, Plan]]:
        """Return the summary of `plan`, if one is made, and the plan that is left."""
        summary = None
        if plan.is_model_free:
            summary = self._write_digest(plan)
        elif self.log.breaker.may_ask(self.context.call):
            answer = yield self._request_summary(plan)
            summary, plan = self._settle_summary(plan, answer)
        else:
            # Nobody is asked now. Results that the summary would have covered are hidden as well.
            plan = self._plan_masks_instead(plan.reason)
        if summary is None:
            plan = replace(plan, summarize_to=0)
        return summary, plan

    def _record(self, plan: Plan, summary: Summary | None) -> View:
        """Record the decision, with what it folds and unfolds. From here on nothing breaks the pass off."""
        masks = plan.masks
        folds: tuple[Edit, ...] = ()
        if self.policy.tracks_folds:
            covers = summary.covers if summary is not None else 0
            fold_from = self.terms.new_from if self.terms.may_fold else None
            folding = self.policy.plan_folds(self.state, plan, covers, fold_from, is_bound=self._is_bound)
            folds = folding.edits
            if folding.masked:
                masks = self.policy.candidates.make_masks([*(mask.key for mask in masks), *folding.masked])
        decided = PassDecided(
            self.context.call,
            plan.reason,
            (*masks, *plan.clips, *folds),
            summary,
            self._brings_recall_tools(plan, summary),
            bound=self._is_bound,
        )
        obstacle = self._find_summary_obstacle(plan) if self.terms.summarizes_all and summary is None else ""
        return self.log.record_call(self.failures, decided, self.terms, self.budget_error, obstacle)

    def _plan_whole_summary(self, plan: Plan) -> Plan:
        """Return a plan that replaces all turns but the tail by a summary; `plan` where that cannot be done."""
        covers, limit = self.policy.find_whole_summary(self.state, self.context)
        if not covers:
            self.summary_obstacle = "no turn outside the tail is left to summarize"
            return plan
        longest = self.log.strategy.summary_max_tokens
        if limit < min(SHORT_SUMMARY_TOKENS, longest):
            self.summary_obstacle = f"turns up to {covers} are too short for a summary to be shorter"
            return plan
        masks = self.policy.candidates.make_masks_after(covers)
        return Plan(
            masks=masks, summarize_to=covers, summary_tokens=limit if limit < longest else 0, reason=plan.reason
        )

    def _find_summary_obstacle(self, plan: Plan) -> str:
        """Return why a pass that had to summarize has no summary."""
        if self.summary_obstacle:
            return self.summary_obstacle
        if not self.terms.may_summarize:
            return "the provider clears results itself, and messages stay unchanged"
        if plan.reason == FORCED and not self.log.breaker.may_ask(self.context.call):
            return f"an earlier one failed, and the next attempt is at call {self.log.breaker.retry_at}"
        return plan.reason

    def _brings_recall_tools(self, plan: Plan, summary: Summary | None) -> bool:
        """Return whether the recall tools enter with a pass that hides what `plan` says, and makes `summary`."""
        if _offers_at_once(self.log, self.terms):
            return True
        hides_others = bool(plan.clips or summary)
        if not (plan.masks or hides_others) or not self.log.can_add_recall_tools(self.terms):
            return False
        return self.policy.needs_recall(masks=bool(plan.masks), others=hides_others)

    def _fit_plan(self, plan: Plan, summaries: PossibleSummaries) -> Plan:
        """Return `plan`, with more of it hidden where the view would not fit."""
        try:
            return fit_to_budget(self.policy, self.state, self.context, plan, summaries=summaries)
        except BudgetError as error:
            if self.terms.is_strict:
                raise
            self.budget_error = error
            return fit_to_budget(self.policy, self.state, self.context, plan, summaries=summaries, strict=False)

    def _defer_bound_edits(self, plan: Plan) -> Plan:
        """Return what `plan` may do now: it must not edit what precedes thinking that stays and is bound to it."""
        first = self.terms.editable_from
        if plan.summarize_to >= first:
            return plan
        masks = tuple(mask for mask in plan.masks if mask.key[0] >= first)
        if masks == plan.masks and not plan.summarize_to:
            return plan
        reason = f"deferred: thinking in turn {first} is bound to what precedes it"
        return Plan(masks=masks, clips=plan.clips, reason=reason)

    def _plan_masks_instead(self, reason: str) -> Plan:
        """Return a plan that masks everything pending in place of a summary, save what precedes bound thinking."""
        return Plan(masks=self.policy.candidates.make_masks_after(self.terms.editable_from - 1), reason=reason)

    # -- summaries -----------------------------------------------------------------------------------------------

    def _summary_limit(self, plan: Plan) -> int:
        """Return the most tokens that the summary of `plan` may have."""
        return plan.summary_tokens or self.log.strategy.summary_max_tokens

    def _request_summary(self, plan: Plan) -> SummaryRequest:
        limit = self._summary_limit(plan)
        route = estimate_call(self.state, self.context, plan.summarize_to, limit).route
        asked = build_request(self.state, plan.summarize_to, limit, "extend" if route == "extend" else "fresh")
        # It is redacted just before the summary is written. That is work on all of the history, which would be wasted
        # while another summary is being written.
        # In shadow mode the view is not sent: the agent waits for nothing.
        is_urgent = plan.is_urgent and not self.state.shadow
        return replace(asked, redaction=self.log.setup.redaction, is_urgent=is_urgent)

    def _settle_summary(self, plan: Plan, answer: SummaryAnswer) -> tuple[Summary | None, Plan]:
        """Return the summary, and the plan that is left."""
        if isinstance(answer, NotReady):
            return None, Plan(reason=SUMMARY_BEING_WRITTEN)
        parsed = _parse_answer(answer)
        covers = (parsed.covers if isinstance(parsed, SummaryResult) else 0) or plan.summarize_to
        call = bill_call(self.state, self.context, covers, parsed)
        try:
            summary = self._accept_answer(plan, covers, parsed, call)
        except Exception as error:  # noqa: BLE001 - after an answer that cannot be used the breaker delays the next one
            failed = describe_failure(self.log, error, call, self.context.call)
            self.failures.append(failed)
            reason = f"summary rejected: {failed.reason}"
            # Above a strict threshold, or where all is to be hidden, masking is better than nothing; else a failed
            # summary changes nothing.
            if plan.is_urgent or plan.reason == FORCED:
                return None, self._plan_masks_instead(reason)
            return None, Plan(reason=reason)
        if covers < plan.summarize_to:
            # It was written in the background for fewer turns. What is pending after them is masked in this rewrite.
            masks = self.policy.candidates.make_masks_after(covers)
            plan = replace(plan, masks=masks, summarize_to=covers)
        return summary, plan

    def _accept_answer(
        self, plan: Plan, covers: int, answer: SummaryResult | SummaryError, call: SummaryCall
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
        editable_from = self.terms.editable_from
        if covers < editable_from:
            wrong = f"it covers turns up to {covers}, and thinking in turn {editable_from} is bound to them"
            raise SummaryError(wrong, cause="malformed")
        limit = self._summary_limit(plan)
        room = self._measure_room(plan, covers)
        return accept_summary(
            self.state,
            self.policy,
            covers,
            answer.text,
            call,
            self.log.setup.redaction,
            max_tokens=limit,
            room_tokens=room,
            writer=answer.writer,
        )

    def _measure_room(self, plan: Plan, covers: int) -> int | None:
        """Return the most tokens that may replace turns 1 ... `covers` in a view that fits; None if no view does."""
        if self.context.view_limit is None or self.budget_error is not None:
            return None
        pending = self.policy.candidates.pending
        saved = sum(pending[mask.key].saved_tokens for mask in plan.masks if mask.key[0] > covers)
        saved -= self.policy.folding.ledger.measure_exposure(covers, covers=True).most
        for clip in plan.clips:
            saved += self.state.find_segment(clip.key).tokens - self.state.sizer.count_text(clip.text)
        rest = (
            self.state.track.tokens
            - count_replaced_tokens(self.state, covers)
            - saved
            + self.context.count_entering_tokens(hides=True)
        )
        return self.context.view_limit - rest

    def _fit_without_summarizer(self, plan: Plan) -> tuple[Summary | None, Plan]:
        """Return a summary and a plan that fit without a summarizer: the model-free digest, then clipped results."""
        wanted = self._fit_plan(replace(plan, summarize_to=0), "digest" if self.terms.may_summarize else "none")
        if wanted.summarize_to:
            summary = self._write_digest(wanted)
            if summary is not None:
                return summary, wanted
            # The digest does not fit either. What is left is clipping the newest results.
            wanted = self._fit_plan(Plan(reason=plan.reason), "none")
        return None, wanted

    def _write_digest(self, plan: Plan) -> Summary | None:
        """Return the model-free digest as the summary of `plan`; None if it may not replace the turns."""
        asked = build_request(self.state, plan.summarize_to, self._summary_limit(plan))
        clean = redact_request(replace(asked, redaction=self.log.setup.redaction))
        written = SummaryResult(text=write_digest(clean, self.state.sizer.count), route=MODEL_FREE.route)
        try:
            return self._accept_answer(plan, plan.summarize_to, written, MODEL_FREE)
        except SummaryError:
            return None


def expect_request(log: Log) -> SummaryRequest | None:
    """Return the request that the call after the next turn is expected to make; None for none."""
    newest = log.newest_call
    if newest is not None and not newest.terms.may_summarize:
        return None
    covers = log.policy.find_next_summary(log.state)
    if not covers or not log.breaker.may_ask(len(log.state.turns) + 2):
        return None
    asked = build_request(log.state, covers, log.strategy.summary_max_tokens, newest=len(log.state.turns))
    return replace(asked, redaction=log.setup.redaction)


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
            try:
                answer: SummaryAnswer = summarizer(redact_request(request))
            except SummaryError as error:
                answer = error
            request = steps.send(answer)
    except StopIteration as done:
        view: View = done.value
        return view


def describe_failure(log: Log, error: Exception, used: SummaryCall, call: int) -> SummaryFailed:
    """Return the record that the summary that call `call` asked for failed with `error`. used: what it cost."""
    cause: SummaryCause = "other"
    message = f"it could not be used: {describe_error(error)}"
    if isinstance(error, SummaryError):
        cause = error.cause if error.cause in get_args(SummaryCause) else cause
        message = words_of_error(error)
    cost = bill_summary_call(log.prices, used.input, used.cached, used.output, used.usd)
    return SummaryFailed(
        call=call,
        cause=cause,
        reason=log.setup.redaction.redact_text(make_encodable(message[: 4 * _REASON]))[:_REASON],
        input=used.input,
        cached=used.cached,
        output=used.output,
        usd=cost.usd,
        retry_at=log.breaker.find_retry(call),
    )


def write_off_attempt(log: Log, event: SummaryFailed | PassDecided) -> None:
    """Record that a summary was paid for in a pass that was not stored; the breaker delays the next request.

    event: what that pass recorded. Nothing happens if it is in the log after all.
    """
    if event in log.events:
        return
    if isinstance(event, SummaryFailed):
        log.write_off_summary(msgspec.structs.replace(event, retry_at=log.breaker.find_retry(event.call)))
    elif (made := event.summary) is not None:
        used = SummaryCall(
            route=made.route,
            input=made.input_tokens,
            cached=made.cached_tokens,
            output=made.output_tokens,
            usd=bill_summary_call(log.prices, made.input_tokens, made.cached_tokens, made.output_tokens, made.usd).usd,
        )
        error = SummaryError("it was not stored, and is not used")
        log.write_off_summary(describe_failure(log, error, used, event.call))


def limit_clearing(policy: Policy, state: State, context: DecisionContext, plan: Plan, *, is_forced: bool) -> Plan:
    """Return `plan` with masks up to an end that separates no reference from its source.

    It is the last such end, unless so little would be freed that it pays to wait. Above the budget it is the next one
    instead. is_forced: whether all that may be hidden is hidden at once.
    """
    # No thinking follows the newest turn yet, so its results may be shown otherwise.
    folds = [
        fold
        for fold in state.list_fixed_folds()
        if fold.key[0] < context.call - 1 and state.find_hiding_text(fold.key) is None
    ]
    if not folds or not plan.masks:
        return plan
    spans = list_spans(folds)
    wanted = find_end(max(mask.key for mask in plan.masks))
    end = lower_end(wanted, spans)
    lower = replace(plan, masks=tuple(mask for mask in plan.masks if mask.key < end))
    if not _fits_with_clips(policy, state, context, lower):
        end = raise_end(wanted, spans)
        return _add_short_results(policy, end, _mask_up_to(end, policy, state, context, plan))
    if is_forced or _count_freed(policy, lower) >= LEAST_SHARE * _count_freed(policy, plan):
        return _add_short_results(policy, end, lower)
    return replace(plan, masks=(), reason="waits: later results refer to what would be cleared")


def _mask_up_to(end: Key, policy: Policy, state: State, context: DecisionContext, plan: Plan) -> Plan:
    """Return `plan` with masks of all results before `end`, due or not."""
    for key in sorted(state.observation_places):
        if key < end:
            policy.candidates.add_candidate(state, key, context.call)
    masks = policy.candidates.make_masks(key for key in policy.candidates.pending if key < end)
    return replace(plan, masks=masks)


def _fits_with_clips(policy: Policy, state: State, context: DecisionContext, plan: Plan) -> bool:
    """Return whether the view fits its budget once `plan` is done, its clips too."""
    if context.view_limit is not None:
        clipped = sum(state.find_segment(clip.key).tokens - state.sizer.count_text(clip.text) for clip in plan.clips)
        context = msgspec.structs.replace(context, view_limit=context.view_limit + clipped)
    return fits_budget(policy, state, context, plan)


def _count_freed(policy: Policy, plan: Plan) -> int:
    return sum(policy.candidates.pending[mask.key].saved_tokens for mask in plan.masks)


def _add_short_results(policy: Policy, end: Key, plan: Plan) -> Plan:
    """Return `plan` with masks of what is too short to be masked for its own sake, and leaves with its source."""
    if not plan.masks:
        return plan
    short = (key for key in policy.candidates.waiting if key < end)
    return replace(plan, masks=policy.candidates.make_masks([*(mask.key for mask in plan.masks), *short]))
