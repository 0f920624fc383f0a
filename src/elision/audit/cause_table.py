"""The causes that a billed dollar may have, in the order of the report, and which of them could have been avoided."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, TypeVar

from elision.trajectory.cache import HOUR_SECONDS

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


_Key = TypeVar("_Key")


def sum_totals(parts: Iterable[Mapping[_Key, CauseTotal]]) -> dict[_Key, CauseTotal]:
    """Return the sums of `parts` by cause, or by habit."""
    sums: dict[_Key, CauseTotal] = {}
    for part in parts:
        for key, total in part.items():
            sums[key] = sums.get(key, CauseTotal()) + total
    return sums


# -- cache writes for an hour: whether they were paid back by a read after the shorter lifetime ------------------------


@dataclass(frozen=True, slots=True)
class _OpenWrite:
    """Tokens `start` to `stop` of a prompt, written for an hour by `call`. rate: what each cost more, USD."""

    call: int
    start: int
    stop: int
    rate: float

    @property
    def usd(self) -> float:
        return (self.stop - self.start) * self.rate


@dataclass(slots=True)
class HourPremiums:
    """The premiums of one model's calls, in USD by the call that paid them. short_seconds: the shorter lifetime.

    paid, lost: of entries whose fate is known; `close` settles the rest.
    """

    short_seconds: float
    paid: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    lost: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    _open: list[_OpenWrite] = field(default_factory=list)
    _last: float | None = None

    def add_call(self, call: int, now: float | None, read: int, written: int, rate: float) -> None:
        """Record a call that read `read` tokens and wrote the next `written` ones for an hour."""
        pause = None if now is None or self._last is None else now - self._last
        kept: list[_OpenWrite] = []
        for entry in self._open:
            alive = replace(entry, stop=min(entry.stop, max(entry.start, read)))
            # What was not read was written again, or is gone.
            self.lost[entry.call] += entry.usd - alive.usd
            if pause is not None and self.short_seconds < pause <= HOUR_SECONDS:
                self.paid[entry.call] += alive.usd
            elif alive.start < alive.stop:
                kept.append(alive)
        self._open = kept
        self._last = now
        if written and rate > 0:
            if now is None:
                # Without times nobody can say that it was not worth it.
                self.paid[call] += written * rate
            else:
                self._open.append(_OpenWrite(call, read, read + written, rate))

    def close(self) -> None:
        """Settle what is open: no later call used it."""
        for entry in self._open:
            self.lost[entry.call] += entry.usd
        self._open = []
