"""`summarization`: the oldest turns become one summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elision.strategies.strategy import Strategy, whole
from elision.strategies.triggers import EveryTurns, Trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarization(Strategy):
    """When `every` + `tail` turns stand behind the last summary, all but the newest `tail` join it."""

    name: ClassVar[str] = "summarization"
    every: int = 21
    tail: int = 10

    def check(self) -> None:
        Strategy.check(self)
        whole(self.name, 1, every=self.every, tail=self.tail)

    def trigger(self) -> Trigger:
        return EveryTurns(self.every, self.tail)
