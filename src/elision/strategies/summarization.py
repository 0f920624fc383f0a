"""`summarization`: the oldest turns become one summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elision.strategies.strategy import Strategy, check_whole_numbers
from elision.strategies.triggers import EveryTurnsTrigger, SummaryTrigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarization(Strategy):
    """Once `every` + `tail` turns follow the last summary, all but the newest `tail` join it."""

    name: ClassVar[str] = "summarization"
    every: int = 21
    tail: int = 10

    def check_options(self) -> None:
        Strategy.check_options(self)
        check_whole_numbers(self.name, 1, every=self.every, tail=self.tail)

    def make_trigger(self) -> SummaryTrigger:
        return EveryTurnsTrigger(self.every, self.tail)
