"""Estimate what masking, a summary, or doing nothing would cost at a call: what a schedule goes by.

What a summarizer call costs, by the cheaper of two routes (design 4).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from elision.strategies.decision_context import DecisionContext
from elision.strategies.mask_candidates import MaskCandidates
from elision.strategies.schedules import CostEstimates
from elision.strategies.triggers import SummaryTrigger
from elision.trajectory.prices import Prices
from elision.trajectory.state import State

#: The summarization prompt around the turns, in tokens; a test holds it against the prompt itself.
INSTRUCTION_TOKENS = 600
#: The label and frame around a summary's text in the view, in tokens.
BLOCK_TOKENS = 40


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
    folded_tokens: int = 0,
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
        summarize_now, summarized_before = _estimate_summary_costs(state, context, sent, summary)
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


def _estimate_summary_costs(
    state: State, context: DecisionContext, sent: int, summary: SummaryOffer
) -> tuple[float, float]:
    """Return what this call costs in USD after a summary made now, and if the summary had been made before."""
    entering = context.count_entering_tokens(hides=True)
    cached = context.count_cached_tokens(state, min(sent, state.head_length), entering)
    best_cached = max(cached, _count_best_cached(state, context, sent, summary.view_tokens, cached))
    return context.cost_prompt(summary.view_tokens, cached), context.cost_prompt(summary.view_tokens, best_cached)


def _count_best_cached(state: State, context: DecisionContext, sent: int, tokens: int, cached: int) -> int:
    """Return what a view of `tokens` would read from the cache if the last view had been like it."""
    if context.is_cache_cold():
        return cached
    added = state.track.tokens - state.track.count_tokens_before(sent)
    return context.prices.cache.count_usable(tokens - added)
