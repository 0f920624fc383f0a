"""When a strategy may replace old turns by a summary, and which turns."""

from __future__ import annotations

from typing import Protocol

from elision.trajectory.state import State


class SummaryTrigger(Protocol):
    """Decides from the state alone. Its work does not grow with the history."""

    def find_due_turn(self, state: State, call: int, saves: int = 0) -> int:
        """Return the newest turn that a summary may cover at call `call`; 0 for no summary now.

        saves: tokens that the pending masking would save.
        """
        ...

    def find_last_outside_tail(self, state: State, call: int) -> int:
        """Return the newest turn that a summary may cover at call `call`, due or not; 0 or less for none."""
        ...

    def count_calls_until(self, state: State, call: int) -> int | None:
        """Return the calls until the number of turns alone makes a summary due; None if that cannot be known."""
        ...


class EveryTurnsTrigger:
    """Cover all but the newest `tail` turns once `every` + `tail` turns follow the last summary."""

    def __init__(self, every: int, tail: int) -> None:
        self.every = every
        self.tail = tail

    def find_due_turn(self, state: State, call: int, saves: int = 0) -> int:
        if call - 1 - state.covered_turns >= self.every + self.tail:
            return self.find_last_outside_tail(state, call)
        return 0

    def find_last_outside_tail(self, state: State, call: int) -> int:
        return call - 1 - self.tail

    def count_calls_until(self, state: State, call: int) -> int | None:
        return max(0, state.covered_turns + self.every + self.tail + 1 - call)


class GrowthTrigger:
    """Cover all but the newest `tail` turns: once `turns` follow the summary, or those to cover exceed `tokens`."""

    def __init__(self, turns: int, tail: int, tokens: int | None) -> None:
        self.turns = turns
        self.tail = tail
        self.tokens = tokens

    def find_due_turn(self, state: State, call: int, saves: int = 0) -> int:
        covers = self.find_last_outside_tail(state, call)
        if covers <= state.covered_turns:
            return 0
        if call - 1 - state.covered_turns >= self.turns:
            return covers
        if self.tokens is not None and self._count_visible_tokens(state, covers) > self.tokens:
            return covers
        return 0

    def find_last_outside_tail(self, state: State, call: int) -> int:
        return call - 1 - self.tail

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

    def find_due_turn(self, state: State, call: int, saves: int = 0) -> int:
        # A placeholder is cheaper than a summary: what masking can do is not a reason to summarize.
        tokens = state.track.tokens - saves
        if not (tokens > self.hard or (tokens > self.soft and call - 1 > self.after)):
            return 0
        covers = self.find_last_outside_tail(state, call)
        if covers - state.covered_turns >= self.fewest:
            return covers
        return 0

    def count_calls_until(self, state: State, call: int) -> int | None:
        return None

    def find_last_outside_tail(self, state: State, call: int) -> int:
        """Return the newest turn before the turns of the newest `keep` results."""
        left = self.keep
        for turn in reversed(state.turns):
            left -= len(turn.observations)
            if left <= 0:
                return turn.index - 1
        return 0
