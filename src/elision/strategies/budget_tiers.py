"""A view near its budget, or over it: the cheap tiers first, a clipped newest observation last (I7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from elision.errors import BudgetError
from elision.strategies.decision_context import Budget, DecisionContext
from elision.strategies.policy import Policy
from elision.trajectory.foreign_text import make_encodable
from elision.trajectory.plan import Edit, Key, Plan, make_handle
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer

#: Which summaries a pass may make: a model's, or only the model-free digest, or none.
PossibleSummaries: TypeAlias = Literal["model", "digest", "none"]

#: Tokens of the shortest summary that a model is asked for.
SHORT_SUMMARY_TOKENS: Final = 200
#: Tokens of the shortest one there is: the title of a digest.
SHORTEST_SUMMARY_TOKENS: Final = 40


def fits_budget(policy: Policy, state: State, context: DecisionContext, plan: Plan) -> bool:
    """Return whether the view fits its budget once `plan` is done."""
    return context.view_limit is None or _count_after_plan(policy, state, context, plan) <= context.view_limit


def fit_to_budget(
    policy: Policy,
    state: State,
    context: DecisionContext,
    plan: Plan,
    *,
    summaries: PossibleSummaries = "model",
    strict: bool = True,
) -> Plan:
    """Return `plan` if it fits the budget, else a plan that does.

    The tiers, in order: mask everything pending; summarize all but the strategy's tail, if it has summaries; mask down
    to `min_window`; the model-free digest, in fewer words if need be; clip the newest results. No tier edits what
    precedes `context.editable_from`; `plan` must not either.

    Raises BudgetError if nothing makes the view fit; the candidates are then those of before. With `strict` False the
    smallest plan is returned instead.
    """
    usable = context.view_limit
    if usable is None:
        return plan
    if fits_budget(policy, state, context, plan):
        budget = policy.options.budget
        if budget is None or budget.soft is None:
            return plan
        return _relieve_softly(
            policy, state, context, plan, budget.soft * usable, (1 - budget.low) * budget.soft * usable
        )
    if strict:
        measure_floor(state, usable, context.count_entering_tokens(hides=True))
    before = frozenset(policy.candidates.early)
    try:
        return _Tiers(policy, state, context, usable, summaries).find_plan(strict=strict)
    except BudgetError:
        policy.candidates.drop_early(before)
        raise


def _relieve_softly(
    policy: Policy, state: State, context: DecisionContext, plan: Plan, threshold: float, least_freed: float
) -> Plan:
    """Return `plan`, or above the soft threshold, where `plan` does nothing, one that masks all that may be edited.

    It masks only if that frees `least_freed` tokens. Else every call would mask one more result, and rewrite the cache.
    """
    if plan.masks or plan.summarize_to or state.track.tokens <= threshold:
        return plan
    masks = policy.candidates.make_masks_after(context.editable_from - 1)
    if not masks or policy.candidates.count_tokens_after(context.editable_from - 1) < least_freed:
        return plan
    return Plan(masks=masks, reason="soft threshold")


class _Tiers:
    """The tiers of a view that does not fit; see `fit_to_budget`.

    usable: tokens that the view may have. target: the low watermark. covers: the turns of the strategy's own summary.
    """

    def __init__(
        self, policy: Policy, state: State, context: DecisionContext, usable: int, summaries: PossibleSummaries
    ) -> None:
        self.policy = policy
        self.state = state
        self.context = context
        self.budget = policy.options.budget or Budget()
        self.usable = usable
        # Below the limit: at the limit every next call would hide a little more (design 3, low watermark).
        self.target = int(usable * self.budget.low)
        self.summaries = summaries
        self.covers = 0
        if summaries == "model" and policy.trigger is not None:
            outside_tail = policy.trigger.find_last_outside_tail(state, context.call)
            self.covers = policy.find_coverable(state, context, outside_tail)

    def find_plan(self, *, strict: bool) -> Plan:
        """Return the plan of the first tier that fits. Raises BudgetError if none does and `strict` is True."""
        for tier in (self._mask_pending, self._summarize, self._mask_down, self._summarize_rest):
            plan = tier()
            if plan is not None:
                return plan
        too_large = []
        for plan in self._list_model_free_plans():
            if self._count(plan) <= self.usable:
                return plan
            too_large.append(plan)
        return self._clip_results(too_large, strict=strict)

    def _count(self, plan: Plan) -> int:
        return _count_after_plan(self.policy, self.state, self.context, plan)

    def _mask_pending(self) -> Plan | None:
        masked = self._plan_masks()
        return masked if self._count(masked) <= self.target else None

    def _summarize(self) -> Plan | None:
        """Return a plan for a summary of all but the tail, and for masks after it down to `min_window`."""
        masked_tokens = self._count(self._plan_masks())
        for limit in self._list_summary_limits():
            summarized = self._plan_own_summary(limit)
            left = self._count(summarized)
            if left <= self.target:
                return summarized
            if masked_tokens - left >= (1 - self.budget.low) * self.usable:
                self._add_younger(left - self.target, after=self.covers)
                summarized = self._plan_own_summary(limit)
                if self._count(summarized) <= self.usable:
                    return summarized
        return None

    def _mask_down(self) -> Plan | None:
        entering = self.context.count_entering_tokens(hides=True)
        pending = self.policy.candidates.count_tokens_after(self.context.editable_from - 1)
        self._add_younger(self.state.track.tokens - pending + entering - self.target)
        return self._mask_pending()

    def _summarize_rest(self) -> Plan | None:
        """Return a plan for a summary and all masks after it: neither of the two was enough."""
        for limit in self._list_summary_limits():
            summarized = self._plan_own_summary(limit)
            if self._count(summarized) <= self.target:
                return summarized
        return None

    def _list_model_free_plans(self) -> Iterator[Plan]:
        masked = self._plan_masks()
        if self.summaries == "none":
            yield masked
            return
        yield self._plan_digest() or masked
        yield from self._plan_short_digests()

    def _clip_results(self, plans: Iterable[Plan], *, strict: bool) -> Plan:
        """Return the first of `plans` that fits with the newest results clipped; else raise, or the smallest."""
        clipped = []
        for plan in plans:
            tokens = self._count(plan)
            tokens += self.context.count_entering_tokens(hides=True)
            tokens -= self.policy.count_entering_tokens(self.context, plan)
            plan, tokens = self._clip_newest_results(plan, tokens)
            if tokens <= self.usable:
                return plan
            clipped.append((tokens, plan))
        tokens, smallest = min(clipped, key=lambda tokens_and_plan: tokens_and_plan[0])
        if not strict:
            return smallest
        cut = "with every result of the newest turn cut the view still needs"
        if self.context.editable_from > self.state.covered_turns + 1:
            raise _bound_budget_error(self.context.editable_from, cut, tokens, self.usable)
        raise _budget_error(cut, tokens, self.usable)

    def _plan_masks(self) -> Plan:
        """Return a plan that masks everything pending that may be edited."""
        masks = self.policy.candidates.make_masks_after(self.context.editable_from - 1)
        return Plan(masks=masks, reason="over budget")

    def _list_summary_limits(self) -> Iterator[int]:
        """Yield how many tokens the strategy's own summary may have, the most first; nothing for no summary."""
        if not self.covers:
            return
        policy, state, context = self.policy, self.state, self.context
        most = policy.options.summary_max_tokens
        if policy.estimate_summary(state, context, self.covers) is not None:
            yield most
        shorter = policy.limit_summary_tokens(state, context, self.covers, self.target)
        shorter = max(SHORT_SUMMARY_TOKENS, shorter)
        if shorter < most and policy.estimate_summary(state, context, self.covers, shorter) is not None:
            yield shorter

    def _plan_own_summary(self, limit: int) -> Plan:
        """Return a plan for a model's summary of at most `limit` tokens, and all masks after it."""
        masks = self.policy.candidates.make_masks_after(self.covers)
        short = limit if limit < self.policy.options.summary_max_tokens else 0
        return Plan(masks=masks, summarize_to=self.covers, summary_tokens=short, reason="over budget")

    def _plan_digest(self) -> Plan | None:
        """Return a plan that covers as few turns as reach the target, or all but the newest `min_window` turns."""
        policy, state, context, least = self.policy, self.state, self.context, self.budget.min_window
        newest = context.call - 1
        for tail in (10, 5, 2, least):
            covers = policy.find_coverable(state, context, newest - max(tail, least))
            if not covers:
                continue
            offer = policy.estimate_summary(state, context, covers)
            if offer is not None and (offer.view_tokens <= self.target or tail == least):
                masks = policy.candidates.make_masks_after(covers)
                return Plan(masks=masks, summarize_to=covers, is_model_free=True, reason="over budget")
        return None

    def _plan_short_digests(self) -> Iterator[Plan]:
        """Yield plans that cover all but the newest `min_window` turns in fewer words than usual, the longest first."""
        policy, state, context = self.policy, self.state, self.context
        covers = policy.find_coverable(state, context, context.call - 1 - self.budget.min_window)
        if not covers:
            return
        most = policy.options.summary_max_tokens
        wanted = policy.limit_summary_tokens(state, context, covers, self.target)
        fitting = policy.limit_summary_tokens(state, context, covers, self.usable)
        # First one that leaves room for the calls to come, then a short one that fits, at last the shortest: cutting
        # results may make room for it.
        for limit in (
            max(SHORT_SUMMARY_TOKENS, wanted),
            max(SHORTEST_SUMMARY_TOKENS, min(SHORT_SUMMARY_TOKENS, fitting)),
            SHORTEST_SUMMARY_TOKENS,
        ):
            if limit < most and policy.estimate_summary(state, context, covers, limit) is not None:
                masks = policy.candidates.make_masks_after(covers)
                yield Plan(
                    masks=masks, summarize_to=covers, summary_tokens=limit, is_model_free=True, reason="over budget"
                )

    def _clip_newest_results(self, plan: Plan, tokens: int) -> tuple[Plan, int]:
        """Clip the newest turn's results, the largest first, until a view of `tokens` fits.

        Return the plan with the clips and the tokens that are left, which may still be too many.
        """
        state = self.state
        keys: list[Key] = []
        if state.turns:
            keys = [key for key in state.observation_places if key[0] == state.turns[-1].index]
        clips = []
        for key in sorted(keys, key=lambda key: -state.find_segment(key).tokens):
            if tokens <= self.usable:
                break
            size = state.find_segment(key).tokens
            handle = make_handle(key) if self.policy.candidates.placeholders.handles else ""
            text = clip_text(state.find_observation(key).text, size - (tokens - self.usable), handle, state.sizer)
            if state.sizer.count_text(text) < size:
                clips.append(Edit(key, "clip", text))
                tokens -= size - state.sizer.count_text(text)
        return replace(plan, clips=tuple(clips), reason="over budget"), tokens

    def _add_younger(self, excess: int, after: int = 0) -> None:
        """Add younger observations to the candidates, oldest first, until masking them frees `excess` tokens.

        The newest `min_window` turns stay unmasked. after: the turn after which observations are added.
        """
        candidates, call = self.policy.candidates, self.context.call
        before = candidates.pending_tokens
        first = max(after + 1, self.context.editable_from)
        for key in sorted(self.state.observation_places):
            if candidates.pending_tokens - before >= excess:
                return
            if first <= key[0] < call - self.budget.min_window:
                candidates.add_early_candidate(self.state, key, call)


def measure_floor(state: State, usable: int, entering: int = 0) -> int:
    """Return the tokens of head, tools and the newest turn without its results. Raises BudgetError if they do not fit.

    entering: tokens of the recall tools that enter if anything is hidden.
    """
    needed = state.track.count_tokens_before(state.head_length) + entering
    if state.turns:
        needed += state.sizer.count_assistant(state.turns[-1])
    if needed > usable:
        raise _budget_error("system prompt, tools, task and the newest turn need", needed, usable)
    return needed


def _budget_error(what: str, needed: int, usable: int) -> BudgetError:
    return BudgetError(
        f"{what} {needed} tokens, but only {usable} are usable: "
        "raise the budget, shorten the head, or choose a model with a larger window",
        needed=needed,
        usable=usable,
    )


def _bound_budget_error(turn: int, what: str, needed: int, usable: int) -> BudgetError:
    return BudgetError(
        f"thinking in turn {turn} is bound to the results before it, so they stay unchanged; "
        f"{what} {needed} tokens, but only {usable} are usable: raise the budget, "
        "choose a model with a larger window, or set thinking to native or drop_block if the model allows it",
        needed=needed,
        usable=usable,
    )


def _count_after_plan(policy: Policy, state: State, context: DecisionContext, plan: Plan) -> int:
    """Return the tokens of the view once `plan` is done."""
    if plan.summarize_to:
        offer = policy.estimate_summary(state, context, plan.summarize_to, plan.summary_tokens)
        if offer:
            exposure = policy.folding.ledger.measure_exposure(plan.summarize_to, covers=True)
            return offer.view_tokens - exposure.estimated + exposure.most
        return state.track.tokens
    saved = sum(policy.candidates.pending[mask.key].saved_tokens for mask in plan.masks)
    if plan.masks:
        # A view must fit however much is unfolded. Masks are those of all candidates from the first one on.
        saved -= policy.folding.ledger.measure_exposure(plan.masks[0].key[0] - 1, covers=False).most
    return state.track.tokens - saved + policy.count_entering_tokens(context, plan)


def clip_text(text: str, tokens: int, handle: str, sizer: Sizer) -> str:
    """Return head and tail of `text` with a note of the cut between them: a message of at most `tokens` tokens.

    Where that does not fit it is the note alone. handle: of the whole result; "" to name none.
    """
    text = make_encodable(text)
    share = min(len(text) // 2, max(0, len(text) * tokens // max(1, sizer.count(text)) // 2))
    name = f"{handle}: " if handle else ""
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
