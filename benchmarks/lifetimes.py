"""What cache lifetimes cost: recordings with pauses, and generated pauses on recorded runs.

The planner's constants were set on one half of the patterns (`tuned`), and are judged on the other. Recordings with
pauses are too few for halves. So what an hour must be expected to save is chosen for each of them on the others
(`left out`), among `RISKS`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise

import msgspec

from benchmarks.recordings import load_recordings
from elision.engine import Log
from elision.lab.clock import calls
from elision.lab.dialect import sizer
from elision.lab.head_estimate import add_recorded_head
from elision.lab.lifetime_study import LifetimeCosts, add_costs, compare_lifetimes
from elision.lab.lifetime_trial import LifetimeTrial
from elision.lab.pause_patterns import PATTERNS, set_pauses
from elision.lab.replay import replay_run
from elision.lab.report.lifetime_table import format_share, list_choices
from elision.strategies import lifetime_planner
from elision.strategies.spec import parse_strategy
from elision.trajectory.cache import HOUR_SECONDS
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.trajectory import Trajectory

PRICES = find_price_set("anthropic")
STRATEGIES = ("raw", "masking", "hybrid")
#: Turns of the runs that patterns are laid on, and how many runs of each half.
SHORTEST, LONGEST = 30, 250
RUNS = 6
HALVES = ("tuned", "judged")
#: What an hour must be expected to save, as multiples of what it costs more: `BEGIN_RISK` of the planner.
RISKS = (2.0, 2.5, 3.0, 3.5, 4.0)


def main(*, small: bool = False) -> None:
    runs = _drop_copies(load_recordings())
    with ProcessPoolExecutor(os.cpu_count() or 1) as pool:
        print("Share saved of what expired cache entries cost, at the price set `anthropic`.")
        titles = [name for name, _ in list_choices(LifetimeCosts())][1:-1]
        print(f"{'':48}{'expired':>9}" + "".join(f"{title:>32}" for title in titles))
        for half, runs_of_half in zip(HALVES, _split(runs), strict=True):
            total = []
            for pattern in PATTERNS:
                timed = [set_pauses(run, pattern, seed) for seed, run in enumerate(runs_of_half)]
                total += _print_runs(f"{half}: {pattern}", timed, pool)
            print_row(f"{half}: all patterns", add_costs(total))
        if small:
            return
        recorded = [run for run in runs if _has_pauses(run)]
        costs = []
        for run in recorded:
            name = f"{run.format}, {len(run.turns)} turns"
            costs.append(add_costs(_print_runs(name, [run], pool)))
            print_row(f"{name}, all three", costs[-1])
        if recorded:
            print_row("all recordings with pauses", add_costs(costs))
            _print_left_out(recorded, costs, pool)
    for spec in STRATEGIES[1:]:
        rewrites, false = count_false_cold([run for run in runs if _has_cache_writes(run)], spec)
        print(f"written for an hour, {spec}: {false} of {rewrites} cache rewrites took a live entry for a dead one")


def _print_runs(name: str, runs: Sequence[Trajectory], pool: ProcessPoolExecutor) -> list[LifetimeCosts]:
    """Print a row for each strategy, and return them."""
    rows = []
    for spec in STRATEGIES:
        rows.append(add_costs(pool.map(partial(compare, spec=spec), runs)))
        print_row(f"{name}, {spec}", rows[-1])
    return rows


def _print_left_out(runs: Sequence[Trajectory], costs: Sequence[LifetimeCosts], pool: ProcessPoolExecutor) -> None:
    """Print what the planner saves of each run where the others choose how much an hour must save.

    costs: of each run, all strategies together. Of equal multiples the lowest is chosen.
    """
    jobs = [(run, spec, risk) for run in runs for risk in RISKS for spec in STRATEGIES]
    planned: dict[tuple[int, float], float] = {}
    for place, usd in enumerate(pool.map(cost_plans, *zip(*jobs, strict=True))):
        key = (place // (len(RISKS) * len(STRATEGIES)), RISKS[place // len(STRATEGIES) % len(RISKS)])
        planned[key] = planned.get(key, 0.0) + usd
    for place, run in enumerate(runs):
        others = [other for other in range(len(runs)) if other != place]
        sums = {risk: round(sum(planned[other, risk] for other in others), 6) for risk in RISKS}
        risk = min(RISKS, key=lambda risk: (sums[risk], risk))
        share = format_share(costs[place].compute_share(planned[place, risk]))
        print(f"left out: {run.format}, {len(run.turns)} turns: {share} without pings, at {risk} times")


def cost_plans(run: Trajectory, spec: str, risk: float) -> float:
    """Return what a run costs as planned without pings, in USD, where an hour must save `risk` times what it costs."""
    counting = sizer("anthropic", "o200k")
    before = lifetime_planner.BEGIN_RISK
    lifetime_planner.BEGIN_RISK = risk
    try:
        whole = add_recorded_head(run, counting)
        return replay_run(whole, parse_strategy(spec), PRICES, counting, lifetime=LifetimeTrial("plan")).usd
    finally:
        lifetime_planner.BEGIN_RISK = before


def count_false_cold(runs: Iterable[Trajectory], spec: str) -> tuple[int, int]:
    """Return the cache rewrites of `runs`, had each wrote its cache entries for an hour as usage reports it.

    Return also how many of them were made because the cache was taken for cold, after less than an hour.
    """
    rewrites = false = 0
    for run in map(write_for_an_hour, runs):
        times: list[float | None] = []
        reasons: list[str] = []

        def watch(log: Log, times: list[float | None] = times, reasons: list[str] = reasons) -> None:
            newest = log.newest_call
            assert newest is not None
            times.append(newest.terms.now)
            reasons.append(newest.decided.reason)

        result = replay_run(run, parse_strategy(spec), PRICES, sizer("anthropic", "o200k"), watch=watch)
        rewrites += result.epochs - 1
        for before, now, reason in zip(times, times[1:], reasons[1:], strict=False):
            is_alive = before is None or now is None or now - before <= HOUR_SECONDS
            false += reason == "cold cache" and is_alive
    return rewrites, false


def write_for_an_hour(run: Trajectory) -> Trajectory:
    """Return `run` as if its provider had reported that all it wrote to the cache lives an hour."""
    turns = []
    for turn in run.turns:
        usage = turn.usage
        if usage is not None:
            usage = msgspec.structs.replace(usage, cache_write_1h=usage.cache_write)
        turns.append(msgspec.structs.replace(turn, usage=usage))
    return replace(run, turns=tuple(turns))


def compare(run: Trajectory, spec: str) -> LifetimeCosts:
    counting = sizer("anthropic", "o200k")
    return compare_lifetimes(add_recorded_head(run, counting), parse_strategy(spec), PRICES, counting).costs


def print_row(name: str, costs: LifetimeCosts) -> None:
    """Print what expired entries cost, as a share of the bill, and what of that each choice saves."""
    lost = (costs.five_minutes - costs.never_cold) / costs.five_minutes
    cells = []
    for _, usd in list_choices(costs)[1:-1]:
        share = costs.compute_share(usd)
        cells.append(f"{usd / costs.five_minutes - 1:+.1%} of the bill" if share is None else format_share(share))
    print(f"{name:48}{lost:>9.1%}" + "".join(f"{cell:>32}" for cell in cells), flush=True)


def _drop_copies(runs: Iterable[Trajectory]) -> list[Trajectory]:
    found = {(run.format, len(run.turns), run.head.messages): run for run in runs}
    return list(found.values())


def _split(runs: Sequence[Trajectory]) -> tuple[list[Trajectory], list[Trajectory]]:
    """Return two halves of the runs that are long enough, by their names."""
    fit = [run for run in runs if SHORTEST <= len(run.turns) <= LONGEST]
    fit.sort(key=lambda run: hashlib.sha1(f"{os.path.basename(run.file)} {run.id}".encode()).hexdigest())
    return fit[::2][:RUNS], fit[1::2][:RUNS]


def _has_cache_writes(run: Trajectory) -> bool:
    return any(turn.usage is not None and turn.usage.cache_write for turn in run.turns)


def _has_pauses(run: Trajectory) -> bool:
    times = [now for now, _ in calls(run)]
    return any(
        before is not None and now is not None and now - before > PRICES.cache.ttl for before, now in pairwise(times)
    )
