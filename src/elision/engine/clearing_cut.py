"""How far the provider may clear results where others refer to them.

Where thinking is bound, a folded result stays as it was first sent. So what it refers to leaves with it, or not before
it: the provider clears a run of the oldest results, and the end of that run must separate no reference from its source.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import msgspec

from elision.strategies.budget_tiers import fits_budget
from elision.strategies.decision_context import DecisionContext
from elision.strategies.policy import Policy
from elision.trajectory.plan import Key, Plan
from elision.trajectory.reference_spans import find_end, list_spans, lower_end, raise_end
from elision.trajectory.state import State

#: Share of what a pass would free that it has to free where references keep results; else it waits. Chosen on long
#: recordings at Fable's prices: early passes that free little cost more than folding saves.
LEAST_SHARE: Final = 0.75


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
        for key in sorted(state.observation_places):
            if key < end:
                policy.candidates.add_candidate(state, key, context.call)
        higher = policy.candidates.make_masks(key for key in policy.candidates.pending if key < end)
        return _add_short_results(policy, end, replace(plan, masks=higher))
    if is_forced or _count_freed(policy, lower) >= LEAST_SHARE * _count_freed(policy, plan):
        return _add_short_results(policy, end, lower)
    return replace(plan, masks=(), reason="waits: later results refer to what would be cleared")


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
