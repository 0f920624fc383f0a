"""A view near its budget, or over it: the cheap tiers first, a clipped newest observation last (I7)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final

from elision.errors import BudgetError
from elision.strategies.budget import Budget
from elision.strategies.decision_context import DecisionContext
from elision.strategies.policy import Policy
from elision.trajectory.encodable import make_encodable
from elision.trajectory.plan import Clip, Key, Plan, make_handle
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer

#: Tokens of a summary that still says something; no model is asked for a shorter one.
SHORT_SUMMARY_TOKENS: Final = 200
#: Tokens of the shortest one there is: the title of a digest.
SHORTEST_SUMMARY_TOKENS: Final = 40


def fits_budget(policy: Policy, state: State, situation: DecisionContext, plan: Plan) -> bool:
    """Whether the view fits its budget once `plan` is done."""
    return situation.view_limit is None or _count_after_plan(policy, state, situation, plan) <= situation.view_limit


def fit_to_budget(
    policy: Policy, state: State, situation: DecisionContext, plan: Plan, *, summaries: bool = True, strict: bool = True
) -> Plan:
    """`plan`, or one that fits the budget: mask everything pending, mask down to `min_window`, summarize, summarize in
    fewer words, clip.

    summaries: whether a summary may still help. Raises BudgetError if nothing makes the view fit; then nothing is a
    candidate that was none before. strict: False to be given the smallest view then.
    """
    usable = situation.view_limit
    if usable is None:
        return plan
    budget = policy.options.budget or Budget()
    if fits_budget(policy, state, situation, plan):
        return _relieve_softly(policy, state, plan, usable, budget)
    if strict:
        measure_floor(state, usable, situation.count_entering_tokens(hides=True))
    before = frozenset(policy.pending)
    try:
        return _plan_tiers(policy, state, situation, budget, usable, summaries=summaries, strict=strict)
    except BudgetError:
        # Pressure made candidates of turns inside the window. No decision settles them, so they would stay candidates,
        # and the schedule would mask them at a later call that has room.
        policy.drop_candidates(policy.pending.keys() - before)
        raise


def _relieve_softly(policy: Policy, state: State, plan: Plan, usable: int, budget: Budget) -> Plan:
    """`plan`; above the soft threshold, where it does nothing, one that masks everything pending.

    Only once that frees a share of the threshold: one more result at each call would be one rewrite at each call.
    """
    if budget.soft is None or plan.masks or plan.summarize_to or state.track.tokens <= budget.soft * usable:
        return plan
    if policy.pending_tokens < (1 - budget.low) * budget.soft * usable or not policy.pending:
        return plan
    return Plan(masks=policy.make_masks(policy.pending), reason="soft threshold")


def _plan_tiers(
    policy: Policy,
    state: State,
    situation: DecisionContext,
    budget: Budget,
    usable: int,
    *,
    summaries: bool,
    strict: bool,
) -> Plan:
    """A plan that fits, tier by tier; see `fit_to_budget`."""
    target = int(usable * budget.low)
    _mask_down(policy, state, situation.call, target - situation.count_entering_tokens(hides=True), budget.min_window)
    masked = Plan(masks=policy.make_masks(policy.pending), reason="over budget")
    # Not just below the limit: there every next call would mask one more (design 3, low watermark).
    if _count_after_plan(policy, state, situation, masked) <= target:
        return masked
    summarized = _plan_summary(policy, state, situation, target, budget.min_window) if summaries else None
    shorter = _plan_short_summary(policy, state, situation, target, usable, budget.min_window) if summaries else ()
    tried = []
    for plan in chain([summarized or masked], shorter):
        if _count_after_plan(policy, state, situation, plan) <= usable:
            return plan
        tried.append(plan)
    cut = []
    for plan in tried:
        tokens = _count_after_plan(policy, state, situation, plan)
        tokens += situation.count_entering_tokens(hides=True) - policy.count_entering_tokens(situation, plan)
        plan, tokens = _clip_newest_results(policy, state, plan, tokens, usable)
        if tokens <= usable:
            return plan
        cut.append((tokens, plan))
    tokens, smallest = min(cut, key=lambda each: each[0])
    if strict:
        raise _exceed_budget("with every result of the newest turn cut the view still needs", tokens, usable)
    return smallest


def measure_floor(state: State, usable: int, entering: int = 0) -> int:
    """Tokens of head, tools and the newest turn with its results clipped away; BudgetError if they do not fit.

    entering: tokens of tools that enter with whatever is hidden.
    """
    head = state.track.count_tokens_before(state.head_length)
    newest = state.turns[-1] if state.turns else None
    needed = head + entering + (state.sizer.count_assistant(newest) if newest else 0)
    if needed > usable:
        raise _exceed_budget("system prompt, tools, task and the newest turn need", needed, usable)
    return needed


def _exceed_budget(what: str, needed: int, usable: int) -> BudgetError:
    return BudgetError(
        f"{what} {needed} tokens, but only {usable} are usable: "
        "raise the budget, shorten the head, or choose a model with a larger window",
        needed=needed,
        usable=usable,
    )


def _count_after_plan(policy: Policy, state: State, situation: DecisionContext, plan: Plan) -> int:
    """Tokens of the view once `plan` is done."""
    if plan.summarize_to:
        offer = policy.estimate_summary(state, situation, plan.summarize_to, plan.summary_tokens)
        if offer:
            return offer.view_tokens
        return state.track.tokens
    saved = sum(policy.pending[mask.key].saved_tokens for mask in plan.masks)
    return state.track.tokens - saved + policy.count_entering_tokens(situation, plan)


def _mask_down(policy: Policy, state: State, call: int, target: int, least: int) -> None:
    """Make candidates of younger observations, oldest first, until the view would be down to `target`."""
    keys = sorted(key for key in state.observation_places if key[0] < call - least)
    for key in keys:
        if state.track.tokens - policy.pending_tokens <= target:
            return
        policy.add_candidate(state, key, call)


def _plan_summary(policy: Policy, state: State, situation: DecisionContext, target: int, least: int) -> Plan | None:
    """Cover as few turns as bring the view down to `target`, and all but the newest `least` if none does."""
    newest = situation.call - 1
    for tail in (10, 5, 2, least):
        covers = policy.server_calls.limit_summary(newest - max(tail, least))
        if covers > state.covered_turns:
            offer = policy.estimate_summary(state, situation, covers)
        else:
            offer = None
        if offer is not None and (offer.view_tokens <= target or tail == least):
            masks = policy.make_masks(key for key in policy.pending if key[0] > covers)
            return Plan(masks=masks, summarize_to=covers, reason="over budget")
    return None


def _plan_short_summary(
    policy: Policy, state: State, situation: DecisionContext, target: int, usable: int, least: int
) -> Iterator[Plan]:
    """Cover all but the newest `least` turns in fewer words than the strategy allows, the longest summary first."""
    covers = policy.server_calls.limit_summary(situation.call - 1 - least)
    if covers <= state.covered_turns:
        return
    most = policy.options.summary_max_tokens
    wanted, fitting = (policy.limit_summary_tokens(state, situation, covers, tokens) for tokens in (target, usable))
    # As long as leaves room for calls to come, else a short one, else whatever fits; at last what cutting results
    # makes room for.
    for limit in (
        max(SHORT_SUMMARY_TOKENS, wanted),
        max(SHORTEST_SUMMARY_TOKENS, min(SHORT_SUMMARY_TOKENS, fitting)),
        SHORTEST_SUMMARY_TOKENS,
    ):
        if limit < most and policy.estimate_summary(state, situation, covers, limit) is not None:
            masks = policy.make_masks(key for key in policy.pending if key[0] > covers)
            yield Plan(masks=masks, summarize_to=covers, summary_tokens=limit, reason="over budget")


def _clip_newest_results(policy: Policy, state: State, plan: Plan, tokens: int, usable: int) -> tuple[Plan, int]:
    """Cut the newest turn's results, the largest first, until a view of `tokens` is down to `usable`.

    Returns what was cut so, and the tokens that are left, which may be too many still.
    """
    newest = state.turns[-1].index if state.turns else 0
    keys: list[Key] = [key for key in state.observation_places if key[0] == newest]
    clips = []
    for key in sorted(keys, key=lambda key: -state.find_segment(key).tokens):
        if tokens <= usable:
            break
        size = state.find_segment(key).tokens
        named = make_handle(key) if policy.placeholders.handles else ""
        text = clip_text(state.find_observation(key).text, size - (tokens - usable), named, state.sizer)
        if state.sizer.count_text(text) < size:
            clips.append(Clip(key, text))
            tokens -= size - state.sizer.count_text(text)
    return replace(plan, clips=tuple(clips), reason="over budget"), tokens


def clip_text(text: str, tokens: int, named: str, sizer: Sizer) -> str:
    """Head and tail of `text` with what was cut between them: a message of at most `tokens` tokens.

    Only what was cut where not even that fits. named: the handle of the whole, "" where none is to be named.
    """
    text = make_encodable(text)
    share = min(len(text) // 2, max(0, len(text) * tokens // max(1, sizer.count(text)) // 2))
    name = f"{named}: " if named else ""
    while True:
        cut = len(text) - 2 * share
        if cut:
            what = f"{cut} chars"
        else:
            what = "images and other parts"
        result = f"{text[:share]}\n[{name}{what} cut here to fit]\n{text[len(text) - share :]}"
        if share == 0 or sizer.count_text(result) <= tokens:
            return result
        share = share * 9 // 10
