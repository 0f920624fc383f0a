"""What a session's prompts cost, and what they would have cost without us, on the provider's scale of tokens.

`SessionBill` counts by our tokens, which is all that decisions need. People read these figures beside what the provider
reported, so here each call is as long as it was billed, or would have been (`TokenScale`).

Ours is billed as it was reported, and until then as the cache is foreseen to serve it. The raw prompt grows from call
to call by what the provider counted for ours, wherever that adds to the one before it: a result is as long in the one
bill as in the other. Calls that are made only with us are in our bill alone: those that return what was recalled. An
attempt that is made again before anybody reported it was not billed, and is in neither.

What everything would have cost is billed as the client would have sent it. Where the client sets no cache breakpoints
and we do, part of the difference is caching and not hiding: `caching_usd` is that part.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from msgspec.structs import replace as replace_usage

from elision.trajectory.prices import Bill, Prices
from elision.trajectory.token_scale import TokenScale
from elision.trajectory.usage import Usage


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

    def with_cached_at_most(self, tokens: int) -> CountedPrompt:
        """Return the same with at most `tokens` read from the cache."""
        return replace(self, cached_tokens=min(self.cached_tokens, tokens))

    def bill_at(self, prices: Prices, tokens: int | None = None, cached: int | None = None) -> Bill:
        """Return its bill; tokens: of the prompt by another count, of which the same shares are cached and kept.

        cached: tokens of it that are read from the cache, where that is known by the other count.
        """
        if tokens is None:
            tokens = self.tokens
        if prices.bypasses_cache(marked=self.has_breakpoints):
            return prices.bill_uncached(tokens)
        share = tokens / self.tokens if self.tokens else 1.0
        if cached is None:
            cached = round(self.cached_tokens * share)
        return prices.bill_call(tokens, min(cached, tokens), hour=round(self.hour_tokens * share))


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
class BookedCall:
    """A call.

    number:    of the call; one that is made again has the same.
    ours, raw: our prompt, and the raw one with breakpoints where ours has them.
    has_client_marks: whether the client sets any.
    is_shadow: whether the raw prompt is sent. is_extra: whether the call is made only with us.
    extends:   whether our prompt adds to the one before it.
    """

    number: int
    ours: CountedPrompt
    raw: CountedPrompt
    has_client_marks: bool
    is_shadow: bool
    is_extra: bool
    extends: bool

    def follow_attempt(self, attempt: BookedCall) -> BookedCall:
        """Return this call where `attempt`, the same one, failed: it left nothing in the cache to be relied on."""
        return replace(
            self,
            ours=self.ours.with_cached_at_most(attempt.ours.cached_tokens),
            raw=self.raw.with_cached_at_most(attempt.raw.cached_tokens),
            extends=self.extends and attempt.extends,
        )


class SessionCosts:
    """A fold over calls. The newest is billed when that is asked for, on the scale as it is then.

    scale: changes when the usage of the newest call is reported; `rebill_newest` has to be called then.
    previous: the call before the newest, as it was settled; nothing if the newest is made in its place.
    """

    def __init__(self, prices: Prices, scale: TokenScale) -> None:
        self._prices = prices
        self._scale = scale
        self._earlier = CallBills()
        self._call: BookedCall | None = None
        #: The call before it, and the tokens of both its prompts as the provider counts them.
        self._before: tuple[BookedCall, int, int] | None = None
        self._is_confirmed = False
        #: What was reported of the newest call, where that is of our prompt.
        self._usage: Usage | None = None
        self._newest: CallBills | None = None
        self.previous = CallBills()
        #: USD of the answers that there would be without us.
        self.plain_answers_usd = 0.0

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

    def record_call(self, call: BookedCall) -> None:
        """Book a call. One that is made again takes the place of an attempt that nobody reported: it was not billed."""
        attempt = self._call
        if attempt is not None and attempt.number == call.number and not self._is_confirmed:
            self.previous = CallBills()
            call = call.follow_attempt(attempt)
        else:
            self.previous = self.newest
            self._earlier += self.previous
            if attempt is not None:
                self._before = (attempt, *self.count_newest())
        self._call = call
        self._is_confirmed = False
        self._usage = None
        self._newest = None

    def lengthen_lifetime(self) -> None:
        """Have the newest call billed again: the provider reported that what it wrote lives an hour."""
        if self._call is not None:
            ours, raw = self._call.ours.with_hour_writes(), self._call.raw.with_hour_writes()
            self._call = replace(self._call, ours=ours, raw=raw)
            self._newest = None

    def rebill_newest(self) -> None:
        """Have the newest call billed again: more is known of how the provider counts it."""
        self._newest = None

    def confirm_newest(self, usage: Usage | None = None) -> None:
        """Take note that the newest call was answered, and billed. usage: of our prompt; None where it is not known."""
        self._is_confirmed = True
        if self._call is not None and not self._call.is_shadow:
            self._usage = usage
        self._newest = None

    def record_plain_answer(self, tokens: int, prompt: int) -> None:
        """Book what of an answer there would be without us, to a prompt of `prompt` tokens."""
        self.plain_answers_usd += tokens * self._prices.find_rates(prompt).output / 1e6

    def count_newest(self) -> tuple[int, int]:
        """Return the tokens of our newest prompt and of the raw one, as the provider counts them."""
        call = self._call
        if call is None:
            return 0, 0
        our_tokens = self._scale.convert_to_billed(call.ours.tokens)
        if self._before is None or call.is_shadow:
            return our_tokens, self._scale.convert_to_billed(call.raw.tokens)
        before, our_before, raw_before = self._before
        grown = call.raw.tokens - before.raw.tokens
        our_growth = call.ours.tokens - before.ours.tokens
        if not call.extends:
            billed = self._scale.convert_part(grown)
        elif 0 <= grown < our_growth:
            # Of what is new, a part is a recall's.
            billed = round((our_tokens - our_before) * grown / our_growth)
        else:
            # What is new and folded at once is longer in the raw prompt.
            billed = our_tokens - our_before + self._scale.convert_part(grown - our_growth)
        return our_tokens, max(0, raw_before + billed)

    def _bill_newest(self) -> CallBills:
        call = self._call
        if call is None:
            return CallBills()
        our_tokens, raw_tokens = self.count_newest()
        our_cached = raw_cached = None
        if self._before is not None:
            before, our_before, raw_before = self._before
            our_cached = self._find_cached(call.ours, before.ours, our_before)
            raw_cached = self._find_cached(call.raw, before.raw, raw_before)
        ours = foreseen = call.ours.bill_at(self._prices, our_tokens, our_cached)
        if self._usage is not None:
            ours = self._bill_report(self._usage)
        if call.is_extra:
            return CallBills(ours=ours)
        if call.raw == call.ours and raw_tokens == our_tokens:
            same = ours
        else:
            same = call.raw.bill_at(self._prices, raw_tokens, raw_cached)
            if call.extends and ours.cache_read < foreseen.cache_read:
                # Entries were gone before their time. Those of the raw prompt would have been, too.
                found = round(same.cache_read * ours.cache_read / foreseen.cache_read)
                same = call.raw.bill_at(self._prices, raw_tokens, found)
        plain = same
        if self._prices.bypasses_cache(marked=call.has_client_marks):
            plain = self._prices.bill_uncached(raw_tokens)
        return CallBills(ours=ours, raw=plain, caching_usd=plain.usd - same.usd)

    def _find_cached(self, prompt: CountedPrompt, before: CountedPrompt, tokens: int) -> int | None:
        """Return how many tokens of a prompt are read from the cache, as the provider counts them; None if unknown.

        It is known where all of the prompt before it was found, of which the provider counted `tokens`.
        """
        cache = self._prices.cache
        if prompt.cached_tokens != cache.count_usable(before.tokens):
            return None
        return cache.count_usable(tokens)

    def _bill_report(self, usage: Usage) -> Bill:
        """Return the prompt of a reported call at the prices at which the raw one is billed too."""
        return Bill(
            input=usage.input,
            cache_write=usage.cache_write,
            cache_read=usage.cache_read,
            cache_write_1h=usage.cache_write_1h,
            usd=self._prices.cost_usage(replace_usage(usage, output=0)),
        )
