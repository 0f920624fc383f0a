"""One session's memory of a strategy: what may be hidden, what it would save, and the schedule's clock.

It is a fold over the same events as the state: it is given every turn once and asked once a call. The work of a
decision grows with what is new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from elision.strategies.budget import Budget
from elision.strategies.decision_context import DecisionContext
from elision.strategies.known_identifiers import KnownIdentifiers
from elision.strategies.placeholder import Placeholders
from elision.strategies.rules import Rule, RuleOutcome, RuleTable
from elision.strategies.schedules import CostEstimates, Schedule
from elision.strategies.selectors import Selector, Superseded
from elision.strategies.server_calls import ServerCalls
from elision.strategies.summary_cost import BLOCK_TOKENS, SummaryCall, choose_summary_call, limit_user_words
from elision.strategies.triggers import SummaryTrigger, Threshold
from elision.trajectory.assistant_text import join_assistant_text
from elision.trajectory.events import PassDecided
from elision.trajectory.plan import Key, Mask, Plan
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Head, Turn

#: The reason of a pass that was told to hide all that the strategy allows.
FORCED: Final = "forced"
#: Tokens of the label before a quote.
QUOTE_TOKENS = 15
#: Share of a threshold that an act must free where it does not bring the view below it. Each act rewrites the cache:
#: without such a share a view that cannot be brought below would be rewritten at every call, one result at a time.
LEAST_FREED_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class MaskCandidate:
    """An observation that may be replaced by `text` from call `since_call` on, and the tokens that saves."""

    key: Key
    text: str
    saved_tokens: int
    since_call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOffer:
    """A summary that may be made now: the newest turn that it covers, the tokens of the view with it, and its cost."""

    covers: int
    view_tokens: int
    call: SummaryCall


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """What a session's policy takes from its strategy.

    selectors, trigger: of this session alone, since they remember its turns.
    can_hide: whether anything is ever hidden, by rules too.
    counter: of the tokens by which a placeholder is longer or shorter than what it replaces.
    """

    placeholders: Placeholders
    selectors: tuple[Selector, ...]
    trigger: SummaryTrigger | None
    rules: tuple[Rule, ...]
    schedule: Schedule
    can_hide: bool
    budget: Budget | None
    summary_max_tokens: int
    keep_user_tokens: int
    counter: str = "o200k"


class Policy:
    """One session's memory of a strategy; see the module.

    pending: what may be masked now. pending_tokens: what masking all of it saves.
    protected: observations that a rule keeps. user_tokens: of the user's words in the first n turns, by n.
    """

    def __init__(self, options: PolicyOptions) -> None:
        self.options = options
        self.placeholders = options.placeholders
        self.selectors = options.selectors
        self.trigger = options.trigger
        self.rules = RuleTable(options.rules)
        self.clock = options.schedule.start_clock()
        self.known = KnownIdentifiers()
        self._identified_turns = 0
        self._text_sizer = Sizer(make_counter(options.counter))
        self._learned_call = 0
        self.pending: dict[Key, MaskCandidate] = {}
        self.pending_tokens = 0
        self.fresh_turns: set[int] = set()
        self.protected: list[Key] = []
        self.pinned_turns: list[int] = []
        self.retry_at = 0
        self._first_pending: Key | None = None
        self._due_keys: dict[int, list[Key]] = defaultdict(list)
        self._settled_keys: set[Key] = set()
        #: What might be hidden but is not longer than its placeholder.
        self.not_shortened: set[Key] = set()
        self._rulings: dict[Key, RuleOutcome] = {}
        self._superseded_by_rule = Superseded() if self.rules.has_superseded_rule else None
        self._hidden_raw_tokens = 0
        self.user_tokens = [0]
        self._quoted_tokens = [0]
        self._open_keys: list[Key] = []
        self._first_open = 0
        self.server_calls = ServerCalls()

    # -- folding -------------------------------------------------------------------------------------------------

    def set_head(self, head: Head) -> None:
        self.known.add_head(head)

    def add_turn(self, state: State, turn: Turn) -> None:
        """Take note of `turn`, which is in `state` already."""
        self.server_calls.add_turn(turn)
        user_tokens = sum(state.sizer.count_message(message) for message in turn.interjections)
        self.user_tokens.append(self.user_tokens[-1] + user_tokens)
        self._quoted_tokens.append(self._quoted_tokens[-1])
        if not self.options.can_hide:
            return
        self._apply_rules(state, turn)
        for selector in self.selectors:
            for call, key in selector.find_due_keys(turn):
                # A rule's `after` replaces the strategy's own notion of age.
                if not (selector.by_age and self._rulings[key].after):
                    self._due_keys[max(call, turn.index + 1)].append(key)
        if self._superseded_by_rule is not None:
            for call, key in self._superseded_by_rule.find_due_keys(turn):
                if self._rulings[key].superseded:
                    self._due_keys[call].append(key)

    def replace_user_words(self, state: State, turn: Turn) -> None:
        """Take note that the user's words after the newest turn are now those of `turn`."""
        user_tokens = sum(state.sizer.count_message(message) for message in turn.interjections)
        self.user_tokens[-1] = self.user_tokens[-2] + user_tokens

    def _apply_rules(self, state: State, turn: Turn) -> None:
        if turn.pinned:
            self.pinned_turns.append(turn.index)
            self._quoted_tokens[-1] += QUOTE_TOKENS + state.sizer.count_text(join_assistant_text(turn))
        for position, observation in enumerate(turn.observations, start=1):
            key = (turn.index, position)
            ruling = self.rules.apply_rules(turn, observation)
            self._rulings[key] = ruling
            if ruling.keep:
                self.protected.append(key)
                self._settled_keys.add(key)
                self._quoted_tokens[-1] += QUOTE_TOKENS + state.sizer.count_observation(observation)
                continue
            self._open_keys.append(key)
            if ruling.after is not None:
                self._due_keys[turn.index + ruling.after + 1].append(key)

    def record_decision(self, state: State, event: PassDecided) -> None:
        """Drop the candidates that `event`, which is in `state` already, has masked or covered."""
        for mask in event.masks:
            candidate = self.pending.pop(mask.key, None)
            self._settled_keys.add(mask.key)
            if candidate is not None:
                self.pending_tokens -= candidate.saved_tokens
            self._hidden_raw_tokens += state.sizer.count_observation(state.find_observation(mask.key))
        if event.summary is not None:
            for key in [key for key in self.pending if key[0] <= event.summary.covers]:
                self.pending_tokens -= self.pending.pop(key).saved_tokens
            self._hidden_raw_tokens = sum(
                state.sizer.count_observation(state.find_observation(key)) for key in state.hidden
            )
        if event.masks or event.summary is not None:
            self.fresh_turns.clear()
            self._first_pending = min(self.pending, default=None)
        if event.summary:
            self.clock.record_action("summarize")
        elif event.masks:
            self.clock.record_action("mask")
        else:
            self.clock.record_action("hold")

    def find_stable_length(self, state: State) -> int | None:
        """Return the number of segments before the first observation that a later pass may rewrite; None for none."""
        while self._first_open < len(self._open_keys):
            key = self._open_keys[self._first_open]
            if key not in self._settled_keys and key[0] > state.covered_turns:
                return state.observation_places[key]
            self._first_open += 1
        return None

    # -- deciding ------------------------------------------------------------------------------------------------

    def plan_pass(self, state: State, context: DecisionContext, *, forced: bool = False) -> Plan:
        """Return this pass's plan, whatever the budget is.

        Thresholds in tokens that the user set come before the schedule (design 3, Promises go before prices).
        forced: do all that the strategy allows, whether the schedule finds that it pays or not.
        """
        self._collect_due(state, context.call)
        summary = self._find_summary_offer(state, context)
        # The schedule is asked at every call: it adds up what waiting costs.
        verdict, reason = self.clock.choose_action(self._estimate_costs(state, context, summary))
        promised = self._plan_for_thresholds(state, context)
        if promised is not None and (not forced or (promised.summarize_to and summary is None)):
            return promised
        if forced:
            verdict = "summarize" if summary is not None else "mask"
            reason = FORCED
        if verdict == "summarize" and summary is not None:
            masks = self.make_masks(key for key in self.pending if key[0] > summary.covers)
            return Plan(masks=masks, summarize_to=summary.covers, reason=reason)
        if verdict == "mask" and self.pending:
            return Plan(masks=self.make_masks(self.pending), reason=reason)
        return Plan(reason=reason)

    def _plan_for_thresholds(self, state: State, context: DecisionContext) -> Plan | None:
        """Return the plan for the first exceeded threshold that can be acted on; None if there is none."""
        if self.trigger is None:
            return None
        for threshold in self.trigger.find_crossed_thresholds(state, context, self.count_saved_tokens):
            plan = self._plan_for_threshold(state, context, threshold)
            if plan is not None:
                return plan
        return None

    def _plan_for_threshold(self, state: State, context: DecisionContext, threshold: Threshold) -> Plan | None:
        """Return a plan that brings the view below `threshold`, or closer to it; None if nothing helps.

        Masking comes first. A summary is made if that is not enough. An act helps if it brings the view below the
        threshold, or frees `LEAST_FREED_SHARE` of it. A summary of `least_turns` new turns is made in any case.
        """
        reason = f"above {threshold.name}"
        masking = Plan(masks=self.make_masks(self.pending), reason=reason)
        masked = state.track.tokens - self.pending_tokens + self.count_entering_tokens(context, masking)
        least = LEAST_FREED_SHARE * threshold.tokens
        is_masking_worthwhile = threshold.limits_view and bool(self.pending) and self.pending_tokens >= least
        if threshold.limits_view and masked <= threshold.tokens:
            if is_masking_worthwhile or (threshold.is_strict and self.pending):
                return masking
            return None
        offer = self._choose_summary(state, context, threshold, masked)
        if offer is not None:
            masks = self.make_masks(key for key in self.pending if key[0] > offer.covers)
            return Plan(masks=masks, summarize_to=offer.covers, is_urgent=threshold.is_strict, reason=reason)
        if is_masking_worthwhile:
            return masking
        return None

    def _choose_summary(
        self, state: State, context: DecisionContext, threshold: Threshold, masked: int
    ) -> SummaryOffer | None:
        """Return the summary that `threshold` asks for; None if there is none.

        masked: tokens of the view if everything pending were masked.
        """
        if context.call < self.retry_at:
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

    def count_saved_tokens(self, turns: int) -> int:
        """Return the tokens that the pending masking would save in turns 1 ... `turns`."""
        if turns >= self._learned_call - 1:
            return self.pending_tokens
        return sum(candidate.saved_tokens for key, candidate in self.pending.items() if key[0] <= turns)

    def count_entering_tokens(self, context: DecisionContext, plan: Plan) -> int:
        """Return the tokens of the recall tools that enter with `plan`."""
        hides = self.needs_recall(masks=bool(plan.masks), others=bool(plan.clips or plan.summarize_to))
        return context.count_entering_tokens(hides=hides)

    def needs_recall(self, *, masks: bool, others: bool) -> bool:
        """Return whether anything hidden can be recalled. masks: observations are hidden. others: clips, a summary."""
        return others or (masks and self.placeholders.names_handle)

    def make_masks(self, keys: Iterable[Key]) -> tuple[Mask, ...]:
        """Return the candidates of `keys` as masks, in the order of the view."""
        return tuple(Mask(key, self.pending[key].text) for key in sorted(keys))

    def make_editable_masks(self, context: DecisionContext) -> tuple[Mask, ...]:
        """Return all candidates that may be edited as masks, in the order of the view."""
        return self.make_masks(key for key in self.pending if key[0] >= context.editable_from)

    def count_editable_tokens(self, context: DecisionContext) -> int:
        """Return the tokens that masking all candidates that may be edited would save."""
        if context.editable_from <= 1:
            return self.pending_tokens
        return sum(candidate.saved_tokens for key, candidate in self.pending.items() if key[0] >= context.editable_from)

    def find_coverable(self, state: State, context: DecisionContext, turn: int) -> int:
        """Return the newest turn up to `turn` that a new summary may end with; 0 if there is none."""
        covers = self.server_calls.limit_summary(turn)
        # Thinking that stays is bound to what a summary would replace.
        if covers > state.covered_turns and covers >= context.editable_from:
            return covers
        return 0

    def _collect_due(self, state: State, call: int) -> None:
        # Also what became due at calls that were not made here: an adopted history has turns without calls.
        for due in range(self._learned_call + 1, call + 1):
            for key in self._due_keys.pop(due, ()):
                if self.add_candidate(state, key, due):
                    self.fresh_turns.add(key[0])
        self._learned_call = max(self._learned_call, call)

    def add_candidate(self, state: State, key: Key, call: int) -> bool:
        """Make `key` a candidate from call `call` on if masking is allowed and saves tokens. Return whether it is."""
        if key in self._settled_keys or key in self.pending or key[0] <= state.covered_turns:
            return False
        turn = state.turns[key[0] - 1]
        observation = state.find_observation(key)
        # Both sizes in o200k tokens whatever the model, so that the counter does not change what is masked (design 5).
        size = self._text_sizer.count_observation(observation)
        text = self.placeholders.write_placeholder(key, turn, observation, self._known_before(state, call))
        if size < self._rulings[key].below:
            self._settled_keys.add(key)
            return False
        if size <= self._text_sizer.count_text(text):
            self._settled_keys.add(key)
            self.not_shortened.add(key)
            return False
        saved_tokens = state.find_segment(key).tokens - state.sizer.count_text(text)
        self.pending[key] = MaskCandidate(key, text, saved_tokens, call)
        self.pending_tokens += saved_tokens
        if self._first_pending is None:
            self._first_pending = key
        else:
            self._first_pending = min(self._first_pending, key)
        return True

    def look_ahead(self, state: State) -> Iterator[None]:
        """Write the placeholders that the next call needs, one a step, with what is known by now.

        The call writes them again, since its turn may add to what is known; what it looks up is in caches then.
        """
        for key in list(self._due_keys.get(len(state.turns) + 2, ())):
            if key not in self._settled_keys and key not in self.pending and key[0] > state.covered_turns:
                known = self._known_before(state, len(state.turns) + 1)
                self.placeholders.write_placeholder(key, state.turns[key[0] - 1], state.find_observation(key), known)
                yield

    def drop_candidates(self, keys: Iterable[Key]) -> None:
        """Drop the candidates of `keys`; a later pass may add them again."""
        for key in keys:
            self.pending_tokens -= self.pending.pop(key).saved_tokens
        self._first_pending = min(self.pending, default=None)

    def _known_before(self, state: State, call: int) -> KnownIdentifiers:
        """Return the identifiers known before call `call`. Calls ascend; nothing is read until something is masked."""
        while self._identified_turns < min(call - 1, len(state.turns)):
            self.known.add_turn(state.turns[self._identified_turns])
            self._identified_turns += 1
        return self.known

    def _find_summary_offer(self, state: State, context: DecisionContext) -> SummaryOffer | None:
        if self.trigger is None or context.call < self.retry_at:
            return None
        due = self.trigger.find_due_turn(state, context, self.count_saved_tokens)
        covers = self.server_calls.limit_summary(due)
        if covers > state.covered_turns:
            return self.estimate_summary(state, context, covers)
        return None

    def estimate_summary(
        self, state: State, context: DecisionContext, covers: int, limit: int = 0
    ) -> SummaryOffer | None:
        """Return the offer of a summary of turns 1 ... `covers`; None if the view would not shrink by it.

        limit: most tokens of the summary; 0 for the strategy's own limit.
        """
        limit = limit or self.options.summary_max_tokens
        tokens = self._count_with_summary(state, context, covers, limit)
        if tokens - context.count_entering_tokens(hides=True) >= state.track.tokens - self.count_editable_tokens(
            context
        ):
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
            hidden=self._hidden_raw_tokens,
            output=limit,
        )
        return SummaryOffer(covers=covers, view_tokens=tokens, call=call)

    def find_whole_summary(self, state: State, context: DecisionContext) -> tuple[int, int]:
        """Return the newest turn outside the tail, 0 for none, and the most tokens of a summary that shortens the view.

        Whether a summary is due, or pays, does not matter.
        """
        if self.trigger is None:
            return 0, 0
        covers = self.server_calls.limit_summary(self.trigger.find_last_outside_tail(state, context.call))
        if covers <= state.covered_turns:
            return 0, 0
        saved = sum(candidate.saved_tokens for key, candidate in self.pending.items() if key[0] > covers)
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
        for key, candidate in self.pending.items():
            if key[0] > covers:
                rest -= candidate.saved_tokens
        return head + summary + rest

    def count_quoted_tokens(self, covers: int) -> int:
        """Return the tokens of what a summary of turns 1 ... `covers` quotes word for word."""
        return self._quoted_tokens[covers]

    def _estimate_costs(self, state: State, context: DecisionContext, summary: SummaryOffer | None) -> CostEstimates:
        sent = state.unchanged_length
        tools = context.count_entering_tokens(hides=False)
        hold = context.cost_prompt(state.track.tokens + tools, context.count_cached_tokens(state, sent, tools))
        if self.pending:
            mask_now, masked_before, floor = self._estimate_mask_costs(state, context, sent)
        else:
            mask_now = masked_before = floor = hold
        entering = context.count_entering_tokens(hides=self.placeholders.names_handle)
        smallest_view = state.track.tokens - self.pending_tokens + entering
        summarize_now = summarized_before = masked_before
        cost_summarizer = cost_summarizer_fixed = 0.0
        if summary is not None:
            summarize_now, summarized_before = self._estimate_summary_costs(state, context, sent, summary)
            smallest_view = min(smallest_view, summary.view_tokens)
            cost_summarizer = summary.call.usd
            cost_summarizer_fixed = summary.call.fixed_usd
        return CostEstimates(
            call=context.call,
            fresh_turns=len(self.fresh_turns),
            can_mask=bool(self.pending),
            can_summarize=summary is not None,
            cost_hold=hold,
            cost_mask_now=mask_now,
            cost_if_masked_before=masked_before,
            cost_floor=floor,
            cost_summarize_now=summarize_now,
            cost_if_summarized_before=summarized_before,
            cost_summarizer=cost_summarizer,
            cost_summarizer_fixed=cost_summarizer_fixed,
            turns_since_summary=context.call - 1 - state.covered_turns,
            calls_until_summary=self.trigger.count_calls_until(state, context.call) if self.trigger else None,
            spent_usd=context.spent_usd,
            raw_usd=context.raw_usd,
            is_cache_cold=context.is_cache_cold(),
            is_warm_elsewhere=context.is_warm_elsewhere(),
            # Even while the raw view is as small: it would be cached first, and ours would be the more expensive one.
            is_below_cache_minimum=context.prices.has_cache and smallest_view < context.prices.cache.minimum,
        )

    def _estimate_mask_costs(self, state: State, context: DecisionContext, sent: int) -> tuple[float, float, float]:
        """Return what this call costs in USD if everything pending is masked now, if it had been masked before, and if
        only what follows the newest pending observation is written again.

        sent: segments of the last view.
        """
        entering = context.count_entering_tokens(hides=self.placeholders.names_handle)
        tokens = state.track.tokens - self.pending_tokens + entering
        assert self._first_pending is not None
        newest = next(reversed(self.pending))
        cached = context.count_cached_tokens(state, min(sent, state.observation_places[self._first_pending]), entering)
        best_cached = max(cached, self._count_best_cached(state, context, sent, tokens, cached))
        up_to_newest = state.track.ends[state.observation_places[newest]] - self.pending_tokens + entering
        floor_cached = max(cached, min(best_cached, context.prices.cache.count_usable(up_to_newest)))
        return (
            context.cost_prompt(tokens, cached),
            context.cost_prompt(tokens, best_cached),
            context.cost_prompt(tokens, floor_cached),
        )

    def _estimate_summary_costs(
        self, state: State, context: DecisionContext, sent: int, summary: SummaryOffer
    ) -> tuple[float, float]:
        """Return what this call costs in USD after a summary made now, and if the summary had been made before."""
        entering = context.count_entering_tokens(hides=True)
        cached = context.count_cached_tokens(state, min(sent, state.head_length), entering)
        best_cached = max(cached, self._count_best_cached(state, context, sent, summary.view_tokens, cached))
        return context.cost_prompt(summary.view_tokens, cached), context.cost_prompt(summary.view_tokens, best_cached)

    @staticmethod
    def _count_best_cached(state: State, context: DecisionContext, sent: int, tokens: int, cached: int) -> int:
        """Return what a view of `tokens` would read from the cache if the last view had been like it."""
        if context.is_cache_cold():
            return cached
        added = state.track.tokens - state.track.count_tokens_before(sent)
        return context.prices.cache.count_usable(tokens - added)
