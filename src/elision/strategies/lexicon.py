"""Which code-like items the log knows: written by the agent or its user, or seen in observations, and how often."""

from __future__ import annotations

from collections import Counter

from elision.trajectory.items import items
from elision.trajectory.spoken import spoken
from elision.trajectory.turn import Head, Turn


class Lexicon:
    """A fold over head and turns; costs what a turn brings."""

    def __init__(self) -> None:
        self.written: set[str] = set()
        self.seen: Counter[str] = Counter()

    def head(self, head: Head) -> None:
        for message in head.messages:
            self.written.update(items(message.text))

    def turn(self, turn: Turn) -> None:
        self.written.update(items(spoken(turn)))
        for observation in turn.observations:
            self.seen.update(items(observation.text))
        for message in turn.interjections:
            self.written.update(items(message.text))
