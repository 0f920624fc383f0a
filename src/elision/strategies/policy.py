"""One session's memory of a strategy: what may be hidden, what it would save, and the schedule's clock.

A fold over the same events as the state: shown every turn once, asked once a call. Deciding costs what is new.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elision.strategies.lexicon import Lexicon
from elision.strategies.rules import Rules, Ruling
from elision.strategies.schedules import Offer
from elision.strategies.selectors import Superseded
from elision.strategies.server_calls import ServerCalls
from elision.strategies.situation import Situation
from elision.strategies.summary_cost import BLOCK_TOKENS, SummaryCall, standing_words, summary_call
from elision.trajectory.events import Decided
from elision.trajectory.plan import Key, Mask, Plan
from elision.trajectory.spoken import spoken
from elision.trajectory.state import State
from elision.trajectory.tokens import Sizer, counter
from elision.trajectory.turn import Head, Turn

if TYPE_CHECKING:
    from elision.strategies.strategy import Strategy


#: The label in front of a quote, in tokens.
QUOTE_TOKENS = 15


@dataclass(frozen=True, slots=True)
class Candidate:
    """An observation that may give way to `text` from call `since` on, and the tokens that saves."""

    key: Key
    text: str
    saves: int
    since: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOffer:
    """A summary that may be made now: what the view would be, and what writing it would cost."""

    covers: int
    tokens: int
    call: SummaryCall


class Policy:
    """See the module. `strategy` is the frozen configuration it serves."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.placeholders = strategy.placeholders
        self.selectors = strategy.selectors()
        self.trigger = strategy.trigger()
        self.rules = Rules(strategy.rules)
        self.clock = strategy.schedule.start()
        self.lexicon = Lexicon()
        self._read = 0
        self._scale = Sizer(counter("o200k"))
        self._learned = 0
        self.pending: dict[Key, Candidate] = {}
        self.saves = 0
        self.fresh: set[int] = set()
        self.protected: list[Key] = []
        self.pinned: list[int] = []
        self.retry_at = 0
        self._first: Key | None = None
        self._due: dict[int, list[Key]] = defaultdict(list)
        self._settled: set[Key] = set()
        #: What might be hidden but is not longer than its placeholder.
        self.spared: set[Key] = set()
        self._rulings: dict[Key, Ruling] = {}
        self._ruled = Superseded() if self.rules.supersede else None
        self._hidden_raw = 0
        self.user_tokens = [0]
        self._quoted = [0]
        self._open: list[Key] = []
        self._open_from = 0
        self.server_calls = ServerCalls()

    # -- folding -------------------------------------------------------------------------------------------------

    def head_set(self, head: Head) -> None:
        self.lexicon.head(head)

    def turn_added(self, state: State, turn: Turn) -> None:
        """Learn `turn`, which is in `state` already."""
        self.server_calls.turn_added(turn)
        said = sum(state.sizer.message(message) for message in turn.interjections)
        self.user_tokens.append(self.user_tokens[-1] + said)
        self._quoted.append(self._quoted[-1])
        if not self.strategy.hides:
            return
        self._rule(state, turn)
        for selector in self.selectors:
            for call, key in selector.turn_added(turn):
                # A rule's `after` stands in the place of the strategy's own notion of age.
                if not (selector.by_age and self._rulings[key].after):
                    self._due[max(call, turn.index + 1)].append(key)
        if self._ruled is not None:
            for call, key in self._ruled.turn_added(turn):
                if self._rulings[key].superseded:
                    self._due[call].append(key)

    def turn_reworded(self, state: State, turn: Turn) -> None:
        """The newest turn has other words of the user behind it."""
        self.user_tokens[-1] = self.user_tokens[-2] + sum(
            state.sizer.message(message) for message in turn.interjections
        )

    def _rule(self, state: State, turn: Turn) -> None:
        if turn.pinned:
            self.pinned.append(turn.index)
            self._quoted[-1] += QUOTE_TOKENS + state.sizer.text(spoken(turn))
        for position, observation in enumerate(turn.observations, start=1):
            key = (turn.index, position)
            ruling = self._rulings[key] = self.rules.ruling(turn, observation)
            if ruling.keep:
                self.protected.append(key)
                self._settled.add(key)
                self._quoted[-1] += QUOTE_TOKENS + state.sizer.observation(observation)
                continue
            self._open.append(key)
            if ruling.after is not None:
                self._due[turn.index + ruling.after + 1].append(key)

    def decided(self, state: State, event: Decided) -> None:
        """Forget what `event`, which is in `state` already, has settled."""
        for mask in event.masks:
            candidate = self.pending.pop(mask.key, None)
            self._settled.add(mask.key)
            if candidate is not None:
                self.saves -= candidate.saves
            self._hidden_raw += state.sizer.observation(state.observation(mask.key))
        if event.summary is not None:
            for key in [key for key in self.pending if key[0] <= event.summary.covers]:
                self.saves -= self.pending.pop(key).saves
            self._hidden_raw = sum(state.sizer.observation(state.observation(key)) for key in state.hidden)
        if event.masks or event.summary is not None:
            self.fresh.clear()
            self._first = min(self.pending, default=None)
        self.clock.acted("summarize" if event.summary else "mask" if event.masks else "hold")

    def frontier(self, state: State) -> int | None:
        """Segments in front of the first observation that a later pass may rewrite; None if there is none yet."""
        while self._open_from < len(self._open):
            key = self._open[self._open_from]
            if key not in self._settled and key[0] > state.covered:
                return state.places[key]
            self._open_from += 1
        return None

    # -- deciding ------------------------------------------------------------------------------------------------

    def decide(self, state: State, situation: Situation, *, forced: bool = False) -> Plan:
        """This pass's plan; the budget is not looked at here.

        forced: do all that the strategy allows, whether the schedule finds that it pays or not.
        """
        self._learn(state, situation.call)
        summary = self._summary_offer(state, situation)
        verdict, reason = self.clock.weigh(self._offer(state, situation, summary))
        if forced:
            verdict = "summarize" if summary is not None else "mask"
            reason = "forced"
        if verdict == "summarize" and summary is not None:
            masks = self.masks(key for key in self.pending if key[0] > summary.covers)
            return Plan(masks=masks, summarize=summary.covers, reason=reason)
        if verdict == "mask" and self.pending:
            return Plan(masks=self.masks(self.pending), reason=reason)
        return Plan(reason=reason)

    def entering(self, situation: Situation, plan: Plan) -> int:
        """Tokens of the recall tools that enter with `plan`."""
        return situation.entering(hides=self.names(bool(plan.masks), bool(plan.clips or plan.summarize)))

    def names(self, masks: bool, others: bool) -> bool:
        """Whether something is hidden that can be recalled. masks: observations are; others: clips, or a summary."""
        return others or (masks and self.placeholders.named)

    def masks(self, keys: Iterable[Key]) -> tuple[Mask, ...]:
        """The candidates of `keys` as decisions, in the order of the view."""
        return tuple(Mask(key, self.pending[key].text) for key in sorted(keys))

    def _learn(self, state: State, call: int) -> None:
        # Also what became due at calls that were never made here: a history that was taken up has turns without them.
        for due in range(self._learned + 1, call + 1):
            for key in self._due.pop(due, ()):
                if self.consider(state, key, due):
                    self.fresh.add(key[0])
        self._learned = max(self._learned, call)

    def consider(self, state: State, key: Key, call: int) -> bool:
        """Make `key` a candidate from call `call` on, if masking it is allowed and saves anything."""
        if key in self._settled or key in self.pending or key[0] <= state.covered:
            return False
        turn = state.turns[key[0] - 1]
        observation = state.observation(key)
        # Both sizes in o200k tokens whatever the model, so that the counter does not change what is masked (design 5).
        size = self._scale.observation(observation)
        text = self.placeholders.write(key, turn, observation, self._lexicon_at(state, call))
        small = size < self._rulings[key].below
        short = size <= self._scale.text(text)
        if small or short:
            self._settled.add(key)
            if not small:
                self.spared.add(key)
            return False
        saves = state.segment(key).tokens - state.sizer.text(text)
        self.pending[key] = Candidate(key, text, saves, call)
        self.saves += saves
        if self._first is None:
            self._first = key
        else:
            self._first = min(self._first, key)
        return True

    def forget(self, keys: Iterable[Key]) -> None:
        """Make `keys` no candidates any more; a later pass may consider them again."""
        for key in keys:
            self.saves -= self.pending.pop(key).saves
        self._first = min(self.pending, default=None)

    def _lexicon_at(self, state: State, call: int) -> Lexicon:
        """The lexicon of the log up to call `call`; asked in the order of calls, and never if nothing is masked."""
        while self._read < min(call - 1, len(state.turns)):
            self.lexicon.turn(state.turns[self._read])
            self._read += 1
        return self.lexicon

    def _summary_offer(self, state: State, situation: Situation) -> SummaryOffer | None:
        if self.trigger is None or situation.call < self.retry_at:
            return None
        covers = self.server_calls.limit_summary(self.trigger.due(state, situation.call, self.saves))
        if covers > state.covered:
            return self.summary_to(state, situation, covers)
        return None

    def summary_to(self, state: State, situation: Situation, covers: int, limit: int = 0) -> SummaryOffer | None:
        """A summary of turns 1 ... `covers`, if the view would shrink by it.

        limit: most tokens that it may have; 0 for the strategy's own limit.
        """
        limit = limit or self.strategy.summary_max_tokens
        tokens = self._tokens_with_summary(state, situation, covers, limit)
        if tokens - situation.entering(hides=True) >= state.track.tokens - self.saves:
            return None
        if state.last is None:
            last = len(state.track.segments)
        else:
            last = state.sent
        call = summary_call(
            situation.prices,
            covered=state.raw_start(covers + 1) - state.raw_start(state.covered + 1),
            previous=limit if state.summary else state.task_tokens,
            live=state.track.tokens,
            live_cached=situation.cached(state, last),
            hidden=self._hidden_raw,
            output=limit,
        )
        return SummaryOffer(covers=covers, tokens=tokens, call=call)

    def summary_room(self, state: State, situation: Situation, covers: int, tokens: int) -> int:
        """Most tokens that a summary of turns 1 ... `covers` may have in a view of `tokens`; below 1 for none."""
        least = self._tokens_with_summary(state, situation, covers, 0)
        # The user's old words may take as much again.
        each = self._tokens_with_summary(state, situation, covers, 1) - least
        return (tokens - least) // each

    def _tokens_with_summary(self, state: State, situation: Situation, covers: int, limit: int) -> int:
        """Tokens of the view with a summary of turns 1 ... `covers` that has `limit` tokens."""
        place = state.turn_places.get(covers + 1)
        behind = state.track.tokens - (state.track.tokens if place is None else state.track.start(place))
        saved = sum(candidate.saves for key, candidate in self.pending.items() if key[0] > covers)
        head = state.track.start(state.head_length) + situation.entering(hides=True)
        said = standing_words(self.user_tokens[covers], self.strategy.keep_user_tokens, limit)
        return head + BLOCK_TOKENS + limit + said + self.quoted(covers) + behind - saved

    def quoted(self, covers: int) -> int:
        """Tokens of what a summary of turns 1 ... `covers` quotes word for word."""
        return self._quoted[covers]

    def _offer(self, state: State, situation: Situation, summary: SummaryOffer | None) -> Offer:
        sent = state.sent
        standing = situation.entering(hides=False)
        hold = situation.usd(state.track.tokens + standing, situation.cached(state, sent, standing))
        if self.pending:
            mask, masked, window = self._mask_costs(state, situation, sent)
        else:
            mask, masked, window = (hold, hold, hold)
        summarize = summarized = masked
        least = state.track.tokens - self.saves + situation.entering(hides=self.placeholders.named)
        if summary is not None:
            summarize, summarized = self._summary_costs(state, situation, sent, summary)
            least = min(least, summary.tokens)
        return Offer(
            call=situation.call,
            fresh=len(self.fresh),
            pending=bool(self.pending),
            summary=summary is not None,
            hold=hold,
            mask=mask,
            masked=masked,
            window=window,
            summarize=summarize,
            summarized=summarized,
            summarizer=summary.call.usd if summary else 0.0,
            fixed=summary.call.fixed if summary else 0.0,
            behind=situation.call - 1 - state.covered,
            until=self.trigger.until(state, situation.call) if self.trigger else None,
            spent=situation.spent,
            raw=situation.raw,
            cold=situation.cold(),
            elsewhere=situation.warm_elsewhere(),
            # Not even while the raw view is as small: it would be cached first, and ours would be the dearer one.
            small=situation.prices.caches and least < situation.prices.cache.minimum,
        )

    def _mask_costs(self, state: State, situation: Situation, sent: int) -> tuple[float, float, float]:
        """This call if everything pending is masked now, had been before, or had been but for what is behind it; USD.

        sent: segments of the last view.
        """
        entering = situation.entering(hides=self.placeholders.named)
        tokens = state.track.tokens - self.saves + entering
        assert self._first is not None
        newest = next(reversed(self.pending))
        cached = situation.cached(state, min(sent, state.places[self._first]), entering)
        ideal = max(cached, self._ideal(state, situation, sent, tokens, cached))
        settled = situation.prices.cache.usable(state.track.ends[state.places[newest]] - self.saves + entering)
        window = max(cached, min(ideal, settled))
        return situation.usd(tokens, cached), situation.usd(tokens, ideal), situation.usd(tokens, window)

    def _summary_costs(
        self, state: State, situation: Situation, sent: int, summary: SummaryOffer
    ) -> tuple[float, float]:
        """This call behind a summary made now, and had it stood before; USD."""
        cached = situation.cached(state, min(sent, state.head_length), situation.entering(hides=True))
        ideal = max(cached, self._ideal(state, situation, sent, summary.tokens, cached))
        return situation.usd(summary.tokens, cached), situation.usd(summary.tokens, ideal)

    @staticmethod
    def _ideal(state: State, situation: Situation, sent: int, tokens: int, cached: int) -> int:
        """What a view of `tokens` would read from cache had the last one been like it; nothing more in a cold one."""
        if situation.cold():
            return cached
        return situation.prices.cache.usable(tokens - (state.track.tokens - state.track.start(sent)))
