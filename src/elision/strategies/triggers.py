"""When a strategy may replace old turns by a summary, and which turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from elision.strategies.decision_context import DecisionContext
from elision.trajectory.state import State

#: Returns the tokens that the pending masking would save in turns 1 ... n.
CountSavedTokens: TypeAlias = Callable[[int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """A number of tokens that the user set and that is exceeded now. The strategy acts at this call, whatever the
    schedule finds.

    name:         the option that sets it.
    tokens:       its value, by our count of tokens.
    covers:       newest turns that a summary may cover, in order of preference.
    least_turns:  new turns that a summary must cover if it does not help enough; see `Policy`.
    limits_view:  whether the view itself exceeds it, so that masking helps too.
    is_strict:    whether no view may exceed it if that can be avoided, however little an act frees.
    """

    name: str
    tokens: int
    covers: tuple[int, ...]
    least_turns: int = 1
    limits_view: bool = False
    is_strict: bool = False


class SummaryTrigger(Protocol):
    """Decides from the state alone. Its work does not grow with the history."""

    def find_due_turn(self, state: State, context: DecisionContext, count_saved: CountSavedTokens) -> int:
        """Return the newest turn that a summary may cover at this call; 0 for no summary now."""
        ...

    def find_crossed_thresholds(
        self, state: State, context: DecisionContext, count_saved: CountSavedTokens
    ) -> tuple[Threshold, ...]:
        """Return the thresholds in tokens that the view, or a part of it, exceeds at this call."""
        ...

    def find_last_outside_tail(self, state: State, call: int) -> int:
        """Return the newest turn that a summary may cover at call `call`, due or not; 0 or less for none."""
        ...

    def count_calls_until(self, state: State, call: int) -> int | None:
        """Return the calls until the number of turns alone makes a summary due; None if that cannot be known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRhythm:
    """The numbers of turns by which a strategy acts.

    window: newest turns whose results stay as they are. turns: after so many since the last summary comes the next; 0
    for none. tail: the newest turns, which it leaves out. counts_tokens: whether tokens make one due as well.
    """

    window: int = 0
    turns: int = 0
    tail: int = 0
    counts_tokens: bool = False

    @property
    def wait(self) -> int:
        """How many calls after the first turn that a summary leaves out the next summary may come."""
        return max(self.turns, self.tail + 1) + 1


class GrowthTrigger:
    """Cover all but the newest `tail` turns: once `turns` follow the summary, or those to cover exceed `tokens`."""

    def __init__(self, turns: int, tail: int, tokens: int | None) -> None:
        self.turns = turns
        self.tail = tail
        self.tokens = tokens

    def find_due_turn(self, state: State, context: DecisionContext, count_saved: CountSavedTokens) -> int:
        covers = self.find_last_outside_tail(state, context.call)
        if covers <= state.covered_turns:
            return 0
        if context.call - 1 - state.covered_turns >= self.turns:
            return covers
        if self.tokens is not None and self._count_visible_tokens(state, covers) > self._count_limit(context):
            return covers
        return 0

    def find_crossed_thresholds(
        self, state: State, context: DecisionContext, count_saved: CountSavedTokens
    ) -> tuple[Threshold, ...]:
        covers = self.find_last_outside_tail(state, context.call)
        if self.tokens is None or covers <= state.covered_turns:
            return ()
        # A placeholder is cheaper than a summary: what masking can do is not a reason to summarize.
        if self._count_visible_tokens(state, covers) - count_saved(covers) <= self._count_limit(context):
            return ()
        return (Threshold(name="summarize_tokens", tokens=self._count_limit(context), covers=(covers,)),)

    def find_last_outside_tail(self, state: State, call: int) -> int:
        return call - 1 - self.tail

    def _count_limit(self, context: DecisionContext) -> int:
        assert self.tokens is not None
        return context.scale_part(self.tokens)

    def count_calls_until(self, state: State, call: int) -> int | None:
        return max(0, state.covered_turns + self.turns + 1 - call)

    def _count_visible_tokens(self, state: State, covers: int) -> int:
        # Tokens of the view, not raw ones: no masking lowers the raw ones, and every call would be due.
        start = state.track.count_tokens_before(state.turn_places[state.covered_turns + 1])
        end = state.turn_places.get(covers + 1)
        if end is None:
            return state.track.tokens - start
        return state.track.count_tokens_before(end) - start


class ViewSizeTrigger:
    """Cover old turns once the view exceeds `hard` tokens, or `soft` after more than `after` calls; see `TwoTier`."""

    def __init__(self, keep: int, soft: int, hard: int, after: int, fewest: int) -> None:
        self.keep = keep
        self.soft = soft
        self.hard = hard
        self.after = after
        self.fewest = fewest

    def find_due_turn(self, state: State, context: DecisionContext, count_saved: CountSavedTokens) -> int:
        # A placeholder is cheaper than a summary: what masking can do is not a reason to summarize.
        tokens = state.track.tokens - count_saved(len(state.turns))
        if self._find_crossed(tokens, context) is None:
            return 0
        covers = self.find_last_outside_tail(state, context.call)
        if covers - state.covered_turns >= self.fewest:
            return covers
        return 0

    def find_crossed_thresholds(
        self, state: State, context: DecisionContext, count_saved: CountSavedTokens
    ) -> tuple[Threshold, ...]:
        # What the view exceeds once everything pending is masked comes first: masking alone does not help there.
        masked = self._find_crossed(state.track.tokens - count_saved(len(state.turns)), context)
        shown = self._find_crossed(state.track.tokens, context)
        crossed = dict.fromkeys(found for found in (masked, shown) if found is not None)
        return tuple(self._make_threshold(state, context, name, tokens) for name, tokens in crossed)

    def _make_threshold(self, state: State, context: DecisionContext, name: str, tokens: int) -> Threshold:
        covers = [self.find_last_outside_tail(state, context.call)]
        is_strict = name == "hard"
        if is_strict:
            # Turns of text alone have no results to count. A conversation full of them would grow without end.
            covers.append(context.call - 1 - self.keep)
        return Threshold(
            name=name,
            tokens=tokens,
            covers=tuple(covers),
            least_turns=self.fewest,
            limits_view=True,
            is_strict=is_strict,
        )

    def find_last_outside_tail(self, state: State, call: int) -> int:
        """Return the newest turn before the turns of the newest `keep` results."""
        left = self.keep
        for turn in reversed(state.turns):
            if turn.index <= state.covered_turns:
                break
            left -= len(turn.observations)
            if left <= 0:
                return turn.index - 1
        return 0

    def count_calls_until(self, state: State, call: int) -> int | None:
        return None

    def _find_crossed(self, tokens: int, context: DecisionContext) -> tuple[str, int] | None:
        """Return the name and the value of the threshold that a view of `tokens` exceeds."""
        hard = context.scale_view(self.hard)
        if tokens > hard:
            return "hard", hard
        soft = context.scale_view(self.soft)
        if tokens > soft and context.call - 1 > self.after:
            return "soft", soft
        return None
