"""Estimate what masking, a summary, or doing nothing would cost at a call: what a schedule goes by."""

from __future__ import annotations

from elision.strategies.decision_context import DecisionContext
from elision.strategies.mask_candidates import MaskCandidates
from elision.strategies.schedules import CostEstimates
from elision.strategies.summary_cost import SummaryOffer
from elision.strategies.triggers import SummaryTrigger
from elision.trajectory.state import State


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
