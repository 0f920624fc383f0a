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
from elision.trajectory.cache import HOUR_SECONDS, LOOK_BACK
from elision.trajectory.prices import Prices
from elision.trajectory.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptPrefix:
    """The prompt up to and with one of its blocks. key: hash of all of it. tokens: so far.

    lives_an_hour: whether its breakpoint asks for that. ends_message: whether it ends with a message that the model
    answers, or with the instructions (OpenAI's eligible messages).
    """

    key: bytes
    tokens: int
    has_breakpoint: bool
    lives_an_hour: bool = False
    ends_message: bool = False


def hash_prefixes(owner: str, blocks: Sequence[PromptBlock]) -> list[PromptPrefix]:
    """Return every prefix of a prompt. owner: API key and model; owners share no cache entries."""
    found = []
    tokens = 0
    digest = hashlib.blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=16)
    for block, after in zip(blocks, (*blocks[1:], None), strict=True):
        digest.update(len(block.text).to_bytes(8, "big"))
        digest.update(block.text.encode("utf-8", "surrogatepass"))
        tokens += block.tokens
        found.append(
            PromptPrefix(
                key=digest.digest(),
                tokens=tokens,
                has_breakpoint=block.has_breakpoint,
                lives_an_hour=block.ttl == "1h",
                ends_message=_ends_message(block, after),
            )
        )
    return found


def _ends_message(block: PromptBlock, after: PromptBlock | None) -> bool:
    if block.role in ("system", "developer", "tool"):
        return after is None or after.role != block.role
    return block.role == "user"


class BillingSimulator:
    """The prompt cache of a whole provider."""

    def __init__(self) -> None:
        self._used: dict[bytes, float] = {}
        #: Entries that live an hour. As in `PromptCache`, no breakpoint lengthens the life of what is there.
        self._hours: set[bytes] = set()

    def bill_request(self, prefixes: Sequence[PromptPrefix], prices: Prices, now: float, *, output: int = 0) -> Usage:
        """Return the usage of a request that starts at `now` (seconds); its prefixes are cached from then on."""
        total = prefixes[-1].tokens if prefixes else 0
        anchors = self._find_anchors(prefixes, prices)
        longest = max((self._find_entry(prefixes, at, prices, now) for at in anchors), default=-1)
        cached = prices.cache.count_usable(prefixes[longest].tokens if longest >= 0 else 0)
        written = written_1h = 0
        if anchors and prices.find_rates(total).cache_write is not None:
            written = self._count_written(prefixes[anchors[-1]], cached, prices)
            hours = [at for at in anchors if prefixes[at].lives_an_hour]
            written_1h = self._count_written(prefixes[hours[-1]], cached, prices) if hours and written else 0
        self._remember(prefixes, anchors, longest, prices, now)
        return Usage(
            input=total - cached - written,
            cache_read=cached,
            cache_write=written,
            cache_write_1h=written_1h,
            output=output,
        )

    def _find_anchors(self, prefixes: Sequence[PromptPrefix], prices: Prices) -> list[int]:
        """Return the places from which the cache is searched, and up to which it is written."""
        if prices.cache.kind == "none" or not prefixes:
            return []
        if prices.cache.kind == "prefix" and not prices.cache.look_back:
            return [len(prefixes) - 1]
        if prices.cache.kind == "prefix":
            return self._find_boundaries(prefixes, prices.cache.look_back + 1)
        return [at for at, place in enumerate(prefixes) if place.has_breakpoint]

    def _find_boundaries(self, prefixes: Sequence[PromptPrefix], endings: int) -> list[int]:
        """Return the breakpoints of a request, its last ending among them, and as many of the newest `endings`."""
        ends = [at for at, place in enumerate(prefixes) if place.ends_message]
        marks = [at for at, place in enumerate(prefixes) if place.has_breakpoint]
        return sorted({*marks, *ends[-endings:]})

    def _find_entry(self, prefixes: Sequence[PromptPrefix], anchor: int, prices: Prices, now: float) -> int:
        """Return where the longest prefix ends that `anchor` finds, -1 for none. Breakpoints look back 20 blocks."""
        if prices.cache.kind == "breakpoints":
            least = max(0, anchor - LOOK_BACK)
        elif prices.cache.look_back:
            least = anchor
        else:
            least = 0
        for at in range(anchor, least - 1, -1):
            if self._is_alive(prefixes[at].key, prices, now):
                return at
        return -1

    def _is_alive(self, key: bytes, prices: Prices, now: float) -> bool:
        used = self._used.get(key)
        life = HOUR_SECONDS if key in self._hours else prices.cache.ttl
        return used is not None and now - used <= life

    def _count_written(self, end: PromptPrefix, cached: int, prices: Prices) -> int:
        """Count the tokens that a request writes up to `end`."""
        if end.tokens < prices.cache.minimum:
            return 0
        return max(0, end.tokens - cached)

    def _remember(
        self, prefixes: Sequence[PromptPrefix], anchors: Sequence[int], longest: int, prices: Prices, now: float
    ) -> None:
        """Keep the entries that a request wrote or used. longest: the place of the entry that it read, -1 for none."""
        may_last = longest < 0 or prefixes[longest].key in self._hours
        if prices.cache.kind == "breakpoints":
            remembered = [prefixes[at] for at in anchors]
        elif prices.cache.look_back:
            # The newest message's end and three breakpoints are written. What is read keeps all in front of it alive.
            written = {*[at for at in anchors if prefixes[at].has_breakpoint][-3:], *anchors[-1:]}
            used = [at for at in range(longest + 1) if prefixes[at].key in self._used]
            remembered = [prefixes[at] for at in sorted({*written, *used})]
        else:
            remembered = list(prefixes)
        for prefix in remembered:
            kept = prefix.key in self._hours and self._is_alive(prefix.key, prices, now)
            if kept or (may_last and prefix.lives_an_hour):
                self._hours.add(prefix.key)
            else:
                self._hours.discard(prefix.key)
            self._used[prefix.key] = now
