"""`summarization`: the oldest turns become one summary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elision.strategies.strategy import Strategy, check_whole_numbers
from elision.strategies.triggers import GrowthTrigger, SummaryTrigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Summarization(Strategy):
    """Once `every` + `tail` turns follow the last summary, or those outside the tail exceed `summarize_tokens`, all but
    the newest `tail` join it."""

    name: ClassVar[str] = "summarization"
    fold: bool = True
    every: int = 21
    tail: int = 10
    summarize_tokens: int | None = None

    def check_options(self) -> None:
        Strategy.check_options(self)
        check_whole_numbers(self.name, 1, every=self.every, tail=self.tail, summarize_tokens=self.summarize_tokens)

    def make_trigger(self) -> SummaryTrigger:
        return GrowthTrigger(self.every + self.tail, self.tail, self.summarize_tokens)
