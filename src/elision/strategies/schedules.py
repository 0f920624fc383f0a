"""When hiding pays. A strategy says what it may hide; a schedule says when doing it is worth a rewrite (design 4).

A schedule goes by `CostEstimates`: what masking, a summary, or doing nothing would cost at the call.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Protocol, TypeAlias

import msgspec

from elision.errors import SpecError
from elision.strategies.decision_context import DecisionContext
from elision.strategies.mask_candidates import MaskCandidates
from elision.strategies.selectors import SummaryTrigger
from elision.trajectory.prices import Prices
from elision.trajectory.state import State

Verdict: TypeAlias = Literal["hold", "mask", "summarize"]

#: Our bill, the call at hand included, stays within this many times the bill of sending everything so far.
SPENDING_CAP = 1.10
#: Calls expected to come, as a share of those made. Measured on the corpus: 0.3 acts too late, 1 too early.
HORIZON_SHARE = 0.5
#: A masking made while a summary is allowed lives that much shorter: the summary may come at any call.
CLOSING_SHARE = 0.25
#: The summarization prompt around the turns, in tokens; a test holds it against the prompt itself.
INSTRUCTION_TOKENS = 600
#: The label and frame around a summary's text in the view, in tokens.
BLOCK_TOKENS = 40


class CostEstimates(msgspec.Struct, frozen=True, kw_only=True):
    """What could be done at this call, and what each choice would cost. All costs in USD, prompt side.

    can_mask:       whether anything can be masked.
    can_summarize:  whether a summary may be made.
    is_summary_shortened: whether it has to be shorter than its limit, or the view would not shrink. Then it saves next
                    to nothing, and only a schedule that acts at once makes it.
    cost_hold:      this call if nothing is done.
    cost_mask_now:  this call if everything pending is masked now.
    cost_if_masked_before: this call if that had been masked before. `cost_hold` minus this is what holding loses.
    cost_floor:     this call if only what follows the newest pending observation had to be written again.
    cost_summarize_now: this call after a new summary made now, without the summarizer.
    cost_if_summarized_before: this call if that summary had been made before.
    cost_summarizer: the call that writes the summary.
    cost_summarizer_fixed: the part of it that does not grow with what the summary covers.
    turns_since_summary: turns that the last summary does not cover.
    calls_until_summary: calls until one may be made because of turns alone; None if unknown.
    spent_usd:      our bill before this call.
    raw_usd:        the bill of sending everything, this call included.
    folded_share:   of the tokens of sending everything, those that folding leaves out without hiding anything.
    is_cache_cold:  whether the cache holds nothing of this conversation.
    is_warm_elsewhere: whether it is cold, but another model's cache holds the conversation.
    is_below_cache_minimum: whether the view would be too small to be cached at all.
    """

    call: int
    can_mask: bool = False
    can_summarize: bool = False
    is_summary_shortened: bool = False
    cost_hold: float = 0.0
    cost_mask_now: float = 0.0
    cost_if_masked_before: float = 0.0
    cost_floor: float = 0.0
    cost_summarize_now: float = 0.0
    cost_if_summarized_before: float = 0.0
    cost_summarizer: float = 0.0
    cost_summarizer_fixed: float = 0.0
    turns_since_summary: int = 0
    calls_until_summary: int | None = None
    spent_usd: float = 0.0
    raw_usd: float = 0.0
    folded_share: float = 0.0
    is_cache_cold: bool = False
    is_warm_elsewhere: bool = False
    is_below_cache_minimum: bool = False


class ScheduleClock(Protocol):
    """One session's memory of a schedule."""

    def choose_action(self, costs: CostEstimates) -> tuple[Verdict, str]:
        """Return what to do at this call, and why in a few words.

        It is asked again where a pass was broken off: only what is recorded counts.
        """
        ...

    def record_action(self, verdict: Verdict) -> None:
        """Take note of what was really done at the call that it was asked about last."""
        ...


class Schedule(Protocol):
    """When to act. Frozen; `start_clock` begins a session."""

    name: ClassVar[str]

    def start_clock(self) -> ScheduleClock: ...


@dataclass(frozen=True, slots=True)
class EveryTurnSchedule:
    """At once: the published behaviour."""

    name: ClassVar[str] = "every-turn"

    def start_clock(self) -> ScheduleClock:
        return self

    def choose_action(self, costs: CostEstimates) -> tuple[Verdict, str]:
        if costs.can_summarize:
            return "summarize", "summary due"
        if costs.can_mask:
            return "mask", "eligible"
        return "hold", "nothing eligible"

    def record_action(self, verdict: Verdict) -> None:
        """Do nothing: this schedule has no memory."""

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class CacheAwareSchedule:
    """Hold until holding has cost as much as rewriting would, within 1.10 x the bill of sending everything.

    This is lot sizing (design 4). What follows the newest eligible turn has to be written again, however long the
    schedule waits: holding is weighed against that part. What is between the first and the newest eligible turn is
    paid once either way. It does not decide when to rewrite, but whether: a rewrite has to pay for itself within the
    calls that are expected to come. Their number is unknown. The prior is half as many as were made
    (`HORIZON_SHARE`), limited by the calls until a summary may be made, which would undo the masking.

    max_turns: turns after which the run ends at the latest; None if unknown. A rewrite that the calls up to there
    cannot pay back is not made.
    """

    name: ClassVar[str] = "cache-aware"
    max_turns: int | None = None

    def __post_init__(self) -> None:
        if self.max_turns is not None and self.max_turns < 1:
            raise SpecError(f"cache-aware(max_turns={self.max_turns}): give turns, 1 or more")

    def start_clock(self) -> ScheduleClock:
        return _Accrual(self.max_turns)

    def __str__(self) -> str:
        if self.max_turns is None:
            return self.name
        return f"{self.name}(max_turns={self.max_turns})"


@dataclass(slots=True)
class _Accrual:
    """What holding has cost since the last rewrite, in USD. max_turns: those of the schedule.

    lost_usd: before the present call. lost_with_call: with what holding at it loses.
    folded_usd, raw_usd: what folding alone saved of sending everything, and the bill of that, before the present call.
    folded_with_call, raw_with_call: with it.
    """

    max_turns: int | None = None
    lost_usd: float = 0.0
    lost_with_call: float = 0.0
    folded_usd: float = 0.0
    folded_with_call: float = 0.0
    raw_usd: float = 0.0
    raw_with_call: float = 0.0

    def choose_action(self, costs: CostEstimates) -> tuple[Verdict, str]:
        self.lost_with_call = self.lost_usd
        self.raw_with_call = costs.raw_usd
        self.folded_with_call = self.folded_usd + max(0.0, costs.raw_usd - self.raw_usd) * costs.folded_share
        # Where nothing can be masked both cost the same.
        self.lost_with_call += max(0.0, costs.cost_hold - costs.cost_if_masked_before)
        if costs.can_summarize and not costs.is_summary_shortened and self._is_summary_worthwhile(costs):
            return "summarize", "summary pays"
        if not costs.can_mask:
            return "hold", "nothing eligible"
        if costs.is_below_cache_minimum:
            return "hold", "too small to cache"
        if costs.is_cache_cold and costs.is_warm_elsewhere:
            return "hold", "another model's cache is warm"
        if costs.cost_mask_now <= costs.cost_hold:
            return "mask", "cold cache" if costs.is_cache_cold else "rewrite is free"
        if self.lost_with_call < costs.cost_floor - costs.cost_if_masked_before:
            return "hold", "rewrite not yet paid for"
        saved_per_call = costs.cost_hold - costs.cost_if_masked_before
        rewrite = costs.cost_mask_now - costs.cost_if_masked_before
        if self._estimate_future_calls(costs) * saved_per_call < rewrite:
            return "hold", "rewrite would not pay"
        spent = costs.spent_usd + costs.cost_mask_now
        if costs.is_warm_elsewhere:
            # The other model has to write everything again as well, when it is asked next.
            spent += rewrite
        if spent > self._limit_spending(costs):
            return "hold", "cap on raw"
        return "mask", "rewrite pays"

    def record_action(self, verdict: Verdict) -> None:
        self.lost_usd = self.lost_with_call if verdict == "hold" else 0.0
        self.lost_with_call = self.lost_usd
        self.folded_usd = self.folded_with_call
        self.raw_usd = self.raw_with_call

    def _limit_spending(self, costs: CostEstimates) -> float:
        """Return the cap in USD. What folding saves is not there to be spent on rewrites: it is saved without them."""
        return SPENDING_CAP * (costs.raw_usd - self.folded_with_call)

    def _estimate_horizon(self, call: int) -> float:
        """Return how many calls are expected from call `call` on, that one included."""
        horizon = HORIZON_SHARE * call
        # A run that continues after its limit ends at another one.
        if self.max_turns is not None and call <= self.max_turns:
            # Never more than without a limit: runs end before it. Where each run's end was given, horizons up to it
            # saved less than this, since they act early in runs that then grow little.
            return min(horizon, self.max_turns - call + 1)
        return horizon

    def _estimate_future_calls(self, costs: CostEstimates) -> float:
        """Return how many calls a masking made now is expected to serve."""
        horizon = self._estimate_horizon(costs.call)
        if costs.can_summarize and not costs.is_summary_shortened:
            return CLOSING_SHARE * horizon
        if costs.calls_until_summary:
            return min(horizon, costs.calls_until_summary)
        return horizon

    def _is_summary_worthwhile(self, costs: CostEstimates) -> bool:
        gain = costs.cost_hold - costs.cost_if_summarized_before
        rewrite = costs.cost_summarize_now - costs.cost_if_summarized_before
        if costs.is_below_cache_minimum:
            return False
        # What holding has cost since the last summary: it has grown from nothing to `gain` a call, half of that a call.
        if gain * costs.turns_since_summary / 2 < rewrite + costs.cost_summarizer_fixed:
            return False
        # A summary that fails its checks is paid for, and the view stays as it was.
        worst_case = max(costs.cost_summarize_now, costs.cost_hold) + costs.cost_summarizer
        if costs.is_warm_elsewhere:
            worst_case += rewrite
        if costs.spent_usd + worst_case > self._limit_spending(costs):
            return False
        return gain * self._estimate_horizon(costs.call) >= rewrite + costs.cost_summarizer


@dataclass(frozen=True, slots=True)
class FixedSchedule:
    """At given calls and no others: a plan from elsewhere, such as the lab's hindsight.

    mask_calls, summary_calls: calls at which to mask what is pending, and to summarize as well.
    """

    name: ClassVar[str] = "fixed"
    mask_calls: frozenset[int] = frozenset()
    summary_calls: frozenset[int] = frozenset()

    def start_clock(self) -> ScheduleClock:
        return self

    def choose_action(self, costs: CostEstimates) -> tuple[Verdict, str]:
        if costs.call in self.summary_calls and costs.can_summarize:
            return "summarize", "planned"
        if costs.call in self.mask_calls and costs.can_mask:
            return "mask", "planned"
        return "hold", "not planned"

    def record_action(self, verdict: Verdict) -> None:
        """Do nothing: this schedule has no memory."""


@dataclass(frozen=True, slots=True)
class HindsightSchedule:
    """The cheapest schedule for a run that is already known; the lab works it out (design 4)."""

    name: ClassVar[str] = "hindsight"

    def start_clock(self) -> ScheduleClock:
        raise SpecError("schedule=hindsight needs a recorded run: it works in `elision replay` and `elision view` only")

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryCall:
    """One summarizer call as billed. Tokens; input includes cached; usd in USD.

    fixed_usd: the part of usd that waiting does not make larger.
    """

    route: str
    input: int
    cached: int
    output: int
    usd: float
    fixed_usd: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOffer:
    """A summary that may be made now: the newest turn that it covers, the tokens of the view with it, and its cost.

    shortened_to: its most tokens, where one as long as the strategy's limit would not make the view smaller; 0 for that
    limit.
    """

    covers: int
    view_tokens: int
    call: SummaryCall
    shortened_to: int = 0


def limit_user_words(user_tokens: int, keep: int, limit: int) -> int:
    """Tokens that the user's `user_tokens` in covered turns take behind a summary, at most: what is beyond `keep` is
    quoted in the block, within `limit` in all."""
    if user_tokens <= keep:
        return user_tokens
    return keep + limit


def choose_summary_call(
    prices: Prices, *, covered: int, previous: int, live: int, live_cached: int, hidden: int, output: int
) -> SummaryCall:
    """The cheaper route.

    covered: raw tokens of the newly covered turns. previous: of the previous summary or the task.
    live, live_cached: tokens of the live view, and how much of it is in cache now.
    hidden: raw tokens of covered observations that the live view only holds placeholders of; the extending request
    has to carry them again, since a summary is written from unmasked turns.
    """
    fresh = INSTRUCTION_TOKENS + previous + covered
    extend = INSTRUCTION_TOKENS + live + hidden
    routes = (("fresh", fresh, 0), ("extend", extend, live_cached))
    calls = [
        SummaryCall(
            route=route,
            input=prompt,
            cached=cached,
            output=output,
            usd=prices.bill_call(prompt, cached, output).usd,
        )
        for route, prompt, cached in routes
    ]
    least = min(calls, key=lambda call: call.usd)
    # What does not grow with the turns covered: it is paid once a summary, however long that waits.
    fixed = prices.bill_call(INSTRUCTION_TOKENS + previous, 0, output).usd
    return replace(least, fixed_usd=min(fixed, least.usd))


def estimate_costs(
    candidates: MaskCandidates,
    trigger: SummaryTrigger | None,
    state: State,
    context: DecisionContext,
    summary: SummaryOffer | None,
    folded_tokens: int,
) -> CostEstimates:
    """Return what each choice would cost at this call. summary: the one that may be made; None for none.

    Where nothing can be hidden, no cost is estimated. folded_tokens: those that folding left out of new results so far.
    """
    folded_share = folded_tokens / state.raw_track.tokens if folded_tokens else 0.0
    if summary is None and not candidates.pending:
        return CostEstimates(
            call=context.call, spent_usd=context.spent_usd, raw_usd=context.raw_usd, folded_share=folded_share
        )
    sent = state.unchanged_length
    tools = context.count_entering_tokens(hides=False)
    hold = context.cost_prompt(state.track.tokens + tools, context.count_cached_tokens(state, sent, tools))
    if candidates.pending:
        mask_now, masked_before, floor = _estimate_mask_costs(candidates, state, context, sent)
    else:
        mask_now = masked_before = floor = hold
    entering = context.count_entering_tokens(hides=candidates.placeholders.names_handle)
    smallest_view = state.track.tokens - candidates.pending_tokens + entering
    summarize_now = summarized_before = masked_before
    cost_summarizer = cost_summarizer_fixed = 0.0
    if summary is not None:
        tools = context.count_entering_tokens(hides=True)
        cached = context.count_cached_tokens(state, min(sent, state.head_length), tools)
        best_cached = max(cached, _count_best_cached(state, context, sent, summary.view_tokens, cached))
        summarize_now = context.cost_prompt(summary.view_tokens, cached)
        summarized_before = context.cost_prompt(summary.view_tokens, best_cached)
        smallest_view = min(smallest_view, summary.view_tokens)
        cost_summarizer = summary.call.usd
        cost_summarizer_fixed = summary.call.fixed_usd
    return CostEstimates(
        call=context.call,
        can_mask=bool(candidates.pending),
        can_summarize=summary is not None,
        is_summary_shortened=summary is not None and summary.shortened_to > 0,
        cost_hold=hold,
        cost_mask_now=mask_now,
        cost_if_masked_before=masked_before,
        cost_floor=floor,
        cost_summarize_now=summarize_now,
        cost_if_summarized_before=summarized_before,
        cost_summarizer=cost_summarizer,
        cost_summarizer_fixed=cost_summarizer_fixed,
        turns_since_summary=context.call - 1 - state.covered_turns,
        calls_until_summary=trigger.count_calls_until(state, context.call) if trigger else None,
        spent_usd=context.spent_usd,
        raw_usd=context.raw_usd,
        folded_share=folded_share,
        is_cache_cold=context.is_cache_cold(),
        is_warm_elsewhere=context.is_warm_elsewhere(),
        # Even while the raw view is as small: it would be cached first, and ours would be the more expensive one.
        is_below_cache_minimum=context.prices.has_cache and smallest_view < context.prices.cache.minimum,
    )


def _estimate_mask_costs(
    candidates: MaskCandidates, state: State, context: DecisionContext, sent: int
) -> tuple[float, float, float]:
    """Return what this call costs in USD if everything pending is masked now, if it had been masked before, and if
    only what follows the newest pending observation is written again.

    sent: segments of the last view.
    """
    entering = context.count_entering_tokens(hides=candidates.placeholders.names_handle)
    tokens = state.track.tokens - candidates.pending_tokens + entering
    assert candidates.first_pending is not None
    newest = next(reversed(candidates.pending))
    cached = context.count_cached_tokens(state, min(sent, state.observation_places[candidates.first_pending]), entering)
    best_cached = max(cached, _count_best_cached(state, context, sent, tokens, cached))
    up_to_newest = state.track.ends[state.observation_places[newest]] - candidates.pending_tokens + entering
    floor_cached = max(cached, min(best_cached, context.prices.cache.count_usable(up_to_newest)))
    return (
        context.cost_prompt(tokens, cached),
        context.cost_prompt(tokens, best_cached),
        context.cost_prompt(tokens, floor_cached),
    )


def _count_best_cached(state: State, context: DecisionContext, sent: int, tokens: int, cached: int) -> int:
    """Return what a view of `tokens` would read from the cache if the last view had been like it."""
    if context.is_cache_cold():
        return cached
    added = state.track.tokens - state.track.count_tokens_before(sent)
    return context.prices.cache.count_usable(tokens - added)
