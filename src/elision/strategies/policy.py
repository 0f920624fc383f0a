"""One session's memory of a strategy: what may be hidden, what it would save, and the schedule's clock.

A fold over the same events as the state: shown every turn once, asked once a call. Deciding costs what is new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from elision.strategies.budget import Budget
from elision.strategies.decision_context import DecisionContext
from elision.strategies.known_identifiers import KnownIdentifiers
from elision.strategies.placeholder import Placeholders
from elision.strategies.rules import Rule, RuleOutcome, RuleTable
from elision.strategies.schedules import CostEstimates, Schedule
from elision.strategies.selectors import Selector, Superseded
from elision.strategies.server_calls import ServerCalls
from elision.strategies.summary_cost import BLOCK_TOKENS, SummaryCall, choose_summary_call, limit_user_words
from elision.strategies.triggers import SummaryTrigger
from elision.trajectory.assistant_text import join_assistant_text
from elision.trajectory.events import PassDecided
from elision.trajectory.plan import Key, Mask, Plan
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Head, Turn

#: The label in front of a quote, in tokens.
QUOTE_TOKENS = 15


@dataclass(frozen=True, slots=True)
class MaskCandidate:
    """An observation that may give way to `text` from call `since_call` on, and the tokens that saves."""

    key: Key
    text: str
    saved_tokens: int
    since_call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOffer:
    """A summary that may be made now: what the view would be, and what writing it would cost."""

    covers: int
    view_tokens: int
    call: SummaryCall


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyOptions:
    """What a session's policy takes from its strategy.

    selectors, trigger: of this session alone, since they remember its turns.
    can_hide: whether anything is ever hidden, by rules too.
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


class Policy:
    """See the module."""

    def __init__(self, options: PolicyOptions) -> None:
        self.options = options
        self.placeholders = options.placeholders
        self.selectors = options.selectors
        self.trigger = options.trigger
        self.rules = RuleTable(options.rules)
        self.clock = options.schedule.start_clock()
        self.known = KnownIdentifiers()
        self._identified_turns = 0
        self._o200k_sizer = Sizer(make_counter("o200k"))
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
        """Learn `turn`, which is in `state` already."""
        self.server_calls.add_turn(turn)
        said = sum(state.sizer.count_message(message) for message in turn.interjections)
        self.user_tokens.append(self.user_tokens[-1] + said)
        self._quoted_tokens.append(self._quoted_tokens[-1])
        if not self.options.can_hide:
            return
        self._apply_rules(state, turn)
        for selector in self.selectors:
            for call, key in selector.find_due_keys(turn):
                # A rule's `after` stands in the place of the strategy's own notion of age.
                if not (selector.by_age and self._rulings[key].after):
                    self._due_keys[max(call, turn.index + 1)].append(key)
        if self._superseded_by_rule is not None:
            for call, key in self._superseded_by_rule.find_due_keys(turn):
                if self._rulings[key].superseded:
                    self._due_keys[call].append(key)

    def replace_user_words(self, state: State, turn: Turn) -> None:
        """The newest turn has other words of the user behind it."""
        self.user_tokens[-1] = self.user_tokens[-2] + sum(
            state.sizer.count_message(message) for message in turn.interjections
        )

    def _apply_rules(self, state: State, turn: Turn) -> None:
        if turn.pinned:
            self.pinned_turns.append(turn.index)
            self._quoted_tokens[-1] += QUOTE_TOKENS + state.sizer.count_text(join_assistant_text(turn))
        for position, observation in enumerate(turn.observations, start=1):
            key = (turn.index, position)
            ruling = self._rulings[key] = self.rules.apply_rules(turn, observation)
            if ruling.keep:
                self.protected.append(key)
                self._settled_keys.add(key)
                self._quoted_tokens[-1] += QUOTE_TOKENS + state.sizer.count_observation(observation)
                continue
            self._open_keys.append(key)
            if ruling.after is not None:
                self._due_keys[turn.index + ruling.after + 1].append(key)

    def record_decision(self, state: State, event: PassDecided) -> None:
        """Forget what `event`, which is in `state` already, has settled."""
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
        self.clock.record_action("summarize" if event.summary else "mask" if event.masks else "hold")

    def find_stable_length(self, state: State) -> int | None:
        """Segments in front of the first observation that a later pass may rewrite; None if there is none yet."""
        while self._first_open < len(self._open_keys):
            key = self._open_keys[self._first_open]
            if key not in self._settled_keys and key[0] > state.covered_turns:
                return state.observation_places[key]
            self._first_open += 1
        return None

    # -- deciding ------------------------------------------------------------------------------------------------

    def plan_pass(self, state: State, situation: DecisionContext, *, forced: bool = False) -> Plan:
        """This pass's plan; the budget is not looked at here.

        forced: do all that the strategy allows, whether the schedule finds that it pays or not.
        """
        self._collect_due(state, situation.call)
        summary = self._find_summary_offer(state, situation)
        verdict, reason = self.clock.choose_action(self._estimate_costs(state, situation, summary))
        if forced:
            verdict = "summarize" if summary is not None else "mask"
            reason = "forced"
        if verdict == "summarize" and summary is not None:
            masks = self.make_masks(key for key in self.pending if key[0] > summary.covers)
            return Plan(masks=masks, summarize_to=summary.covers, reason=reason)
        if verdict == "mask" and self.pending:
            return Plan(masks=self.make_masks(self.pending), reason=reason)
        return Plan(reason=reason)

    def count_entering_tokens(self, situation: DecisionContext, plan: Plan) -> int:
        """Tokens of the recall tools that enter with `plan`."""
        return situation.count_entering_tokens(
            hides=self.needs_recall(bool(plan.masks), bool(plan.clips or plan.summarize_to))
        )

    def needs_recall(self, masks: bool, others: bool) -> bool:
        """Whether something is hidden that can be recalled. masks: observations are; others: clips, or a summary."""
        return others or (masks and self.placeholders.names_handle)

    def make_masks(self, keys: Iterable[Key]) -> tuple[Mask, ...]:
        """The candidates of `keys` as decisions, in the order of the view."""
        return tuple(Mask(key, self.pending[key].text) for key in sorted(keys))

    def _collect_due(self, state: State, call: int) -> None:
        # Also what became due at calls that were never made here: a history that was taken up has turns without them.
        for due in range(self._learned_call + 1, call + 1):
            for key in self._due_keys.pop(due, ()):
                if self.add_candidate(state, key, due):
                    self.fresh_turns.add(key[0])
        self._learned_call = max(self._learned_call, call)

    def add_candidate(self, state: State, key: Key, call: int) -> bool:
        """Make `key` a candidate from call `call` on, if masking it is allowed and saves anything."""
        if key in self._settled_keys or key in self.pending or key[0] <= state.covered_turns:
            return False
        turn = state.turns[key[0] - 1]
        observation = state.find_observation(key)
        # Both sizes in o200k tokens whatever the model, so that the counter does not change what is masked (design 5).
        size = self._o200k_sizer.count_observation(observation)
        text = self.placeholders.write_placeholder(key, turn, observation, self._known_before(state, call))
        small = size < self._rulings[key].below
        short = size <= self._o200k_sizer.count_text(text)
        if small or short:
            self._settled_keys.add(key)
            if not small:
                self.not_shortened.add(key)
            return False
        saves = state.find_segment(key).tokens - state.sizer.count_text(text)
        self.pending[key] = MaskCandidate(key, text, saves, call)
        self.pending_tokens += saves
        if self._first_pending is None:
            self._first_pending = key
        else:
            self._first_pending = min(self._first_pending, key)
        return True

    def drop_candidates(self, keys: Iterable[Key]) -> None:
        """Make `keys` no candidates any more; a later pass may consider them again."""
        for key in keys:
            self.pending_tokens -= self.pending.pop(key).saved_tokens
        self._first_pending = min(self.pending, default=None)

    def _known_before(self, state: State, call: int) -> KnownIdentifiers:
        """The lexicon of the log up to call `call`; asked in the order of calls, and never if nothing is masked."""
        while self._identified_turns < min(call - 1, len(state.turns)):
            self.known.add_turn(state.turns[self._identified_turns])
            self._identified_turns += 1
        return self.known

    def _find_summary_offer(self, state: State, situation: DecisionContext) -> SummaryOffer | None:
        if self.trigger is None or situation.call < self.retry_at:
            return None
        covers = self.server_calls.limit_summary(self.trigger.find_due_turn(state, situation.call, self.pending_tokens))
        if covers > state.covered_turns:
            return self.estimate_summary(state, situation, covers)
        return None

    def estimate_summary(
        self, state: State, situation: DecisionContext, covers: int, limit: int = 0
    ) -> SummaryOffer | None:
        """A summary of turns 1 ... `covers`, if the view would shrink by it.

        limit: most tokens that it may have; 0 for the strategy's own limit.
        """
        limit = limit or self.options.summary_max_tokens
        tokens = self._count_with_summary(state, situation, covers, limit)
        if tokens - situation.count_entering_tokens(hides=True) >= state.track.tokens - self.pending_tokens:
            return None
        if state.last_view is None:
            last = len(state.track.segments)
        else:
            last = state.unchanged_length
        call = choose_summary_call(
            situation.prices,
            covered=state.count_raw_tokens_before(covers + 1) - state.count_raw_tokens_before(state.covered_turns + 1),
            previous=limit if state.summary else state.task_tokens,
            live=state.track.tokens,
            live_cached=situation.count_cached_tokens(state, last),
            hidden=self._hidden_raw_tokens,
            output=limit,
        )
        return SummaryOffer(covers=covers, view_tokens=tokens, call=call)

    def limit_summary_tokens(self, state: State, situation: DecisionContext, covers: int, tokens: int) -> int:
        """Most tokens that a summary of turns 1 ... `covers` may have in a view of `tokens`; below 1 for none."""
        least = self._count_with_summary(state, situation, covers, 0)
        # The user's old words may take as much again.
        each = self._count_with_summary(state, situation, covers, 1) - least
        return (tokens - least) // each

    def _count_with_summary(self, state: State, situation: DecisionContext, covers: int, limit: int) -> int:
        """Tokens of the view with a summary of turns 1 ... `covers` that has `limit` tokens."""
        place = state.turn_places.get(covers + 1)
        behind = state.track.tokens - (state.track.tokens if place is None else state.track.count_tokens_before(place))
        saved = sum(candidate.saved_tokens for key, candidate in self.pending.items() if key[0] > covers)
        head = state.track.count_tokens_before(state.head_length) + situation.count_entering_tokens(hides=True)
        said = limit_user_words(self.user_tokens[covers], self.options.keep_user_tokens, limit)
        return head + BLOCK_TOKENS + limit + said + self.count_quoted_tokens(covers) + behind - saved

    def count_quoted_tokens(self, covers: int) -> int:
        """Tokens of what a summary of turns 1 ... `covers` quotes word for word."""
        return self._quoted_tokens[covers]

    def _estimate_costs(self, state: State, situation: DecisionContext, summary: SummaryOffer | None) -> CostEstimates:
        sent = state.unchanged_length
        standing = situation.count_entering_tokens(hides=False)
        hold = situation.cost_prompt(
            state.track.tokens + standing, situation.count_cached_tokens(state, sent, standing)
        )
        if self.pending:
            mask, masked, window = self._estimate_mask_costs(state, situation, sent)
        else:
            mask, masked, window = (hold, hold, hold)
        summarize = summarized = masked
        least = (
            state.track.tokens
            - self.pending_tokens
            + situation.count_entering_tokens(hides=self.placeholders.names_handle)
        )
        if summary is not None:
            summarize, summarized = self._estimate_summary_costs(state, situation, sent, summary)
            least = min(least, summary.view_tokens)
        return CostEstimates(
            call=situation.call,
            fresh_turns=len(self.fresh_turns),
            can_mask=bool(self.pending),
            can_summarize=summary is not None,
            cost_hold=hold,
            cost_mask_now=mask,
            cost_if_masked_before=masked,
            cost_floor=window,
            cost_summarize_now=summarize,
            cost_if_summarized_before=summarized,
            cost_summarizer=summary.call.usd if summary else 0.0,
            cost_summarizer_fixed=summary.call.fixed_usd if summary else 0.0,
            turns_since_summary=situation.call - 1 - state.covered_turns,
            calls_until_summary=self.trigger.count_calls_until(state, situation.call) if self.trigger else None,
            spent_usd=situation.spent_usd,
            raw_usd=situation.raw_usd,
            is_cache_cold=situation.is_cache_cold(),
            is_warm_elsewhere=situation.is_warm_elsewhere(),
            # Not even while the raw view is as small: it would be cached first, and ours would be the dearer one.
            is_below_cache_minimum=situation.prices.has_cache and least < situation.prices.cache.minimum,
        )

    def _estimate_mask_costs(self, state: State, situation: DecisionContext, sent: int) -> tuple[float, float, float]:
        """This call if everything pending is masked now, had been before, or had been but for what is behind it; USD.

        sent: segments of the last view.
        """
        entering = situation.count_entering_tokens(hides=self.placeholders.names_handle)
        tokens = state.track.tokens - self.pending_tokens + entering
        assert self._first_pending is not None
        newest = next(reversed(self.pending))
        cached = situation.count_cached_tokens(
            state, min(sent, state.observation_places[self._first_pending]), entering
        )
        ideal = max(cached, self._count_best_cached(state, situation, sent, tokens, cached))
        settled = situation.prices.cache.count_usable(
            state.track.ends[state.observation_places[newest]] - self.pending_tokens + entering
        )
        window = max(cached, min(ideal, settled))
        return (
            situation.cost_prompt(tokens, cached),
            situation.cost_prompt(tokens, ideal),
            situation.cost_prompt(tokens, window),
        )

    def _estimate_summary_costs(
        self, state: State, situation: DecisionContext, sent: int, summary: SummaryOffer
    ) -> tuple[float, float]:
        """This call behind a summary made now, and had it stood before; USD."""
        cached = situation.count_cached_tokens(
            state, min(sent, state.head_length), situation.count_entering_tokens(hides=True)
        )
        ideal = max(cached, self._count_best_cached(state, situation, sent, summary.view_tokens, cached))
        return situation.cost_prompt(summary.view_tokens, cached), situation.cost_prompt(summary.view_tokens, ideal)

    @staticmethod
    def _count_best_cached(state: State, situation: DecisionContext, sent: int, tokens: int, cached: int) -> int:
        """What a view of `tokens` would read from cache had the last one been like it; nothing more in a cold one."""
        if situation.is_cache_cold():
            return cached
        return situation.prices.cache.count_usable(
            tokens - (state.track.tokens - state.track.count_tokens_before(sent))
        )
