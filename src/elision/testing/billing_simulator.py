"""Simulate what a provider would bill: count prompt tokens, and split them by a cache of everything sent so far.

`trajectory/cache.py` follows one conversation, view by view; a provider knows prefixes only, whoever sends them. So
this cache holds a hash for every place up to which a request can be read again. It serves forks, retries and several
runs with one beginning as well. Both agree on one conversation (tests/testing/test_billing_simulator.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from elision.testing.parsed_request import PromptBlock
from elision.trajectory.cache import LOOK_BACK
from elision.trajectory.prices import Prices
from elision.trajectory.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPrefix:
    """The prompt up to and with one of its blocks. key: hash of all of it. tokens: so far."""

    key: bytes
    tokens: int
    has_breakpoint: bool


def hash_prefixes(owner: str, blocks: Sequence[PromptBlock]) -> list[PromptPrefix]:
    """Return every prefix of a prompt. owner: API key and model; owners share no cache entries."""
    found = []
    tokens = 0
    digest = hashlib.blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=16)
    for block in blocks:
        digest.update(len(block.text).to_bytes(8, "big"))
        digest.update(block.text.encode("utf-8", "surrogatepass"))
        tokens += block.tokens
        found.append(PromptPrefix(key=digest.digest(), tokens=tokens, has_breakpoint=block.has_breakpoint))
    return found


class BillingSimulator:
    """The prompt cache of a whole provider."""

    def __init__(self) -> None:
        self._used: dict[bytes, float] = {}

    def bill_request(self, prefixes: Sequence[PromptPrefix], prices: Prices, now: float, *, output: int = 0) -> Usage:
        """Return the usage of a request that starts at `now` (seconds); its prefixes are cached from then on."""
        total = prefixes[-1].tokens if prefixes else 0
        anchors = self._find_anchors(prefixes, prices)
        cached = prices.cache.count_usable(
            max((self._count_cached(prefixes, at, prices, now) for at in anchors), default=0)
        )
        kept = prefixes[anchors[-1]].tokens if anchors else 0
        if prices.cache.kind == "breakpoints":
            remembered = [prefixes[at] for at in anchors]
        else:
            remembered = list(prefixes)
        for prefix in remembered:
            self._used[prefix.key] = now
        written = 0
        if kept >= prices.cache.minimum and prices.find_rates(total).cache_write is not None:
            written = max(0, kept - cached)
        return Usage(input=total - cached - written, cache_read=cached, cache_write=written, output=output)

    def _find_anchors(self, prefixes: Sequence[PromptPrefix], prices: Prices) -> list[int]:
        """Return the places from which the cache is searched, and up to which it is written."""
        if prices.cache.kind == "none" or not prefixes:
            return []
        if prices.cache.kind == "prefix":
            return [len(prefixes) - 1]
        return [at for at, place in enumerate(prefixes) if place.has_breakpoint]

    def _count_cached(self, prefixes: Sequence[PromptPrefix], anchor: int, prices: Prices, now: float) -> int:
        """Count the tokens of the longest cached prefix up to `anchor`. A breakpoint looks back 20 blocks."""
        if prices.cache.kind == "breakpoints":
            least = max(0, anchor - LOOK_BACK)
        else:
            least = 0
        for at in range(anchor, least - 1, -1):
            used = self._used.get(prefixes[at].key)
            if used is not None and now - used <= prices.cache.ttl:
                return prefixes[at].tokens
        return 0
