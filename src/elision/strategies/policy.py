"""One session's memory of a strategy: what may be hidden, what it would save, and the schedule's clock.

It is a fold over the same events as the state: it is given every turn once and asked once a call. The work of a
decision grows with what is new.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from elision.strategies.decision_context import Budget, DecisionContext
from elision.strategies.folding import Folding, FoldPlan
from elision.strategies.mask_candidates import MaskCandidates
from elision.strategies.placeholder import Placeholders
from elision.strategies.schedules import (
    BLOCK_TOKENS,
    Schedule,
    SummaryOffer,
    choose_summary_call,
    estimate_costs,
    limit_user_words,
)
from elision.strategies.selectors import Rule, Selector, SummaryTrigger, Threshold
from elision.trajectory.events import PassDecided, TurnsDropped
from elision.trajectory.plan import Key, Plan
from elision.trajectory.state import State
from elision.trajectory.summary_block import Constraint, list_turn_constraints
from elision.trajectory.trajectory import join_assistant_text
from elision.trajectory.turn import Head, Opaque, Turn

#: The reason of a pass that was told to hide all that the strategy allows.
FORCED: Final = "forced"
#: The reason of a pass that finds nothing to hide.
NOTHING_ELIGIBLE: Final = "nothing eligible"
#: Tokens of the label before a quote.
QUOTE_TOKENS = 15
#: Share of a threshold that an act must free where it does not bring the view below it. Each act rewrites the cache:
#: without such a share a view that cannot be brought below would be rewritten at every call, one result at a time.
LEAST_FREED_SHARE = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """What a session's policy takes from its strategy.

    selector, trigger: of this session alone, since they remember its turns.
    can_hide: whether anything is ever hidden, by rules too.
    fold: whether new results are folded.
    counter: of the tokens by which a placeholder is longer or shorter than what it replaces.
    """

    placeholders: Placeholders
    selector: Selector | None
    trigger: SummaryTrigger | None
    rules: tuple[Rule, ...]
    schedule: Schedule
    can_hide: bool
    budget: Budget | None
    summary_max_tokens: int
    keep_user_tokens: int
    fold: bool = False
    counter: str = "o200k"


class Policy:
    """One session's memory of a strategy; see the module.

    candidates: what may be masked now. folding: what is folded. decides: whether a pass may hide or fold anything, or
    has to mind what is folded. tracks_folds: whether there are folds, or may be. learns: whether turns and decisions
    change anything here: a policy that neither hides nor folds is given only decisions with edits.
    constraints: what binds the agent in the user's words, oldest first. pinned_turns: turns that stay word for word.
    user_tokens: of the user's words in the first n turns, by n.
    """

    def __init__(self, options: PolicyOptions) -> None:
        self.options = options
        self.tracks_folds = options.fold
        self.decides = self.learns = options.can_hide or options.fold
        self.folding = Folding(options.placeholders, options.rules, options.counter, folds_results=options.fold)
        self.candidates = MaskCandidates(
            options.placeholders, options.selector, options.rules, options.counter, self.folding.ledger
        )
        self.trigger = options.trigger
        self.clock = options.schedule.start_clock()
        self.server_calls = ServerCalls()
        self.pinned_turns: list[int] = []
        self.constraints: list[Constraint] = []
        self.user_tokens = [0]
        #: Tokens that a summary of the first n turns quotes, by n.
        self._quoted_tokens = [0]

    # -- folding -------------------------------------------------------------------------------------------------

    def set_head(self, head: Head) -> None:
        self.candidates.set_head(head)
        if self.options.fold:
            self.folding.set_head(head)

    def add_turn(self, state: State, turn: Turn) -> None:
        """Take note of `turn`, which is in `state` already."""
        if self.options.fold:
            self.folding.add_turn(turn)
        if not self.options.can_hide:
            return
        self.server_calls.add_turn(turn)
        user_tokens = sum(state.sizer.count_message(message) for message in turn.interjections)
        self.user_tokens.append(self.user_tokens[-1] + user_tokens)
        self._quoted_tokens.append(self._quoted_tokens[-1])
        if turn.interjections:
            self.constraints += list_turn_constraints(turn)
        if turn.pinned:
            self.pinned_turns.append(turn.index)
            self._quoted_tokens[-1] += QUOTE_TOKENS + state.sizer.count_text(join_assistant_text(turn))
        for key in self.candidates.add_turn(turn):
            self._quoted_tokens[-1] += QUOTE_TOKENS + state.sizer.count_observation(state.find_observation(key))

    def replace_user_words(self, state: State, turn: Turn) -> None:
        """Take note that the user's words after the newest turn are now those of `turn`."""
        if not self.options.can_hide:
            return
        self.candidates.replace_user_words(turn)
        user_tokens = sum(state.sizer.count_message(message) for message in turn.interjections)
        self.user_tokens[-1] = self.user_tokens[-2] + user_tokens
        while self.constraints and self.constraints[-1].turn == turn.index:
            self.constraints.pop()
        self.constraints += list_turn_constraints(turn)

    def find_stable_length(self, state: State) -> int | None:
        """Return the number of segments before the first observation that a later pass may rewrite; None for none."""
        return self.candidates.find_stable_length(state) if self.options.can_hide else None

    def record_decision(self, state: State, event: PassDecided) -> None:
        """Take note of `event`, which is in `state` already."""
        changed: list[Key] = []
        if event.folds:
            # Maybe of a strategy that was the session's before.
            self.tracks_folds = self.decides = self.learns = True
        if self.tracks_folds:
            changed = self.folding.record_decision(state, event)
        if not self.options.can_hide:
            return
        self.candidates.record_decision(state, event)
        self.candidates.measure_again(state, changed)
        if event.summary:
            self.clock.record_action("summarize")
        elif event.masks:
            self.clock.record_action("mask")
        elif not event.held:
            # The schedule is not asked about a pass that is held.
            self.clock.record_action("hold")

    def plan_dropped(self, state: State, covers: int) -> FoldPlan:
        """Return what is folded otherwise or whole again where the client drops turns 1 ... `covers`."""
        if not self.tracks_folds:
            return FoldPlan()
        return self.folding.plan_dropped(state, covers)

    def record_dropped(self, state: State, event: TurnsDropped) -> None:
        """Take note of `event`, which is in `state` already."""
        changed: list[Key] = []
        if event.edits:
            self.tracks_folds = self.decides = self.learns = True
        if self.tracks_folds:
            changed = self.folding.record_dropped(state, event)
        self.candidates.drop_covered(state, event.through)
        self.candidates.measure_again(state, changed)

    # -- deciding ------------------------------------------------------------------------------------------------

    def plan_pass(self, state: State, context: DecisionContext, *, forced: bool = False) -> Plan:
        """Return this pass's plan, whatever the budget is.

        Thresholds in tokens that the user set come before the schedule (design 3, Promises go before prices).
        forced: do all that the strategy allows, whether the schedule finds that it pays or not.
        """
        self.candidates.collect_due(state, context.call)
        summary = promised = None
        if self.trigger is not None:
            summary = self._find_summary_offer(self.trigger, state, context)
        # The schedule is asked at every call: it adds up what waiting costs.
        costs = estimate_costs(self.candidates, self.trigger, state, context, summary, self.folding.folded_tokens)
        verdict, reason = self.clock.choose_action(costs)
        if self.trigger is not None:
            promised = self._plan_for_thresholds(self.trigger, state, context)
        if promised is not None and (not forced or (promised.summarize_to and summary is None)):
            return promised
        if forced:
            verdict = "summarize" if summary is not None else "mask"
            reason = FORCED
        if verdict == "summarize" and summary is not None:
            masks = self.candidates.make_masks_after(summary.covers)
            return Plan(masks=masks, summarize_to=summary.covers, summary_tokens=summary.shortened_to, reason=reason)
        if verdict == "mask" and self.candidates.pending:
            return Plan(masks=self.candidates.make_masks_after(0), reason=reason)
        return Plan(reason=reason)

    def plan_folds(
        self, state: State, plan: Plan, covers: int, fold_from: int | None, *, is_bound: bool = False
    ) -> FoldPlan:
        """Return what a pass folds and unfolds that hides what `plan` says. covers: turns of its summary; 0 for none.

        fold_from: the first turn whose new results may be folded; None for none. is_bound: whether texts that thinking
        is bound to stay; `plan` then hides no source of theirs alone.
        """
        hidden = [*(mask.key for mask in plan.masks), *(clip.key for clip in plan.clips)]
        return self.folding.plan_folds(state, hidden, covers, self.candidates.waiting, fold_from, is_bound=is_bound)

    def _plan_for_thresholds(self, trigger: SummaryTrigger, state: State, context: DecisionContext) -> Plan | None:
        """Return the plan for the first exceeded threshold that can be acted on; None if there is none."""
        crossed = trigger.find_crossed_thresholds(state, context, self.candidates.count_tokens_within)
        is_urgent = any(threshold.is_strict for threshold in crossed)
        for threshold in crossed:
            plan = self._plan_for_threshold(state, context, threshold)
            if plan is not None:
                return replace(plan, is_urgent=is_urgent and plan.summarize_to > 0)
        return None

    def _plan_for_threshold(self, state: State, context: DecisionContext, threshold: Threshold) -> Plan | None:
        """Return a plan that brings the view below `threshold`, or closer to it; None if nothing helps.

        Masking comes first. A summary is made if that is not enough. An act helps if it brings the view below the
        threshold, or frees `LEAST_FREED_SHARE` of it. A summary of `least_turns` new turns is made in any case.
        """
        reason = f"above {threshold.name}"
        freed = self.candidates.pending_tokens
        masking = Plan(masks=self.candidates.make_masks_after(0), reason=reason)
        masked = state.track.tokens - freed + self.count_entering_tokens(context, masking)
        least = LEAST_FREED_SHARE * threshold.tokens
        is_masking_worthwhile = threshold.limits_view and bool(masking.masks) and freed >= least
        if threshold.limits_view and masked <= threshold.tokens:
            if is_masking_worthwhile or (threshold.is_strict and masking.masks):
                return masking
            return None
        offer = self._choose_summary(state, context, threshold, masked)
        if offer is not None:
            masks = self.candidates.make_masks_after(offer.covers)
            return Plan(masks=masks, summarize_to=offer.covers, reason=reason)
        if is_masking_worthwhile:
            return masking
        return None

    def _choose_summary(
        self, state: State, context: DecisionContext, threshold: Threshold, masked: int
    ) -> SummaryOffer | None:
        """Return the summary that `threshold` asks for; None if there is none.

        masked: tokens of the view if everything pending were masked.
        """
        if not context.may_ask_for_summary:
            return None
        found = None
        for wanted in threshold.covers:
            covers = self.server_calls.limit_summary(wanted)
            offer = self.estimate_summary(state, context, covers) if covers > state.covered_turns else None
            if offer is None:
                continue
            if threshold.is_strict and offer.view_tokens <= threshold.tokens:
                return offer
            frees_enough = threshold.is_strict and masked - offer.view_tokens >= LEAST_FREED_SHARE * threshold.tokens
            if found is None and (frees_enough or covers - state.covered_turns >= threshold.least_turns):
                found = offer
        return found

    def count_entering_tokens(self, context: DecisionContext, plan: Plan) -> int:
        """Return the tokens of the recall tools that enter with `plan`."""
        hides = self.needs_recall(masks=bool(plan.masks), others=bool(plan.clips or plan.summarize_to))
        return context.count_entering_tokens(hides=hides)

    def needs_recall(self, *, masks: bool, others: bool) -> bool:
        """Return whether anything hidden can be recalled. masks: observations are hidden. others: clips, a summary."""
        return others or (masks and self.candidates.placeholders.names_handle)

    def find_coverable(self, state: State, context: DecisionContext, turn: int) -> int:
        """Return the newest turn up to `turn` that a new summary may end with; 0 if there is none."""
        covers = self.server_calls.limit_summary(turn)
        # Thinking that stays is bound to what a summary would replace.
        if covers > state.covered_turns and covers >= context.editable_from:
            return covers
        return 0

    def _find_summary_offer(
        self, trigger: SummaryTrigger, state: State, context: DecisionContext
    ) -> SummaryOffer | None:
        """Return the summary that is due; None if none is, or not even a short one would make the view smaller."""
        if not context.may_ask_for_summary:
            return None
        due = trigger.find_due_turn(state, context, self.candidates.count_tokens_within)
        covers = self.server_calls.limit_summary(due)
        if covers <= state.covered_turns:
            return None
        offer = self.estimate_summary(state, context, covers)
        if offer is None:
            # Terse turns: the summary has to be shorter than its limit.
            smaller = self._count_unsummarized(state, context) + context.count_entering_tokens(hides=True) - 1
            limit = self.limit_summary_tokens(state, context, covers, smaller)
            if limit > 0:
                offer = self.estimate_summary(state, context, covers, limit)
        return offer

    def estimate_summary(
        self, state: State, context: DecisionContext, covers: int, limit: int = 0
    ) -> SummaryOffer | None:
        """Return the offer of a summary of turns 1 ... `covers`; None if the view would not shrink by it.

        limit: most tokens of the summary; 0 for the strategy's own limit.
        """
        shortened_to = limit
        limit = limit or self.options.summary_max_tokens
        tokens = self._count_with_summary(state, context, covers, limit)
        if tokens - context.count_entering_tokens(hides=True) >= self._count_unsummarized(state, context):
            return None
        if state.last_view is None:
            sent_length = len(state.track.segments)
        else:
            sent_length = state.unchanged_length
        covered_before = state.count_raw_tokens_before(state.covered_turns + 1)
        call = choose_summary_call(
            context.prices,
            covered=state.count_raw_tokens_before(covers + 1) - covered_before,
            previous=limit if state.summary else state.task_tokens,
            live=state.track.tokens,
            live_cached=context.count_cached_tokens(state, sent_length),
            hidden=self.candidates.hidden_tokens,
            output=limit,
        )
        return SummaryOffer(covers=covers, view_tokens=tokens, call=call, shortened_to=shortened_to)

    def _count_unsummarized(self, state: State, context: DecisionContext) -> int:
        """Return the tokens of the view without a new summary, everything pending masked."""
        return state.track.tokens - self.candidates.count_tokens_after(context.editable_from - 1)

    def find_next_summary(self, state: State) -> int:
        """Return the newest turn of the summary that turns alone make due at the call after the next turn, and not
        before; 0 for none."""
        call = len(state.turns) + 1
        if self.trigger is None or self.trigger.count_calls_until(state, call) != 1:
            return 0
        covers = self.server_calls.limit_summary(self.trigger.find_last_outside_tail(state, call + 1))
        if state.covered_turns < covers < call:
            return covers
        return 0

    def find_whole_summary(self, state: State, context: DecisionContext) -> tuple[int, int]:
        """Return the newest turn outside the tail, 0 for none, and the most tokens of a summary that shortens the view.

        Whether a summary is due, or pays, does not matter.
        """
        if self.trigger is None:
            return 0, 0
        covers = self.server_calls.limit_summary(self.trigger.find_last_outside_tail(state, context.call))
        if covers <= state.covered_turns:
            return 0, 0
        saved = self.candidates.count_tokens_after(covers)
        most = self.limit_summary_tokens(state, context, covers, state.track.tokens - saved - 1)
        return covers, min(most, self.options.summary_max_tokens)

    def limit_summary_tokens(self, state: State, context: DecisionContext, covers: int, tokens: int) -> int:
        """Return the most tokens of a summary of turns 1 ... `covers` in a view of `tokens`; below 1 for none."""
        without_summary = self._count_with_summary(state, context, covers, 0)
        # More than 1 where the user's old words may take as much as the summary.
        growth = self._count_with_summary(state, context, covers, 1) - without_summary
        return (tokens - without_summary) // growth

    def _count_with_summary(self, state: State, context: DecisionContext, covers: int, limit: int) -> int:
        """Return the tokens of the view with a summary of turns 1 ... `covers` that has `limit` tokens."""
        head = state.track.count_tokens_before(state.head_length) + context.count_entering_tokens(hides=True)
        user_words = limit_user_words(self.user_tokens[covers], self.options.keep_user_tokens, limit)
        summary = BLOCK_TOKENS + limit + user_words + self.count_quoted_tokens(covers)
        place = state.turn_places.get(covers + 1)
        if place is None:
            rest = 0
        else:
            rest = state.track.tokens - state.track.count_tokens_before(place)
        return head + summary + rest - self.candidates.count_tokens_after(covers, covers=True)

    def count_quoted_tokens(self, covers: int) -> int:
        """Return the tokens of what a summary of turns 1 ... `covers` quotes word for word."""
        return self._quoted_tokens[covers]


class ServerCalls:
    """The turns between each such call and its result. A summary may not cover the call alone: a result without its
    call is rejected."""

    def __init__(self) -> None:
        self._open_calls: dict[str, int] = {}
        self._spans: list[tuple[int, int]] = []

    def add_turn(self, turn: Turn) -> None:
        """Learn the calls of `turn`, and which earlier ones its results answer."""
        for part in turn.content:
            if not isinstance(part, Opaque) or part.data is None:
                continue
            if part.kind in ("server_tool_use", "mcp_tool_use"):
                self._open_calls.setdefault(str(part.data.get("id")), turn.index)
            elif part.kind.endswith("_tool_result"):
                called = self._open_calls.get(str(part.data.get("tool_use_id")), turn.index)
                if called < turn.index:
                    self._spans.append((called, turn.index))

    def limit_summary(self, covers: int) -> int:
        """Return the most turns, `covers` or fewer, that a summary may cover without parting a call from its result."""
        for called, answered in reversed(self._spans):
            if called <= covers < answered:
                covers = called - 1
        return covers
