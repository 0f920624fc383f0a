"""Simulate what a provider would bill: count prompt tokens, and split them by a cache of everything sent so far.

`trajectory/cache.py` follows one conversation, view by view; a provider knows prefixes only, whoever sends them. So
this cache holds a hash for every place up to which a request can be read again. It serves forks, retries and several
runs with one beginning as well. Both agree on one conversation (tests/testing/test_billing_simulator.py).

The same prefixes bind thinking, as recent Anthropic models check it: a signature seals the thinking and the prompt
before it. If something earlier in the prompt is edited, the signature no longer fits: the request is refused, or the
block dropped if the request asks for that. Words of the error and of the response: Anthropic's pages on preserved
thinking, November 2026.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from elision.providers.shared.json_reading import Json, mapping_in
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
        marks = [at for at, place in enumerate(prefixes) if place.has_breakpoint]
        if prices.cache.kind != "prefix":
            return marks
        if not prices.cache.look_back:
            return [len(prefixes) - 1]
        # The last ending is among them, and as many before it as are looked back at.
        ends = [at for at, place in enumerate(prefixes) if place.ends_message]
        return sorted({*marks, *ends[-(prices.cache.look_back + 1) :]})

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
        for prefix in self._list_kept(prefixes, anchors, longest, prices):
            kept = prefix.key in self._hours and self._is_alive(prefix.key, prices, now)
            if kept or (may_last and prefix.lives_an_hour):
                self._hours.add(prefix.key)
            else:
                self._hours.discard(prefix.key)
            self._used[prefix.key] = now

    def _list_kept(
        self, prefixes: Sequence[PromptPrefix], anchors: Sequence[int], longest: int, prices: Prices
    ) -> Sequence[PromptPrefix]:
        if prices.cache.kind == "breakpoints":
            return [prefixes[at] for at in anchors]
        if prices.cache.look_back:
            # The newest message's end and three breakpoints are written. What is read keeps all in front of it alive.
            written = {*[at for at in anchors if prefixes[at].has_breakpoint][-3:], *anchors[-1:]}
            used = [at for at in range(longest + 1) if prefixes[at].key in self._used]
            return [prefixes[at] for at in sorted({*written, *used})]
        return prefixes


# -- thinking that is bound to the prompt before it -------------------------------------------------------------------


#: A new key would make a retry's answer another one; nothing secret is kept with it.
_KEY = b"elision lab playback"


def seal_thinking(thinking: str, prefix: Sequence[PromptBlock]) -> str:
    """Return the signature of `thinking` after the prompt `prefix`. Earlier thinking is not sealed."""
    before = hash_prefixes("", [block for block in prefix if not block.signature])
    return _compute_seal(thinking, before[-1].key if before else b"")


def _compute_seal(thinking: str, before: bytes) -> str:
    digest = hashlib.blake2b(before, key=_KEY, digest_size=24)
    digest.update(thinking.encode("utf-8", "surrogatepass"))
    return base64.b64encode(digest.digest()).decode()


def find_unfit(blocks: Sequence[PromptBlock]) -> list[str]:
    """Return the places of the thinking blocks whose signature does not fit the prompt before them."""
    prefixes = iter(hash_prefixes("", [block for block in blocks if not block.signature]))
    unfit = []
    before = b""
    for block in blocks:
        if not block.signature:
            before = next(prefixes).key
        elif _compute_seal(block.thinking, before) != block.signature:
            unfit.append(block.place)
    return unfit


def asks_to_drop(body: Json) -> bool:
    """Return whether a request asks to drop blocks that do not fit, instead of being refused."""
    binding = mapping_in(mapping_in(body.get("thinking")).get("block_binding"))
    return binding.get("prefix_mismatch_behavior") == "drop_block"


def describe_refusal(place: str) -> str:
    """Return the provider's error about a block that does not fit."""
    return (
        f"{place}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the "
        'block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". Content before this block '
        "differs from when it was created."
    )


def describe_drop(place: str) -> dict[str, Any]:
    """Return the entry of `input_transformations` for a dropped block."""
    return {"type": "thinking_dropped", "path": place, "reason": "prefix_binding_mismatch"}
