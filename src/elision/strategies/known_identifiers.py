"""Which code-like items the log knows: written by the agent or its user, or seen in observations, and how often."""

from __future__ import annotations

from collections import Counter

from elision.trajectory.assistant_text import join_assistant_text
from elision.trajectory.items import find_items
from elision.trajectory.turn import Head, Turn


class KnownIdentifiers:
    """A fold over head and turns; costs what a turn brings."""

    def __init__(self) -> None:
        self.written_by_agent: set[str] = set()
        self.seen_counts: Counter[str] = Counter()
        #: What is known from the user's words after the newest turn alone.
        self._newest_words: set[str] = set()

    def add_head(self, head: Head) -> None:
        for message in head.messages:
            items = find_items(message.text)
            self.written_by_agent.update(items)
            self._newest_words.difference_update(items)

    def add_turn(self, turn: Turn) -> None:
        self.written_by_agent.update(find_items(join_assistant_text(turn)))
        for observation in turn.observations:
            self.seen_counts.update(find_items(observation.text))
        self._newest_words.clear()
        if turn.interjections:
            self._add_words(turn)

    def replace_newest_words(self, turn: Turn) -> None:
        """Know the user's words of `turn`, the newest one added, in place of those that it had."""
        self.written_by_agent -= self._newest_words
        self._newest_words.clear()
        self._add_words(turn)

    def _add_words(self, turn: Turn) -> None:
        for message in turn.interjections:
            new = set(find_items(message.text)) - self.written_by_agent
            self.written_by_agent |= new
            self._newest_words |= new
