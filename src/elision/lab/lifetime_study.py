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
from elision.lab.evidence import Evidence, EvidenceTally
from elision.lab.lifetime_trial import LifetimeTrial
from elision.lab.ratios import divide_or_none
from elision.lab.replay import Replay, replay_run
from elision.strategies.pauses import MOST_PINGS, count_pings
from elision.strategies.strategy import Strategy
from elision.trajectory.cache import HOUR_SECONDS
from elision.trajectory.prices import Bill, Prices, Rates
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory

#: Pings in a pause, at most, where the planner may send any.
PINGS: Final = 4
#: Without an entry that lives longer, every request is billed as with the shortest.
_FIVE_MINUTES: Final = LifetimeTrial("5m")
_IMPOSSIBLE: Final = Bill(usd=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeCosts:
    """Runs under one strategy, in USD: entries of five minutes, of an hour, planned, planned with pings.

    hindsight: the best choice for each pause, with all pauses known; at most what the others cost.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LifetimeComparison:
    """One run under one strategy with each choice; the replay behind each yardstick, with what it would be billed."""

    costs: LifetimeCosts
    hindsight: Replay
    never_cold: Replay


def compare_lifetimes(
    run: Trajectory,
    strategy: Strategy,
    prices: Prices,
    sizer: Sizer,
    *,
    known: Evidence | None = None,
    common: frozenset[str] = frozenset(),
    pings: int = PINGS,
) -> LifetimeComparison:
    """Return what `run` costs under `strategy` with each choice. pings: that a pause may have where any are planned.

    known: the evidence of the run, where what the yardsticks lose of it is counted; without the `common` items.
    """

    def replay(trial: LifetimeTrial) -> Replay:
        tally = EvidenceTally(common=common)
        return replay_run(run, strategy, prices, sizer, known=known, tally=tally, lifetime=trial)

    never_cold, calls = _replay_never_cold(run, strategy, prices, sizer, known, common)
    five_minutes, hour = replay(_FIVE_MINUTES), replay(LifetimeTrial("1h"))
    planned, pinged = replay(LifetimeTrial("plan")), replay(LifetimeTrial("plan", pings))
    known_pauses = replace(never_cold, bill=never_cold.bill + bill_known_pauses(calls, prices))
    # A dead entry makes hiding free. So a strategy that hides may pay less with entries that die than if it hid as
    # it would without that.
    hindsight = min((known_pauses, five_minutes, hour, planned, pinged), key=lambda each: each.usd)
    costs = LifetimeCosts(
        five_minutes=five_minutes.usd,
        hour=hour.usd,
        planned=planned.usd,
        pinged=pinged.usd,
        hindsight=hindsight.usd,
        never_cold=never_cold.usd,
    )
    return LifetimeComparison(costs=costs, hindsight=hindsight, never_cold=never_cold)


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
    run: Trajectory,
    strategy: Strategy,
    prices: Prices,
    sizer: Sizer,
    known: Evidence | None,
    common: frozenset[str],
) -> tuple[Replay, list[CallTokens]]:
    """Replay `run` as if no cache entry ever expired; return its calls, too."""
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
    tally = EvidenceTally(common=common)
    result = replay_run(run, strategy, lasting, sizer, known=known, tally=tally, watch=watch, lifetime=_FIVE_MINUTES)
    return result, calls


def bill_known_pauses(calls: Sequence[CallTokens], prices: Prices) -> Bill:
    """Return the least that `calls` cost more because entries expire, if all pauses are known.

    Before each call what is in the cache was written for five minutes, or for an hour. Each pause costs pings, or the
    prompt again. Nothing goes over to an hour but where all is written again.
    """
    if not calls:
        return Bill()
    rates = prices.tiers[0][1]
    #: The least so far, where the cache holds entries of five minutes, and where it holds those of an hour.
    brief, lasting = Bill(), _IMPOSSIBLE
    for call in calls:
        new = _bill_premium(call.tokens - call.read, rates)
        if not call.before:
            brief, lasting = Bill(), new
            continue
        pause = call.pause or 0.0
        lost = _bill_rewrite(call.read, rates)
        kept_brief = brief + _bill_pause(pause, prices.cache.ttl, call.before, lost, rates)
        kept_lasting = lasting + _bill_pause(pause, HOUR_SECONDS, call.before, lost, rates)
        anew = _IMPOSSIBLE
        if pause > HOUR_SECONDS:
            anew = _choose_least(brief, lasting) + lost
        elif pause > prices.cache.ttl:
            anew = brief + lost
        brief = _choose_least(kept_brief, kept_lasting, anew)
        lasting = _choose_least(kept_lasting + new, anew + _bill_premium(call.tokens, rates))
    return _choose_least(brief, lasting)


def _choose_least(*bills: Bill) -> Bill:
    return min(bills, key=lambda bill: bill.usd)


def _bill_premium(tokens: int, rates: Rates) -> Bill:
    """Return what it costs more that written tokens live an hour."""
    return Bill(cache_write_1h=tokens, usd=tokens * (rates.write_price_1h - rates.write_price) / 1e6)


def _bill_rewrite(tokens: int, rates: Rates) -> Bill:
    """Return what it costs more that tokens are written again, and not read."""
    usd = tokens * (rates.write_price - rates.read_price) / 1e6
    return Bill(cache_write=tokens, cache_read=-tokens, usd=usd)


def _bill_pause(pause: float, life: float, prompt: int, lost: Bill, rates: Rates) -> Bill:
    """Return what a pause costs entries of such a life: pings of the `prompt`, or what is lost."""
    pings = count_pings(pause, life)
    if pings > MOST_PINGS:
        return lost
    read = pings * prompt
    return _choose_least(Bill(cache_read=read, usd=read * rates.read_price / 1e6), lost)
