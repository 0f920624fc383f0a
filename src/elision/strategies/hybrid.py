"""`hybrid`: masking from the first call, a summary from time to time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from elision.errors import SpecError
from elision.strategies.selectors import OlderThan, Selector
from elision.strategies.strategy import Strategy, check_whole_numbers
from elision.strategies.triggers import GrowthTrigger, SummaryTrigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid(Strategy):
    """Masks as `masking` does; when `summarize_at` turns follow the summary, or those outside the tail exceed
    `summarize_tokens`, all but the newest `tail` become one summary, written from the unmasked turns."""

    name: ClassVar[str] = "hybrid"
    fold: bool = True
    window: int = 10
    summarize_at: int = 43
    tail: int = 10
    summarize_tokens: int | None = None

    def check_options(self) -> None:
        Strategy.check_options(self)
        check_whole_numbers(self.name, 1, window=self.window, summarize_at=self.summarize_at, tail=self.tail)
        check_whole_numbers(self.name, 1, summarize_tokens=self.summarize_tokens)
        if self.summarize_at == 1:
            raise SpecError("hybrid(summarize_at=1): the newest turn stays out of a summary; give 2 turns or more")
        if self.summarize_at <= self.tail:
            raise SpecError(
                f"hybrid(summarize_at={self.summarize_at}, tail={self.tail}): summarize_at must exceed tail, "
                "or nothing would be covered"
            )

    def make_selector(self) -> Selector:
        return OlderThan(self.window)

    def make_trigger(self) -> SummaryTrigger:
        return GrowthTrigger(self.summarize_at, self.tail, self.summarize_tokens)


def limit_tail(summarize_at: int, tail: int) -> int:
    """Return `tail`; half of `summarize_at`, at least 1, where a summary due at that many turns would cover nothing."""
    if tail < summarize_at:
        return tail
    return max(1, summarize_at // 2)
