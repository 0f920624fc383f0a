"""How large a view may be (design 3, Budget)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

from elision.errors import SpecError
from elision.trajectory.prices import Prices

#: Tokens that no view has: a larger budget is none, and may not fit a float.
_LARGEST: Final = 10**15


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
