"""What cache lifetimes cost: recorded runs with entries of five minutes, of an hour, and as planned.

Two yardsticks: the bill if no entry ever expired, which nothing can reach, and the best choice for each pause in
hindsight.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from elision.engine import Log
from elision.lab.lifetime_trial import LifetimeTrial
from elision.lab.ratios import divide_or_none
from elision.lab.replay import replay_run
from elision.strategies.pauses import MOST_PINGS, count_pings
from elision.strategies.strategy import Strategy
from elision.trajectory.cache import HOUR_SECONDS
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory

#: Pings in a pause, at most, where the planner may send any.
PINGS: Final = 4
#: Without an entry that lives longer, every request is billed as with the shortest.
_FIVE_MINUTES: Final = LifetimeTrial("5m")


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeCosts:
    """Runs under one strategy, in USD: entries of five minutes, of an hour, planned, planned with pings.

    hindsight: the best choice for each pause, made by who knows all pauses; at most what the others cost.
    never_cold: no entry ever expires.
    """

    five_minutes: float = 0.0
    hour: float = 0.0
    planned: float = 0.0
    pinged: float = 0.0
    hindsight: float = 0.0
    never_cold: float = 0.0

    def __add__(self, other: LifetimeCosts) -> LifetimeCosts:
        return LifetimeCosts(
            five_minutes=self.five_minutes + other.five_minutes,
            hour=self.hour + other.hour,
            planned=self.planned + other.planned,
            pinged=self.pinged + other.pinged,
            hindsight=self.hindsight + other.hindsight,
            never_cold=self.never_cold + other.never_cold,
        )

    def compute_share(self, usd: float) -> float | None:
        """Return the share that `usd` saves of what expired entries cost; None where they cost nothing."""
        lost = self.five_minutes - self.never_cold
        # A cent in a thousand dollars is rounding.
        if lost <= 1e-5 * self.five_minutes:
            return None
        return divide_or_none(self.five_minutes - usd, lost)


def compare_lifetimes(run: Trajectory, strategy: Strategy, prices: Prices, sizer: Sizer) -> LifetimeCosts:
    """Return what `run` costs under `strategy` with each choice."""

    def cost(trial: LifetimeTrial) -> float:
        return replay_run(run, strategy, prices, sizer, lifetime=trial).usd

    never_cold, calls = _replay_never_cold(run, strategy, prices, sizer)
    costs = LifetimeCosts(
        five_minutes=cost(_FIVE_MINUTES),
        hour=cost(LifetimeTrial("1h")),
        planned=cost(LifetimeTrial("plan")),
        pinged=cost(LifetimeTrial("plan", PINGS)),
        never_cold=never_cold,
    )
    # A dead entry makes hiding free. So a strategy that hides may pay less with entries that die than if it hid as
    # it would without that.
    known = never_cold + cost_known_pauses(calls, prices)
    return replace(costs, hindsight=min(known, costs.five_minutes, costs.hour, costs.planned, costs.pinged))


def add_costs(costs: Iterable[LifetimeCosts]) -> LifetimeCosts:
    """Return the sum of `costs`."""
    return sum(costs, LifetimeCosts())


@dataclass(frozen=True, slots=True)
class CallTokens:
    """One call of a replay in which nothing expires. pause: seconds before it, None if unknown.

    before: tokens of the prompt before it. read: of its prompt that are read from the cache. tokens: of its prompt.
    """

    pause: float | None
    before: int
    read: int
    tokens: int


def _replay_never_cold(
    run: Trajectory, strategy: Strategy, prices: Prices, sizer: Sizer
) -> tuple[float, list[CallTokens]]:
    """Return the bill of `run` if no cache entry ever expired, in USD, and its calls."""
    calls: list[CallTokens] = []
    times: list[float | None] = []

    def watch(log: Log) -> None:
        newest = log.newest_call
        assert newest is not None
        now, before = newest.terms.now, times[-1] if times else None
        pause = None if now is None or before is None else now - before
        tokens_before = calls[-1].tokens if calls else 0
        read = log.bill.newest_prompt.cache_read
        calls.append(CallTokens(pause, tokens_before, read, newest.view.tokens))
        times.append(now)

    lasting = replace(prices, cache=replace(prices.cache, ttl=math.inf))
    usd = replay_run(run, strategy, lasting, sizer, watch=watch, lifetime=_FIVE_MINUTES).usd
    return usd, calls


def cost_known_pauses(calls: Sequence[CallTokens], prices: Prices) -> float:
    """Return the least that `calls` cost more because entries expire, for who knows all pauses; USD.

    Before each call what is in the cache was written for five minutes, or for an hour. Each pause costs pings, or the
    prompt again. Nothing goes over to an hour but where all is written again.
    """
    rates = prices.tiers[0][1]
    read, write = rates.read_price / 1e6, rates.write_price / 1e6
    premium = rates.write_price_1h / 1e6 - write
    #: The least so far, where the cache holds entries of five minutes, and where it holds those of an hour.
    brief, lasting = 0.0, math.inf
    for call in calls:
        new = premium * (call.tokens - call.read)
        if not call.before:
            brief, lasting = 0.0, new
            continue
        pause = call.pause or 0.0
        lost = (write - read) * call.read
        kept_brief = brief + _cost_pause(pause, prices.cache.ttl, read * call.before, lost)
        kept_lasting = lasting + _cost_pause(pause, HOUR_SECONDS, read * call.before, lost)
        anew = math.inf
        if pause > HOUR_SECONDS:
            anew = min(brief, lasting) + lost
        elif pause > prices.cache.ttl:
            anew = brief + lost
        brief = min(kept_brief, kept_lasting, anew)
        lasting = min(kept_lasting + new, anew + premium * call.tokens)
    return min(brief, lasting) if calls else 0.0


def _cost_pause(pause: float, life: float, ping: float, lost: float) -> float:
    """Return what a pause costs entries of such a life: pings, or what is lost."""
    pings = count_pings(pause, life)
    if pings > MOST_PINGS:
        return lost
    return min(pings * ping, lost)
