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

    def add_head(self, head: Head) -> None:
        for message in head.messages:
            self.written_by_agent.update(find_items(message.text))

    def add_turn(self, turn: Turn) -> None:
        self.written_by_agent.update(find_items(join_assistant_text(turn)))
        for observation in turn.observations:
            self.seen_counts.update(find_items(observation.text))
        for message in turn.interjections:
            self.written_by_agent.update(find_items(message.text))
