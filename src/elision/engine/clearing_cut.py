"""How far the provider may clear results where others refer to them.

Where thinking is bound, a folded result stays as it was first sent. So what it refers to leaves with it, or not before
it: the provider clears a run of the oldest results, and the end of that run must separate no reference from its source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from elision.strategies.budget_tiers import fits_budget
from elision.strategies.decision_context import DecisionContext
from elision.strategies.policy import Policy
from elision.trajectory.plan import Fold, Key, Plan
from elision.trajectory.state import State

#: Share of what a pass would free that it has to free where references keep results; else it waits. Measured: without
#: it, or with folds in blocks of 10 to 40 turns in its place, 2 to 5 % of the bill are lost at Fable's prices.
LEAST_SHARE: Final = 0.75


def limit_clearing(policy: Policy, state: State, context: DecisionContext, plan: Plan, *, is_forced: bool) -> Plan:
    """Return `plan` with masks up to a cut that separates no reference from its source.

    The cut is the last such place, unless so little would be freed that it pays to wait. Above the budget it is the
    next one instead. is_forced: whether all that may be hidden is hidden at once.
    """
    # No thinking follows the newest turn yet, so its results may be shown otherwise.
    folds = [fold for key, fold in state.fixed_folds.items() if key not in state.hidden and key[0] < context.call - 1]
    if not plan.masks or not folds:
        return plan
    if context.view_limit is not None:
        clipped = sum(state.find_segment(clip.key).tokens - state.sizer.count_text(clip.text) for clip in plan.clips)
        context = replace(context, view_limit=context.view_limit + clipped)
    pending = policy.candidates.pending
    wanted = max(mask.key for mask in plan.masks)
    cut = lower_cut(wanted, folds)
    lower = _drop_masks_after(cut, plan)
    if fits_budget(policy, state, context, lower):
        freed = sum(pending[mask.key].saved_tokens for mask in lower.masks)
        if is_forced or freed >= LEAST_SHARE * sum(pending[mask.key].saved_tokens for mask in plan.masks):
            return _add_short_results(policy, cut, lower)
        return replace(plan, masks=(), reason="waits: later results refer to what would be cleared")
    cut = raise_cut(wanted, folds)
    for key in sorted(state.observation_places):
        if key <= cut:
            policy.candidates.add_candidate(state, key, context.call)
    higher = replace(plan, masks=policy.candidates.make_masks(key for key in pending if key <= cut))
    return _add_short_results(policy, cut, higher)


def _drop_masks_after(cut: Key, plan: Plan) -> Plan:
    return replace(plan, masks=tuple(mask for mask in plan.masks if mask.key <= cut))


def _add_short_results(policy: Policy, cut: Key, plan: Plan) -> Plan:
    """Return `plan` with masks of what is too short to be masked for its own sake, and leaves with its source."""
    if not plan.masks:
        return plan
    short = (key for key in policy.candidates.waiting if key <= cut)
    return replace(plan, masks=policy.candidates.make_masks([*(mask.key for mask in plan.masks), *short]))


def lower_cut(cut: Key, folds: Iterable[Fold]) -> Key:
    """Return the last place up to `cut` after which nothing refers to what is up to it."""
    spans = sorted(((min(run.source for run in fold.runs), fold.key) for fold in folds), reverse=True)
    for source, key in spans:
        if source <= cut < key:
            cut = (source[0], source[1] - 1)
    return cut


def raise_cut(cut: Key, folds: Iterable[Fold]) -> Key:
    """Return the first place from `cut` on after which nothing refers to what is up to it."""
    for source, key in sorted((min(run.source for run in fold.runs), fold.key) for fold in folds):
        if source <= cut < key:
            cut = key
    return cut
