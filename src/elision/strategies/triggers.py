"""When a strategy may replace old turns by a summary, and up to which."""

from __future__ import annotations

from typing import Protocol

from elision.trajectory.state import State


class SummaryTrigger(Protocol):
    """Decides from the state alone; costs nothing that grows with the history."""

    def find_due_turn(self, state: State, call: int, saves: int = 0) -> int:
        """Cover turns up to this one at call `call`; 0 for not now.

        saves: tokens that the pending masking would save.
        """
        ...

    def count_calls_until(self, state: State, call: int) -> int | None:
        """Calls until a summary is due by turns alone, 0 if it is; None if that cannot be known."""
        ...


class EveryTurnsTrigger:
    """When `every` + `tail` turns stand behind the last summary: all but the newest `tail`."""

    def __init__(self, every: int, tail: int) -> None:
        self.every = every
        self.tail = tail

    def find_due_turn(self, state: State, call: int, saves: int = 0) -> int:
        behind = call - 1 - state.covered_turns
        if behind >= self.every + self.tail:
            return call - 1 - self.tail
        return 0

    def count_calls_until(self, state: State, call: int) -> int | None:
        return max(0, state.covered_turns + self.every + self.tail + 1 - call)


class GrowthTrigger:
    """When `turns` stand behind the summary, or those outside the tail exceed `tokens` in the view."""

    def __init__(self, turns: int, tail: int, tokens: int | None) -> None:
        self.turns = turns
        self.tail = tail
        self.tokens = tokens

    def find_due_turn(self, state: State, call: int, saves: int = 0) -> int:
        covers = call - 1 - self.tail
        if covers <= state.covered_turns:
            return 0
        if call - 1 - state.covered_turns >= self.turns:
            return covers
        if self.tokens is not None and self._count_visible_tokens(state, covers) > self.tokens:
            return covers
        return 0

    def count_calls_until(self, state: State, call: int) -> int | None:
        return max(0, state.covered_turns + self.turns + 1 - call)

    def _count_visible_tokens(self, state: State, covers: int) -> int:
        # What stands in the view, not the raw tokens: those no compaction lowers, and every call would trigger.
        start = state.track.count_tokens_before(state.turn_places[state.covered_turns + 1])
        end = state.turn_places.get(covers + 1)
        return (state.track.tokens if end is None else state.track.count_tokens_before(end)) - start


class ViewSizeTrigger:
    """When the view exceeds `hard` tokens, or `soft` and more than `after` calls were made; see `TwoTier`."""

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
        covers = self._find_boundary(state)
        if covers - state.covered_turns >= self.fewest:
            return covers
        return 0

    def count_calls_until(self, state: State, call: int) -> int | None:
        return None

    def _find_boundary(self, state: State) -> int:
        """The newest turn in front of the turns of the newest `keep` results."""
        left = self.keep
        for turn in reversed(state.turns):
            left -= len(turn.observations)
            if left <= 0:
                return turn.index - 1
        return 0
