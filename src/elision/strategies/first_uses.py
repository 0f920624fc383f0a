"""Which code-like items the agent wrote for the first time, turn by turn, over the newest turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from elision.trajectory.assistant_text import join_assistant_text
from elision.trajectory.items import find_items
from elision.trajectory.turn import Head, Message, Turn


class FirstUses:
    """A fold over head and turns; costs what a turn brings. turns: the newest turns that are remembered."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._written: set[str] = set()
        self._by_turn: dict[int, tuple[str, ...]] = {}

    def add_head(self, head: Head) -> None:
        self.add_words(head.messages)

    def add_words(self, messages: Iterable[Message]) -> None:
        """Take note of what somebody else wrote: the agent need not have seen it in a result."""
        for message in messages:
            self._written.update(find_items(message.text))

    def add_turn(self, turn: Turn) -> None:
        found = find_items(join_assistant_text(turn))
        self._by_turn[turn.index] = tuple(item for item in found if item not in self._written)
        self._by_turn.pop(turn.index - self._turns, None)
        self._written.update(found)
        self.add_words(turn.interjections)

    def list_items(self, first: int) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Yield each remembered turn from `first` on, with the items that the agent wrote first in it."""
        yield from ((turn, items) for turn, items in self._by_turn.items() if turn >= first)
