"""What a session's prompts cost, and what they would have cost without us, on the provider's scale of tokens.

`SessionBill` counts by our tokens, which is all that decisions need. People read these figures beside what the provider
reported, so here each call is as long as it was billed, or would have been (`TokenScale`).

What everything would have cost is billed as the client would have sent it. Where the client sets no cache breakpoints
and we do, part of the difference is caching and not hiding: `caching_usd` is that part.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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

    def with_hour_writes(self) -> CountedPrompt:
        """Return the same where all that is written to the cache lives an hour."""
        return replace(self, hour_tokens=self.tokens)

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


class SessionCosts:
    """A fold over calls. The newest is billed when that is asked for, on the scale as it is then.

    scale: changes when the usage of the newest call is reported; `rebill_newest` has to be called then.
    previous: the call before the newest, as it was settled.
    """

    def __init__(self, prices: Prices, scale: TokenScale) -> None:
        self._prices = prices
        self._scale = scale
        self._earlier = CallBills()
        #: The newest call: our prompt, the raw one with breakpoints where ours has them, and whether the client sets
        #: any.
        self._call: tuple[CountedPrompt, CountedPrompt, bool] | None = None
        self._newest: CallBills | None = None
        self.previous = CallBills()

    @property
    def newest(self) -> CallBills:
        """The newest call."""
        if self._newest is None:
            self._newest = self._bill_newest()
        return self._newest

    @property
    def total(self) -> CallBills:
        """All calls so far."""
        return self._earlier + self.newest

    def record_call(self, ours: CountedPrompt, raw: CountedPrompt, *, client_marks: bool) -> None:
        """Book a call. raw: with breakpoints where `ours` has them. client_marks: whether the client sets any."""
        self.previous = self.newest
        self._earlier += self.previous
        self._call = (ours, raw, client_marks)
        self._newest = None

    def lengthen_lifetime(self) -> None:
        """Have the newest call billed again: the provider reported that what it wrote lives an hour."""
        if self._call is not None:
            ours, raw, client_marks = self._call
            self._call = (ours.with_hour_writes(), raw.with_hour_writes(), client_marks)
            self._newest = None

    def rebill_newest(self) -> None:
        """Have the newest call billed again: more is known of how the provider counts it."""
        self._newest = None

    def count_newest(self) -> tuple[int, int]:
        """Return the tokens of our newest prompt and of the raw one, as the provider counts them."""
        if self._call is None:
            return 0, 0
        ours, raw, _ = self._call
        return self._scale.convert_to_billed(ours.tokens), self._scale.convert_to_billed(raw.tokens)

    def _bill_newest(self) -> CallBills:
        if self._call is None:
            return CallBills()
        ours, raw, client_marks = self._call
        our_tokens, raw_tokens = self.count_newest()
        same = raw.bill_at(self._prices, raw_tokens)
        plain = same
        if self._prices.bypasses_cache(marked=client_marks):
            plain = self._prices.bill_uncached(raw_tokens)
        return CallBills(ours=ours.bill_at(self._prices, our_tokens), raw=plain, caching_usd=plain.usd - same.usd)
