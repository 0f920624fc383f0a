"""What a session cost by part, beside what it would have cost with nothing hidden; sums over many sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import msgspec

from elision.manager.session_history import CallReport, SessionReport
from elision.trajectory.price_lookup import cost_reported_usage
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class CostParts:
    """A bill in USD by what is paid for. input: prompt tokens that were neither read from nor written to a cache."""

    input: float = 0.0
    cache_write: float = 0.0
    cache_read: float = 0.0
    output: float = 0.0
    summarizer: float = 0.0

    def __add__(self, other: CostParts) -> CostParts:
        return CostParts(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    @property
    def total(self) -> float:
        return self.input + self.cache_write + self.cache_read + self.output + self.summarizer


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingsTotals:
    """Sums over calls. Tokens of prompts, as the provider counts them; USD.

    ours, raw:     what was sent, as reported or else at the simulated cache; and what would have been, at that cache.
    cached_tokens: tokens of our prompts that the simulated cache would serve.
    recalls_usd:   the part of `ours` that recalls added.
    caching_usd:   the part of the saving by our cache breakpoints, where the client sets none.
    usage:         what providers reported, summed over `reported_calls`. billed_usd: its cost, None without one.
    played_calls:  of the reported calls, those that `elision lab playback` answered. played_usd: what they would
                   have cost.
    """

    calls: int = 0
    sent_tokens: int = 0
    raw_tokens: int = 0
    cached_tokens: int = 0
    ours: CostParts = field(default_factory=CostParts)
    raw: CostParts = field(default_factory=CostParts)
    recalls_usd: float = 0.0
    caching_usd: float = 0.0
    reported_calls: int = 0
    usage: Usage = field(default_factory=Usage)
    billed_usd: float | None = None
    played_calls: int = 0
    played_usd: float = 0.0
    rewrites: int = 0
    summaries: int = 0
    failed_summaries: int = 0

    def __add__(self, other: SavingsTotals) -> SavingsTotals:
        sums = {
            each.name: getattr(self, each.name) + getattr(other, each.name)
            for each in fields(self)
            if each.name != "billed_usd"
        }
        billed = [each.billed_usd for each in (self, other) if each.billed_usd is not None]
        return SavingsTotals(**sums, billed_usd=sum(billed) if billed else None)

    @property
    def saved_usd(self) -> float:
        """Return the net saving in USD, by hiding and by caching; negative where it cost more."""
        return self.raw.total - self.ours.total

    @property
    def hiding_usd(self) -> float:
        """Return what hiding saved, net, in USD; negative where it cost more than it saved."""
        return self.saved_usd - self.caching_usd


def compute_totals(account: SessionReport, after: int = 0) -> SavingsTotals:
    """Return the totals of the calls after the first `after` ones, with everything booked since."""
    passes = account.calls[after:]
    end = account.final
    if end is None or not passes:
        return SavingsTotals()
    before = _read_booked_before(account, after)
    ours = _sum_prompts([each.bills.ours for each in passes], account.prices)
    raw = _sum_prompts([each.bills.raw for each in passes], account.prices)
    summarizer = end.costs.summarizer - before.summarizer
    spent = end.costs.ours - before.ours
    spared = end.costs.raw - before.raw
    return SavingsTotals(
        calls=len(passes),
        sent_tokens=sum(each.sent_tokens for each in passes),
        raw_tokens=sum(each.raw_tokens for each in passes),
        cached_tokens=sum(each.expected_bills.ours.cache_read for each in passes),
        ours=replace(ours, output=max(0.0, spent - ours.total - summarizer), summarizer=summarizer),
        raw=replace(raw, output=max(0.0, spared - raw.total)),
        recalls_usd=end.costs.recalls - before.recalls,
        caching_usd=sum(each.bills.caching_usd for each in passes),
        rewrites=end.epoch - before.epoch,
        summaries=end.summaries - before.summaries,
        failed_summaries=sum(len(each.failed_summaries) for each in passes),
        **_sum_reported(passes),
    )


def _sum_reported(passes: Sequence[CallReport]) -> dict[str, Any]:
    """Return the fields of the totals that come from reported usage."""
    usages: list[Usage] = []
    billed_usd: list[float] = []
    played_usd: list[float] = []
    for each in passes:
        if each.usage is None:
            continue
        usd = cost_reported_usage(each.usage, each.prices)
        # Counts alone: what other models were billed for is in `billed_usd`, and would pile up call by call.
        usages.append(msgspec.structs.replace(each.usage, others=()))
        billed_usd.append(usd)
        if each.usage.played:
            played_usd.append(usd)
    return {
        "reported_calls": len(usages),
        "usage": sum(usages, Usage()),
        "billed_usd": sum(billed_usd) if billed_usd else None,
        "played_calls": len(played_usd),
        "played_usd": sum(played_usd),
    }


def count_shared_calls(account: SessionReport) -> int:
    """Count the calls at the start of a fork's log that its parent made; they count there."""
    if account.info.relation not in ("fork", "replaced"):
        return 0
    begun = account.info.begun
    return next(
        (place for place, each in enumerate(account.calls) if each.at is None or each.at >= begun), len(account.calls)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _BookedCosts:
    """The costs that were booked before a call."""

    ours: float = 0.0
    raw: float = 0.0
    summarizer: float = 0.0
    recalls: float = 0.0
    epoch: int = 1
    summaries: int = 0


def _read_booked_before(account: SessionReport, place: int) -> _BookedCosts:
    """Return the costs booked before call `place`, with the response to the one before it."""
    if not place:
        return _BookedCosts()
    told = account.calls[place].diagnostics
    earlier = account.calls[place - 1].diagnostics
    expected = account.calls[place].expected_bills
    summarizer = earlier.costs.summarizer
    recalls = earlier.costs.recalls
    return _BookedCosts(
        ours=told.costs.ours - expected.ours.usd - (told.costs.summarizer - summarizer),
        raw=told.costs.raw - expected.raw.usd,
        summarizer=summarizer,
        recalls=recalls,
        epoch=earlier.epoch,
        summaries=earlier.summaries,
    )


def _sum_prompts(bills: Sequence[Bill], prices: Prices) -> CostParts:
    parts = CostParts()
    for bill in bills:
        rates = prices.find_rates(bill.prompt_tokens)
        hour = bill.cache_write_1h
        parts += CostParts(
            input=bill.input * rates.input / 1e6,
            cache_write=((bill.cache_write - hour) * rates.write_price + hour * rates.write_price_1h) / 1e6,
            cache_read=bill.cache_read * rates.read_price / 1e6,
        )
    return parts
