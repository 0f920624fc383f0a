"""What a strategy may know when it decides: now, prices, what is cached, what was paid, how large a view may be.

Never what comes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from elision.errors import SpecError
from elision.trajectory.cache import PromptCache
from elision.trajectory.prices import Prices
from elision.trajectory.state import State
from elision.trajectory.tokens import TokenScale
from elision.trajectory.view import View

#: Tokens that no view has: a larger budget is none, and may not fit a float.
_LARGEST: Final = 10**15


class DecisionContext(msgspec.Struct, frozen=True, kw_only=True):
    """One call to come.

    call:   its number. now: seconds since the epoch, None if unknown. model: "" if unknown.
    cache:  what the provider's cache holds of this conversation. It is read here and changed elsewhere.
    spent_usd: our bill before this call, answers and summarizer included.
    raw_usd: the bill of sending everything, answers before this call and its prompt included.
    view_limit: tokens that the view may have; None for no limit.
    recall_tokens: tokens of the recall tools, which enter with the first thing that can be recalled; 0 after that.
    offers_recall_at_once: whether they enter at this call, whatever is hidden.
    writes_for_an_hour: whether what is written to the cache lives an hour, and costs as much.
    scale: how many tokens the provider counts for ours; None for as many. It is read here and changed elsewhere.
    has_breakpoints: whether the request has cache breakpoints of the client's or ours.
    may_ask_for_summary: whether the strategy makes summaries, one could be sent, and no failed one delays it.
    editable_from: the first turn that may be masked or clipped, since thinking in it is bound to what precedes it. A
    summary has to cover it, so that the thinking goes with its turn.
    """

    call: int
    now: float | None
    model: str
    prices: Prices
    cache: PromptCache
    spent_usd: float
    raw_usd: float
    view_limit: int | None = None
    recall_tokens: int = 0
    offers_recall_at_once: bool = False
    writes_for_an_hour: bool = False
    scale: TokenScale | None = None
    editable_from: int = 1
    has_breakpoints: bool = True
    may_ask_for_summary: bool = True

    def is_cache_cold(self) -> bool:
        return self.cache.is_cold(self.now, self.model)

    def is_warm_elsewhere(self) -> bool:
        """Whether another model's cache holds this conversation: a rewrite for this one throws that away too."""
        return self.cache.is_warm_for_others(self.now, self.model)

    def count_entering_tokens(self, *, hides: bool) -> int:
        """Tokens of the recall tools that enter with this call; hides: if something is hidden that can be recalled."""
        if hides or self.offers_recall_at_once:
            return self.recall_tokens
        return 0

    def count_cached_tokens(self, state: State, common: int, entering: int = 0) -> int:
        """Tokens read from cache by a request whose first `common` segments are those of the last view.

        entering: tokens of tools that are new, before all of them.
        """
        if entering and not self.offers_recall_at_once:
            return 0
        common = 0 if entering else common
        length = len(state.track.segments)
        # Every request that has breakpoints marks the end of the head, whatever else it marks.
        marks = (state.head_length,) if self.has_breakpoints else ()
        view = View(call=self.call, epoch=state.epoch, track=state.track, length=length, marks=marks)
        return self.cache.count_readable(common, view, self.now, self.model)

    def cost_prompt(self, tokens: int, cached: int) -> float:
        return self.prices.cost_prompt(tokens, min(cached, tokens), tokens if self.writes_for_an_hour else 0)

    def scale_view(self, tokens: int) -> int:
        """Return the largest view, by our count, for which the provider counts at most about `tokens`.

        Never below a quarter of `tokens`: an odd report must not make every view too large.
        """
        if self.scale is None:
            return tokens
        return max(self.scale.convert_to_counted(tokens), tokens // 4)

    def scale_part(self, tokens: int) -> int:
        """Return how many tokens of ours a part of a view has for which the provider counts `tokens`."""
        if self.scale is None:
            return tokens
        return round(tokens / self.scale.rate)


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A property of the view, checked after every strategy.

    tokens:          the budget in tokens; None for the model's window or, if lower, just under its next price cliff.
    max_context_pct: share of it that may be used, above 0 up to 1.
    reserved:        tokens kept for the response.
    min_window:      turns that pressure leaves unmasked, 1 or more.
    low:             the watermark that pressure goes down to, as a share of what is usable, so that the next call does
                     not trigger again.
    soft:            share of what is usable from which on everything that may be masked is, whatever the schedule
                     says, as soon as that frees (1 - low) of it; None for no such threshold.
    """

    tokens: int | None = None
    max_context_pct: float = 0.85
    reserved: int = 1_000
    min_window: int = 1
    low: float = 0.8
    soft: float | None = None

    def __post_init__(self) -> None:
        if self.tokens is not None and self.tokens < 1:
            raise SpecError(f"budget(tokens={self.tokens}): give tokens, 1 or more")
        if not 0 < self.max_context_pct <= 1:
            raise SpecError(f"budget(max_context_pct={self.max_context_pct}): give a share above 0, up to 1")
        if self.reserved < 0:
            raise SpecError(f"budget(reserved={self.reserved}): give tokens, 0 or more")
        if self.min_window < 1:
            raise SpecError(f"budget(min_window={self.min_window}): the newest turn is never masked; give 1 or more")
        if not 0 < self.low <= 1:
            raise SpecError(f"budget(low={self.low}): give a share above 0, up to 1")
        if self.soft is not None and not 0 < self.soft <= 1:
            raise SpecError(f"budget(soft={self.soft}): give a share above 0, up to 1")

    def limit_view(self, prices: Prices) -> int | None:
        """Tokens a view may have: floor(budget x max_context_pct) - reserved; None if nothing limits it."""
        limits = [limit for limit in (prices.window, prices.find_cliff()) if limit is not None]
        if self.tokens is not None:
            # A budget may pass a price cliff, if the user says so; never the model's window.
            limits = [limit for limit in (self.tokens, prices.window) if limit is not None]
        if not limits:
            return None
        whole = min(*limits, _LARGEST)
        usable = math.floor(whole * self.max_context_pct) - self.reserved
        if usable < 1:
            raise SpecError(f"a budget of {whole} tokens leaves nothing behind {self.reserved} reserved tokens")
        return usable


def apply_learned_window(prices: Prices, window: int) -> Prices:
    """`prices` with the window, in tokens, that the provider stated itself: in "prompt is too long" errors, for one.

    It replaces a known one, larger or smaller: providers differ by account, region and beta header.
    Raises SpecError for a window that is none.
    """
    if window < 1:
        raise SpecError(f"a window of {window} tokens is none")
    source = f"{prices.source}; window as the provider stated it".removeprefix("; ")
    if prices.window == window:
        return prices
    return replace(prices, window=window, source=source)
