"""What cache lifetimes cost: recordings with pauses, with entries of five minutes, of an hour, and as rules choose.

A rule sees only the calls before the one that it chooses for. Two yardsticks know all pauses: no entry ever expires,
and the best choice for each pause, with and without keep-alive pings. Pings are priced and not sent: Elision has none.

Without the shared recordings: `examples/runs`, of which none has a pause.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final, TypeAlias

from benchmarks.recordings import load_recordings
from elision.engine import Log
from elision.lab.replay import replay_run
from elision.lab.run_as_recorded import add_recorded_head, calls, sizer
from elision.lab.run_loading import find_named_prices
from elision.strategies.spec import parse_strategy
from elision.trajectory.cache import HOUR_SECONDS
from elision.trajectory.prices import Prices, Rates
from elision.trajectory.trajectory import Trajectory

PRICES: Final = ("claude-sonnet-4-5", "claude-opus-5-5", "claude-fable-5-2")
STRATEGIES: Final = ("raw", "masking")
#: Seconds before the end of an entry's life at which a ping is sent.
PING_MARGIN: Final = 15.0
#: Pings in a pause, at most: of the rule that always sends some, and in hindsight.
FEW_PINGS, MOST_PINGS = 4, 12
#: What a rule must reach: the share of the gap that it closes, and the change of any run's bill.
LEAST_CLOSED, MOST_DEARER = 0.5, 0.02


@dataclass(frozen=True, slots=True)
class Call:
    """tokens: of its prompt. read: of these, read from the cache. pause: seconds before it, 0 if unknown."""

    tokens: int
    read: int
    pause: float


#: Whether the next request's entries shall live an hour: (calls so far, the pause after each, rates, seconds of the
#: shorter life).
Rule: TypeAlias = Callable[[Sequence[Call], Sequence[float], Rates, float], bool]


def choose_five_minutes(before: Sequence[Call], pauses: Sequence[float], rates: Rates, ttl: float) -> bool:
    return False


def choose_hour(before: Sequence[Call], pauses: Sequence[float], rates: Rates, ttl: float) -> bool:
    return True


def choose_paid_back(before: Sequence[Call], pauses: Sequence[float], rates: Rates, ttl: float) -> bool:
    """Choose an hour once it would have been the cheaper choice so far."""
    ended = zip(before, pauses, strict=True)
    lost = sum(call.tokens for call, pause in ended if ttl < pause <= HOUR_SECONDS)
    written = sum(call.tokens - call.read for call in before)
    return lost * (rates.write_price - rates.read_price) > written * (rates.write_price_1h - rates.write_price)


def choose_expected(before: Sequence[Call], pauses: Sequence[float], rates: Rates, ttl: float) -> bool:
    """Choose an hour where half as many calls as were made so far, with as many pauses, would pay for it."""
    useful = sum(ttl < each <= HOUR_SECONDS for each in pauses) - sum(each > HOUR_SECONDS for each in pauses)
    # What half as many calls add to the prompt is written for an hour, too.
    premium = 1.5 * (rates.write_price_1h - rates.write_price)
    return 0.5 * useful * (rates.write_price - rates.read_price) > premium


#: Column -> rule. The last two may use only what was known before.
RULES: Final[dict[str, Rule]] = {
    "5 min": choose_five_minutes,
    "1 h": choose_hour,
    "1 h once paid back": choose_paid_back,
    "1 h if expected": choose_expected,
}
YARDSTICKS: Final = ("4 pings", "hindsight", "hindsight, pings", "never expires")


def main(*, small: bool = False) -> None:
    recorded = load_recordings()
    runs = [run for run in _drop_copies(recorded) if _has_pauses(run)]
    print(f"{len(runs)} of {len(recorded)} recordings have a pause of more than five minutes.")
    if not runs:
        return
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        for name in PRICES[1:2] if small else PRICES:
            print(f"\n{name}: share of what expired entries cost that each choice saves (change of the bill)")
            print(f"  {'':34}{'expired':>8}" + "".join(f"{title:>20}" for title in [*RULES, *YARDSTICKS][1:-1]))
            for spec in STRATEGIES:
                found = list(pool.map(partial(cost_run, spec=spec, prices=find_named_prices(name)), runs))
                for run, usd in zip(runs, found, strict=True):
                    _print_row(f"{run.format}, {len(run.turns)} turns, {spec}", usd)
                _print_row(f"all, {spec}", {title: sum(usd[title] for usd in found) for title in found[0]})
                _print_verdict(found)


def _print_row(name: str, usd: dict[str, float]) -> None:
    five, never = usd["5 min"], usd["never expires"]
    cells = [
        f"{(five - usd[title]) / (five - never):+.0%} ({usd[title] / five - 1:+.1%})"
        for title in [*RULES, *YARDSTICKS][1:-1]
    ]
    print(f"  {name:34}{1 - never / five:>8.1%}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


def _print_verdict(found: Sequence[dict[str, float]]) -> None:
    """Print which rules close half of the gap and make no run 2 % dearer."""
    for title in [*RULES, "4 pings"][1:]:
        gap = sum(usd["5 min"] - usd["never expires"] for usd in found)
        closed = sum(usd["5 min"] - usd[title] for usd in found) / gap
        worst = max(usd[title] / usd["5 min"] - 1 for usd in found)
        verdict = "met" if closed >= LEAST_CLOSED and worst <= MOST_DEARER else "missed"
        print(f"    {title}: {closed:+.0%} of the gap, the worst run {worst:+.1%}: {verdict}")


def cost_run(run: Trajectory, spec: str, prices: Prices) -> dict[str, float]:
    """Return what `run` costs with each choice, in USD, with output."""
    run = add_recorded_head(run, sizer("anthropic", "o200k"))
    usd = {title: replay_rule(run, spec, prices, rule)[0] for title, rule in RULES.items()}
    lasting = replace(prices, cache=replace(prices.cache, ttl=math.inf))
    usd["never expires"], found = replay_rule(run, spec, lasting, choose_five_minutes)
    rates, ttl = prices.tiers[0][1], prices.cache.ttl
    usd["4 pings"] = usd["never expires"] + cost_few_pings(found, rates, ttl) / 1e6
    for title, pings in (("hindsight", 0), ("hindsight, pings", MOST_PINGS)):
        known = usd["never expires"] + cost_known_pauses(found, rates, ttl, pings) / 1e6
        # Where entries die, hiding is free: a strategy that hides may pay less with that.
        usd[title] = min(known, *(usd[each] for each in RULES))
    return usd


def replay_rule(run: Trajectory, spec: str, prices: Prices, rule: Rule) -> tuple[float, list[Call]]:
    """Return what `run` costs where `rule` chooses for each request, in USD, and its calls."""
    found: list[Call] = []
    pauses: list[float] = []
    before: float | None = None

    def lasts_hour(now: float | None) -> bool:
        nonlocal before
        pauses.append(0.0 if now is None or before is None else now - before)
        before = now
        # The pause before the first call is none.
        return rule(found, pauses[1:], prices.tiers[0][1], prices.cache.ttl)

    def keep_call(session: Log) -> None:
        newest = session.newest_call
        assert newest is not None
        found.append(Call(newest.view.tokens, session.money.newest_prompt.cache_read, pauses[-1]))

    counting = sizer("anthropic", "o200k")
    replay = replay_run(run, parse_strategy(spec), prices, counting, watch=keep_call, lasts_hour=lasts_hour)
    return replay.usd, found


def count_pings(pause: float, life: float) -> int:
    """Return the pings that keep an entry of so many seconds alive through a pause."""
    return math.ceil(max(0.0, pause - life) / (life - PING_MARGIN))


def cost_few_pings(found: Sequence[Call], rates: Rates, ttl: float) -> float:
    """Return what pauses and at most `FEW_PINGS` pings in each cost, the pause after the last call among them."""
    cost = FEW_PINGS * found[-1].tokens * rates.read_price
    for before, call in pairwise(found):
        needed = count_pings(call.pause, ttl)
        cost += min(needed, FEW_PINGS) * before.tokens * rates.read_price
        if needed > FEW_PINGS:
            cost += call.read * (rates.write_price - rates.read_price)
    return cost


def cost_known_pauses(found: Sequence[Call], rates: Rates, ttl: float, most_pings: int) -> float:
    """Return the least that calls cost more because entries expire, in USD per million, if all pauses are known.

    Nothing goes over to an hour but where all is written again: nothing lengthens the life of what is written.
    """
    premium = rates.write_price_1h - rates.write_price
    brief, lasting = 0.0, found[0].tokens * premium
    for before, call in pairwise(found):
        pause = call.pause
        lost = call.read * (rates.write_price - rates.read_price)
        anew = math.inf
        if pause > HOUR_SECONDS:
            anew = min(brief, lasting) + lost
        elif pause > ttl:
            anew = brief + lost
        kept_brief, kept_lasting = (
            so_far + min(lost, pings * before.tokens * rates.read_price if pings <= most_pings else lost)
            for so_far, pings in (
                (brief, count_pings(pause, ttl)),
                (lasting, count_pings(pause, HOUR_SECONDS)),
            )
        )
        brief = min(kept_brief, kept_lasting, anew)
        lasting = min(kept_lasting + (call.tokens - call.read) * premium, anew + call.tokens * premium)
    return min(brief, lasting)


def _drop_copies(runs: Sequence[Trajectory]) -> list[Trajectory]:
    return list({(run.format, len(run.turns), run.head.messages): run for run in runs}.values())


def _has_pauses(run: Trajectory) -> bool:
    """Return whether a pause outlasts what is written for the shorter life, at any of the prices."""
    times = [now for now, _ in calls(run)]
    life = min(find_named_prices(name).cache.ttl for name in PRICES)
    return any(before is not None and now is not None and now - before > life for before, now in pairwise(times))
