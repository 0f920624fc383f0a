"""What a session's prompts cost, and what they would have cost without us, on the provider's scale of tokens.

`SessionBill` counts by our tokens, which is all that decisions need. People read these figures beside what the provider
reported, so here each call is as long as it was billed, or would have been (`TokenScale`).

What everything would have cost is billed as the client would have sent it. Where the client sets no cache breakpoints
and we do, part of the difference is caching and not hiding: `caching_usd` is that part.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from elision.trajectory.prices import Bill, Prices
from elision.trajectory.token_scale import TokenScale


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedPrompt:
    """A prompt by our count, in tokens.

    cached_tokens: read from the cache. has_breakpoints: whether the prompt has cache breakpoints.
    hour_tokens: leading tokens whose cache entries live an hour.
    """

    tokens: int
    cached_tokens: int
    has_breakpoints: bool = True
    hour_tokens: int = 0

    def bill_at(self, prices: Prices, tokens: int | None = None) -> Bill:
        """Return its bill; tokens: of the prompt by another count, of which the same shares are cached and kept."""
        if tokens is None:
            tokens = self.tokens
        if prices.bypasses_cache(marked=self.has_breakpoints):
            return prices.bill_uncached(tokens)
        share = tokens / self.tokens if self.tokens else 1.0
        return prices.bill_call(
            tokens, min(round(self.cached_tokens * share), tokens), hour=round(self.hour_tokens * share)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallBills:
    """The prompt side of one call.

    ours: as it was sent. raw: had nothing ever been hidden, as the client would have sent it.
    caching_usd: USD by which `raw` would cost less with the cache breakpoints of ours.
    """

    ours: Bill = field(default_factory=Bill)
    raw: Bill = field(default_factory=Bill)
    caching_usd: float = 0.0

    def __add__(self, other: CallBills) -> CallBills:
        return CallBills(
            ours=self.ours + other.ours, raw=self.raw + other.raw, caching_usd=self.caching_usd + other.caching_usd
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedCall:
    """The newest call. raw: with breakpoints where ours has them. client_marks: whether the client sets any."""

    ours: CountedPrompt
    raw: CountedPrompt
    client_marks: bool


class SessionCosts:
    """A fold over calls; the newest one is billed again when its usage is reported."""

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._earlier = CallBills()
        self._call: _CountedCall | None = None
        #: The newest call, and the one before it as it was settled.
        self.newest = self.previous = CallBills()

    @property
    def total(self) -> CallBills:
        """All calls so far."""
        return self._earlier + self.newest

    def record_call(self, ours: CountedPrompt, raw: CountedPrompt, scale: TokenScale, *, client_marks: bool) -> None:
        """Book a call. raw: with breakpoints where `ours` has them."""
        self._earlier = self.total
        self.previous = self.newest
        self._call = _CountedCall(ours=ours, raw=raw, client_marks=client_marks)
        self.apply_scale(scale)

    def apply_scale(self, scale: TokenScale) -> None:
        """Bill the newest call again: more is known of how the provider counts it."""
        call = self._call
        if call is None:
            return
        tokens = scale.convert_to_billed(call.raw.tokens)
        same = call.raw.bill_at(self._prices, tokens)
        plain = self._prices.bypasses_cache(marked=call.client_marks)
        raw = self._prices.bill_uncached(tokens) if plain else same
        self.newest = CallBills(
            ours=call.ours.bill_at(self._prices, scale.convert_to_billed(call.ours.tokens)),
            raw=raw,
            caching_usd=raw.usd - same.usd,
        )
