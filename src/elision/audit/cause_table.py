"""The causes that a billed dollar may have, in the order of the report, and which of them could have been avoided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Cause: TypeAlias = Literal[
    "first-write",
    "growth",
    "context",
    "answer",
    "expired-5m",
    "expired-1h",
    "prefix-changed",
    "missed",
    "not-cached",
    "model-switch",
    "compaction",
    "hour-unpaid",
    "hour-paid",
    "unused-tools",
    "repeat",
    "dead-output",
    "other-model",
]


@dataclass(frozen=True, slots=True)
class CauseText:
    """How a cause is called in a report, what it means, and what to do about it ("" for nothing)."""

    title: str
    meaning: str
    remedy: str = ""


#: In the order of the report.
CAUSES: Final[Mapping[Cause, CauseText]] = {
    "first-write": CauseText("first write", "the first prompt of a run, as far as the cache did not have it"),
    "growth": CauseText("growth", "text that is new since the call before"),
    "context": CauseText("context sent again", "old text of use: read from the cache, or too short for one"),
    "answer": CauseText("answers", "what the model wrote, reasoning included"),
    "expired-5m": CauseText("cache expired (5 min)", "a pause outlasted the cache entry", "write for an hour"),
    "expired-1h": CauseText("cache expired (1 h)", "a pause of more than an hour", "shorten before pauses"),
    "prefix-changed": CauseText("prefix changed", "written again without a pause", "keep prompt, tools, settings"),
    "missed": CauseText(
        "not found in cache", "an automatic cache lost a prefix, or the prefix changed", "keep the prefix fixed"
    ),
    "not-cached": CauseText(
        "sent without cache", "old text at full price although the model has a cache", "turn caching on"
    ),
    "model-switch": CauseText("model switched", "each model has its own cache", "switch between tasks"),
    "compaction": CauseText("own compaction", "the agent rewrote its context", "mask results instead"),
    "hour-unpaid": CauseText(
        "1 h premium, unpaid", "the dearer writes for an hour served no later call", "write for 5 minutes"
    ),
    "hour-paid": CauseText("1 h premium, paid back", "the dearer writes for an hour saved a write after a pause"),
    "unused-tools": CauseText("tools never called", "definitions of tools that the run never calls", "remove them"),
    "repeat": CauseText("repeated text", "results and words that already were in the prompt", "hide the older copy"),
    "dead-output": CauseText("dead output", "results that no later step uses", "mask old results"),
    "other-model": CauseText("helper models", "what other models did within a call"),
}
#: Causes whose whole price falls away where the cause does.
WASTE: Final = frozenset[Cause]({"hour-unpaid", "unused-tools", "repeat", "dead-output"})
#: Causes for which old text was sent again without a cache read.
REWRITES: Final = frozenset[Cause](
    {"expired-5m", "expired-1h", "prefix-changed", "missed", "not-cached", "model-switch", "compaction"}
)
#: Of these, the ones whose other course is known: the same tokens, read. A compaction leaves another prompt.
AVOIDABLE_REWRITES: Final = REWRITES - {"compaction"}
#: Causes by how long cache entries live.
LIFETIMES: Final = frozenset[Cause]({"expired-5m", "expired-1h", "hour-paid", "hour-unpaid"})
#: Causes that say only when a token was sent; what the token is comes first there.
PLAIN: Final = frozenset[Cause]({"first-write", "growth", "context"})


@dataclass(frozen=True, slots=True)
class CauseTotal:
    """What one cause amounts to.

    tokens: billed ones; 0 for a premium, whose tokens have another cause. usd: in USD. avoidable_usd: the part of it
    that a run without this cause would not have been billed, at most. calls: how many have it.
    """

    tokens: int = 0
    usd: float = 0.0
    avoidable_usd: float = 0.0
    calls: int = 0

    def __add__(self, other: CauseTotal) -> CauseTotal:
        return CauseTotal(
            self.tokens + other.tokens,
            self.usd + other.usd,
            self.avoidable_usd + other.avoidable_usd,
            self.calls + other.calls,
        )
