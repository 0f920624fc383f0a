"""What a strategy may know when it decides: now, prices, what is cached, what was paid. Never what comes."""

from __future__ import annotations

from dataclasses import dataclass

from elision.trajectory.cache import PromptCache
from elision.trajectory.prices import Prices
from elision.trajectory.state import State
from elision.trajectory.view import View


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """One call to come.

    call:   its number. now: seconds since the epoch, None if unknown. model: "" if unknown.
    cache:  what the provider's cache holds of this conversation; read, never sent to.
    spent:  our bill before this call, answers and summarizer included; USD.
    raw:    the bill of sending everything, answers before this call and its prompt included; USD.
    usable: tokens the view may have; None for no limit.
    recall: tokens of the recall tools that enter with the first thing that can be recalled; 0 once they stand there.
    at_once: whether they enter at this call, whatever is hidden.
    hour:   whether what is written to the cache lives an hour, and costs as much.
    """

    call: int
    now: float | None
    model: str
    prices: Prices
    cache: PromptCache
    spent: float
    raw: float
    usable: int | None = None
    recall: int = 0
    at_once: bool = False
    hour: bool = False

    def cold(self) -> bool:
        return self.cache.is_cold(self.now, self.model)

    def warm_elsewhere(self) -> bool:
        """Whether another model's cache holds this conversation: a rewrite for this one throws that away too."""
        return self.cache.is_warm_for_others(self.now, self.model)

    def entering(self, *, hides: bool) -> int:
        """Tokens of the recall tools that enter with this call; hides: if something is hidden that can be recalled."""
        if hides or self.at_once:
            return self.recall
        return 0

    def cached(self, state: State, common: int, entering: int = 0) -> int:
        """Tokens read from cache by a request whose first `common` segments are those of the last view.

        entering: tokens of tools that are new in front of them all.
        """
        if entering and not self.at_once:
            return 0
        common = 0 if entering else common
        length = len(state.track.segments)
        # Every request marks the end of the head, whatever else it marks.
        view = View(call=self.call, epoch=state.epoch, track=state.track, length=length, marks=(state.head_length,))
        return self.cache.readable(common, view, self.now, self.model)

    def usd(self, tokens: int, cached: int) -> float:
        return self.prices.prompt_usd(tokens, min(cached, tokens), tokens if self.hour else 0)
