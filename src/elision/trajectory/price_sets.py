"""Named price sets: one typical price list per way of billing, for when the model does not matter or is not known."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from elision.errors import PriceError
from elision.trajectory.prices import CacheRules, Prices, Rates, multiples

_DATED: Final = "2026-11-20"

_ANTHROPIC = multiples(
    "anthropic",
    input=3.0,
    write=1.25,
    read=0.1,
    cache=CacheRules(kind="breakpoints", ttl=300, minimum=1024),
    source="multiples of most Claude models: platform.claude.com/docs/en/about-claude/pricing",
    dated=_DATED,
)

_FABLE = multiples(
    "fable",
    input=10.0,
    write=1.25,
    read=0.025,
    cache=CacheRules(kind="breakpoints", ttl=300, minimum=512),
    source="Claude Fable 5.1, the cheapest cache reads: platform.claude.com/docs/en/about-claude/pricing",
    dated=_DATED,
)

# Before the 5.6 family OpenAI had no write price. Output is 5 x input as in the other sets (gpt-5 itself: 8 x).
_OPENAI = multiples(
    "openai",
    input=1.25,
    write=None,
    read=0.1,
    cache=CacheRules(kind="prefix", ttl=1800, minimum=1024, step=128),
    source="OpenAI before the 5.6 family: developers.openai.com/api/docs/guides/prompt-caching",
    dated=_DATED,
)

# The four tiers that the paper "The Complexity Trap" billed its Qwen3-Coder-480B runs at. Its cached price, 0.4 x
# input, is on none of Alibaba's pages read in November 2026 (they say 0.2 implicit, 0.1 explicit): it is kept because
# it reproduces the paper's bills. Its code says "<32k", litellm's table 32,000: decimal thousands are taken.
# Lifetime unknown: five minutes assumed. Minimum 256 as of March 2026 (a newer page says 1,024). Step unknown: 1.
_QWEN3_CODER = Prices(
    name="qwen3-coder",
    tiers=(
        (0, Rates(input=1.0, output=5.0, cache_read=0.4)),
        (32_000, Rates(input=1.8, output=9.0, cache_read=0.72)),
        (128_000, Rates(input=3.0, output=15.0, cache_read=1.2)),
        (256_000, Rates(input=6.0, output=60.0, cache_read=2.4)),
    ),
    cache=CacheRules(kind="prefix", ttl=300, minimum=256),
    source="github.com/Recursive-Safeguarding/the-complexity-trap at 1b07decf (MIT); ttl and step assumed",
    dated=_DATED,
)

_UNCACHED = multiples(
    "uncached",
    input=1.0,
    write=None,
    read=None,
    cache=CacheRules(kind="none"),
    source="an API without a prompt cache; 1 USD per million input tokens, so that bills read as millions of tokens",
    dated=_DATED,
)

SETS: Final[Mapping[str, Prices]] = MappingProxyType(
    {prices.name: prices for prices in (_ANTHROPIC, _FABLE, _OPENAI, _QWEN3_CODER, _UNCACHED)}
)


def named(name: str) -> Prices:
    """The price set of that name. Raises PriceError, which lists the names there are."""
    try:
        return SETS[name]
    except KeyError:
        raise PriceError(f"no price set {name!r}; there are: {', '.join(SETS)}") from None
