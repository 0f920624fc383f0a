"""What a session cost by part, beside what it would have cost had everything been sent; sums over many sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from lacuna.manager.session_log import Account, by_caching
from lacuna.trajectory.prices import Bill, Prices
from lacuna.trajectory.usage import Usage
from lacuna.trajectory.usage_cost import usage_cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """A bill in USD by what is paid for. input: prompt tokens that touch no cache."""

    input: float = 0.0
    cache_write: float = 0.0
    cache_read: float = 0.0
    output: float = 0.0
    summarizer: float = 0.0

    def __add__(self, other: Parts) -> Parts:
        return Parts(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    @property
    def total(self) -> float:
        return self.input + self.cache_write + self.cache_read + self.output + self.summarizer

    def less(self, usd: float) -> Parts:
        """Without `usd` of prompts: what recalls added is read from cache first of all, then written to it."""
        left, taken = usd, {}
        for name in ("cache_read", "cache_write", "input"):
            taken[name] = max(0.0, getattr(self, name) - left)
            left -= getattr(self, name) - taken[name]
        return replace(self, **taken)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Calls in sum. Tokens of prompts; USD.

    ours, raw:  what was sent, and what would have been; both priced by the same simulated cache.
    cached:     tokens of our prompts that the simulated cache would serve.
    recalls:    part of `ours` that reading again added. caching: part of what was saved that breakpoints of ours did.
    usage:      what providers reported, summed over `reported` calls. billed: its cost, None where there is none.
    """

    calls: int = 0
    sent: int = 0
    raw_sent: int = 0
    cached: int = 0
    ours: Parts = field(default_factory=Parts)
    raw: Parts = field(default_factory=Parts)
    recalls: float = 0.0
    caching: float = 0.0
    reported: int = 0
    usage: Usage = field(default_factory=Usage)
    billed: float | None = None
    rewrites: int = 0
    summaries: int = 0
    failures: int = 0

    def __add__(self, other: Figures) -> Figures:
        sums = {
            each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self) if _adds(each.name)
        }
        return Figures(**sums, usage=self.usage + other.usage, billed=_sum(self.billed, other.billed))

    @property
    def saved(self) -> float:
        """Net USD; negative where hiding cost more than it saved."""
        return self.raw.total - self.ours.total


def figures(account: Account, after: int = 0) -> Figures:
    """Of the calls behind the first `after` ones, with everything that was booked since."""
    passes, end = account.passes[after:], account.end
    if end is None or not passes:
        return Figures()
    before = _before(account, after)
    recalls = end.costs.recalls - before.recalls
    ours = _prompts([each.bill for each in passes], account.prices)
    raw = _prompts([each.raw for each in passes], account.prices)
    summarizer = end.costs.summarizer - before.summarizer
    reported = [(each.usage, each.prices) for each in passes if each.usage is not None]
    spent, spared = end.costs.ours - before.ours, end.costs.raw - before.raw
    return Figures(
        calls=len(passes),
        sent=sum(each.told.after for each in passes),
        raw_sent=sum(each.told.raw for each in passes),
        cached=sum(each.bill.cache_read for each in passes),
        ours=replace(ours, output=max(0.0, spent - ours.total - summarizer), summarizer=summarizer),
        # What reading again added is part of the raw prompts as they were booked, and no part of the raw bill.
        raw=replace(raw, output=max(0.0, spared + recalls - raw.total)).less(recalls),
        recalls=recalls,
        caching=by_caching(passes),
        rewrites=end.epoch - before.epoch,
        summaries=end.summaries - before.summaries,
        failures=sum(len(each.failed) for each in passes),
        reported=len(reported),
        usage=sum((usage for usage, _ in reported), Usage()),
        billed=sum(usage_cost(usage, prices) for usage, prices in reported) if reported else None,
    )


def shared(account: Account) -> int:
    """Calls at the front of a fork's log that its parent made; they count there."""
    if account.info.relation not in ("fork", "replaced"):
        return 0
    begun = account.info.begun
    return next(
        (place for place, each in enumerate(account.passes) if each.at is None or each.at >= begun), len(account.passes)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Booked:
    """What stood in the books before a call."""

    ours: float = 0.0
    raw: float = 0.0
    summarizer: float = 0.0
    recalls: float = 0.0
    epoch: int = 1
    summaries: int = 0


def _before(account: Account, place: int) -> _Booked:
    """The books in front of pass `place`, the answer to the one before it included."""
    if not place:
        return _Booked()
    told, earlier = account.passes[place].told, account.passes[place - 1].told
    summarizer, recalls = earlier.costs.summarizer, earlier.costs.recalls
    return _Booked(
        ours=told.costs.ours - account.passes[place].bill.usd - (told.costs.summarizer - summarizer),
        raw=told.costs.raw - account.passes[place].raw.usd + (told.costs.recalls - recalls),
        summarizer=summarizer,
        recalls=recalls,
        epoch=earlier.epoch,
        summaries=earlier.summaries,
    )


def _prompts(bills: Sequence[Bill], prices: Prices) -> Parts:
    parts = Parts()
    for bill in bills:
        rates = prices.rates(bill.sent)
        parts += Parts(
            input=bill.input * rates.input / 1e6,
            cache_write=bill.cache_write * rates.write / 1e6,
            cache_read=bill.cache_read * rates.read / 1e6,
        )
    return parts


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other


def _adds(name: str) -> bool:
    return name not in ("usage", "billed")
