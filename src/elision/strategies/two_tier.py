"""`two-tier`: mask by count of results, summarize by size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elision.errors import SpecError
from elision.strategies.selectors import AllButNewestResults, Selector
from elision.strategies.strategy import Strategy, check_whole_numbers
from elision.strategies.triggers import SummaryTrigger, ViewSizeTrigger


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoTier(Strategy):
    """Masks all but the newest `keep_recent` tool results; summarizes when the view exceeds `hard` tokens, or exceeds
    `soft` and more than `after_steps` calls were made; not again before `summarize_min_turns` new turns."""

    name: ClassVar[str] = "two-tier"
    fold: bool = True
    keep_recent: int = 10
    soft: int = 32_000
    hard: int = 64_000
    after_steps: int = 50
    summarize_min_turns: int = 10

    def check_options(self) -> None:
        Strategy.check_options(self)
        check_whole_numbers(self.name, 1, keep_recent=self.keep_recent, soft=self.soft, hard=self.hard)
        check_whole_numbers(self.name, 1, summarize_min_turns=self.summarize_min_turns)
        check_whole_numbers(self.name, 0, after_steps=self.after_steps)
        if self.soft > self.hard:
            raise SpecError(f"two-tier(soft={self.soft}, hard={self.hard}): soft must not exceed hard")

    def make_selector(self) -> Selector:
        return AllButNewestResults(self.keep_recent)

    def make_trigger(self) -> SummaryTrigger:
        return ViewSizeTrigger(self.keep_recent, self.soft, self.hard, self.after_steps, self.summarize_min_turns)
