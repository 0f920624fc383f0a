"""What a call costs: rates in USD per million tokens, context tiers, and the rules of the provider's prompt cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

from elision.errors import PriceError
from elision.trajectory.tokens import OURS, Tokenizer
from elision.trajectory.usage import Usage

_PRICE_NAMES: Final = ("input", "output", "cache_write", "cache_read", "cache_write_1h")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """USD per million tokens.

    cache_write: None where the provider has no write price: what is not read from cache is plain input.
    cache_write_1h: of entries that live an hour; None where they cost what others do.
    cache_read:  None where there is no cache, or reading it costs as much as sending.
    """

    input: float
    output: float
    cache_write: float | None = None
    cache_read: float | None = None
    cache_write_1h: float | None = None

    def __post_init__(self) -> None:
        for name in _PRICE_NAMES:
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value >= 0):
                raise PriceError(f"{name} price {value!r} is not a price; give USD per million tokens, 0 or more")

    @property
    def read_price(self) -> float:
        if self.cache_read is None:
            return self.input
        return self.cache_read

    @property
    def write_price(self) -> float:
        if self.cache_write is None:
            return self.input
        return self.cache_write

    @property
    def write_price_1h(self) -> float:
        if self.cache_write_1h is None:
            return self.write_price
        return self.cache_write_1h

    def with_hour_writes(self) -> Rates:
        """Return the same where whatever is written to the cache lives an hour."""
        if self.cache_write_1h is None:
            return self
        return replace(self, cache_write=self.cache_write_1h)

    def scale(self, factor: float) -> Rates:
        return self.convert(lambda price: price * factor)

    def convert(self, change: Callable[[float], float]) -> Rates:
        """Return the rates with each price that there is as `change` makes it."""
        prices = {name: getattr(self, name) for name in _PRICE_NAMES}
        return Rates(**{name: change(price) for name, price in prices.items() if price is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """How a provider's prompt cache behaves.

    kind:    prefix - any common prefix with a recent request is read; breakpoints - only up to places that a recent
             request marked (Anthropic); none - no cache.
    ttl:     seconds from the start of the request that last used an entry.
    minimum: tokens; shorter prefixes are not cached.
    step:    cached prefixes are whole multiples of it beyond the minimum, in tokens.
    look_back: of `prefix`: a prefix is cached where a request ended or set a breakpoint, and a request looks for it
             where it does so itself, and at so many message endings before its own; 0: it finds any prefix.
    """

    kind: Literal["prefix", "breakpoints", "none"] = "prefix"
    ttl: float = 300.0
    minimum: int = 1024
    step: int = 1
    look_back: int = 0

    def __post_init__(self) -> None:
        if not (self.ttl >= 0 and self.minimum >= 0 and self.step >= 1 and self.look_back >= 0):
            raise PriceError(
                f"cache rules need ttl >= 0 seconds, minimum >= 0 tokens, step >= 1 token and look_back >= 0 endings, "
                f"not ttl={self.ttl}, minimum={self.minimum}, step={self.step}, look_back={self.look_back}"
            )

    def count_usable(self, prefix: int) -> int:
        """How much of a cached common prefix of `prefix` tokens is read from cache."""
        if self.kind == "none" or prefix < self.minimum:
            return 0
        return self.minimum + (prefix - self.minimum) // self.step * self.step


class Bill(msgspec.Struct, frozen=True, kw_only=True):
    """One call, or many, as billed. Tokens; usd in USD."""

    input: int = 0
    cache_write: int = 0
    cache_read: int = 0
    output: int = 0
    usd: float = 0.0
    #: Of `cache_write`, tokens whose entries live an hour.
    cache_write_1h: int = 0

    def __add__(self, other: Bill) -> Bill:
        return Bill(
            cache_write_1h=self.cache_write_1h + other.cache_write_1h,
            input=self.input + other.input,
            cache_write=self.cache_write + other.cache_write,
            cache_read=self.cache_read + other.cache_read,
            output=self.output + other.output,
            usd=self.usd + other.usd,
        )

    def __sub__(self, other: Bill) -> Bill:
        return Bill(
            cache_write_1h=self.cache_write_1h - other.cache_write_1h,
            input=self.input - other.input,
            cache_write=self.cache_write - other.cache_write,
            cache_read=self.cache_read - other.cache_read,
            output=self.output - other.output,
            usd=self.usd - other.usd,
        )

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens."""
        return self.input + self.cache_write + self.cache_read


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The price list of one model.

    tiers:  (prompt tokens above which it holds, rates), ascending, the first at 0.
    window: the model's context window in tokens, None if unknown.
    source, dated: where the figures are from, and when they were read.
    tokenizer: how the model counts tokens. A set of prices stands for no model, and counts as we do.
    """

    name: str
    tiers: tuple[tuple[int, Rates], ...]
    cache: CacheRules = CacheRules()
    window: int | None = None
    source: str = ""
    dated: str = ""
    tokenizer: Tokenizer = OURS

    def __post_init__(self) -> None:
        starts = [start for start, _ in self.tiers]
        if not starts or starts[0] != 0 or starts != sorted(set(starts)):
            raise PriceError(f"{self.name}: price tiers must ascend and begin at 0, not {starts}")

    def find_rates(self, prompt: int) -> Rates:
        """The rates of a call with `prompt` prompt tokens: the whole call is billed at its tier."""
        found = self.tiers[0][1]
        for start, rates in self.tiers[1:]:
            if prompt <= start:
                break
            found = rates
        return found

    def cost_prompt(self, prompt: int, cached: int, hour: int = 0) -> float:
        """Cost of the prompt side of a call, `cached` of its `prompt` tokens being read from cache; USD.

        hour: leading tokens whose entries live an hour.
        """
        if len(self.tiers) == 1:
            rates = self.tiers[0][1]
        else:
            rates = self.find_rates(prompt)
        if rates.cache_read is None or self.cache.kind == "none":
            return prompt * rates.input / 1e6
        if not self.is_cacheable(prompt):
            return (cached * rates.cache_read + (prompt - cached) * rates.input) / 1e6
        usd = cached * rates.cache_read + (prompt - cached) * rates.write_price
        if hour > cached:
            usd += (min(hour, prompt) - cached) * (rates.write_price_1h - rates.write_price)
        return usd / 1e6

    def is_cacheable(self, prompt: int) -> bool:
        """Whether a prompt of that size is written to the cache (below the minimum it is plain input)."""
        return prompt >= self.cache.minimum

    def bill_call(self, prompt: int, cached: int = 0, output: int = 0, hour: int = 0) -> Bill:
        """The bill of a call with `prompt` prompt tokens, `cached` of them read from cache.

        hour: leading tokens whose entries live an hour.
        """
        rates = self.find_rates(prompt)
        if not 0 <= cached <= prompt:
            raise ValueError(f"{cached} cached tokens of a prompt of {prompt}")
        usd = self.cost_prompt(prompt, cached, hour) + output * rates.output / 1e6
        if rates.cache_read is None or self.cache.kind == "none":
            return Bill(input=prompt, output=output, usd=usd)
        if rates.cache_write is None or not self.is_cacheable(prompt):
            return Bill(input=prompt - cached, cache_read=cached, output=output, usd=usd)
        kept = max(0, min(hour, prompt) - cached)
        return Bill(cache_write=prompt - cached, cache_read=cached, output=output, usd=usd, cache_write_1h=kept)

    def cost_usage(self, usage: Usage) -> float:
        """Return what reported tokens cost at this list, in USD, whichever model they are billed to."""
        rates = self.find_rates(usage.sent_prompt)
        written = usage.cache_write - usage.cache_write_1h
        prompt = usage.input * rates.input + usage.cache_read * rates.read_price
        writes = written * rates.write_price + usage.cache_write_1h * rates.write_price_1h
        return (prompt + writes + usage.output * rates.output) / 1e6

    def bypasses_cache(self, *, marked: bool) -> bool:
        """Whether a prompt is no matter of the cache, which wants breakpoints. marked: whether it has any."""
        return self.cache.kind == "breakpoints" and not marked

    def bill_uncached(self, prompt: int) -> Bill:
        """The bill of a prompt that passes the cache by: all of it is input."""
        return Bill(input=prompt, usd=prompt * self.find_rates(prompt).input / 1e6)

    @property
    def has_cache(self) -> bool:
        """Whether a cache read is cheaper than sending at all."""
        return self.cache.kind != "none" and any(rates.read_price < rates.input for _, rates in self.tiers)

    def find_cliff(self, factor: float = 1.99) -> int | None:
        """Prompt tokens above which the input price jumps by `factor` or more; None if it never does."""
        for (_, below), (start, above) in zip(self.tiers, self.tiers[1:], strict=False):
            if above.input >= factor * below.input:
                return start
        return None

    def with_hour_writes(self) -> Prices:
        """Return the same where whatever is written to the cache lives an hour."""
        tiers = tuple((start, rates.with_hour_writes()) for start, rates in self.tiers)
        return replace(self, tiers=tiers)

    def scale(self, factor: float) -> Prices:
        return replace(self, tiers=tuple((start, rates.scale(factor)) for start, rates in self.tiers))


def parse_prices(text: str) -> Prices:
    """`input=3,cache_write=3.75,cache_read=0.3,output=15` as a price list; USD per million tokens. Raises PriceError.

    Cache rules are those of a plain prefix cache: 5 minutes, 1,024 tokens.
    """
    given: dict[str, float] = {}
    for piece in text.split(","):
        key, _, value = (part.strip() for part in piece.partition("="))
        if key not in ("input", "output", "cache_write", "cache_read"):
            raise PriceError(f"--price: no price {key!r}; there are: input, cache_write, cache_read, output")
        if key in given:
            raise PriceError(f"--price: {key} is given twice")
        try:
            given[key] = float(value)
        except ValueError:
            raise PriceError(f"--price: {key}={value!r} is not a number; give USD per million tokens") from None
    if "input" not in given or "output" not in given:
        raise PriceError("--price: input and output are needed: input=3,cache_write=3.75,cache_read=0.3,output=15")
    if "cache_write" in given and "cache_read" not in given:
        raise PriceError("--price: cache_write has no effect without cache_read; give both or neither")
    rates = Rates(
        input=given["input"],
        output=given["output"],
        cache_write=given.get("cache_write"),
        cache_read=given.get("cache_read"),
    )
    cache = CacheRules(kind="prefix" if "cache_read" in given else "none")
    return Prices(name="custom", tiers=((0, rates),), cache=cache, source="given on the command line")
