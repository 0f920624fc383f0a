"""Which observations may be hidden, and from which call on. Each is a fold: it is shown every turn once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Protocol

from elision.trajectory.plan import Key
from elision.trajectory.turn import Turn


class Selector(Protocol):
    """One session's memory of what a strategy may hide."""

    def find_due_keys(self, turn: Turn) -> Iterator[tuple[int, Key]]:
        """(first call at which it may be hidden, observation), for whatever this turn settles."""
        ...


def list_keys(turn: Turn) -> Iterator[Key]:
    for position in range(1, len(turn.observations) + 1):
        yield turn.index, position


class OlderThan:
    """At call t the observations of turns i < t - window."""

    def __init__(self, window: int) -> None:
        self.window = window

    def find_due_keys(self, turn: Turn) -> Iterator[tuple[int, Key]]:
        for key in list_keys(turn):
            yield turn.index + self.window + 1, key


class AllButNewestResults:
    """All but the newest `keep` tool results, and never those of the newest turn."""

    def __init__(self, keep: int) -> None:
        self.keep_results = keep
        self.recent_keys: deque[Key] = deque()

    def find_due_keys(self, turn: Turn) -> Iterator[tuple[int, Key]]:
        self.recent_keys.extend(list_keys(turn))
        while len(self.recent_keys) > self.keep_results:
            key = self.recent_keys.popleft()
            # A result of this very turn waits until the turn is no longer the newest.
            yield turn.index + 1 + (key[0] == turn.index), key
