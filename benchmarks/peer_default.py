"""What a peer's default costs: Anthropic's context editing and LangChain's `ClearToolUsesEdit`, as they come.

Both clear all tool results but the newest three, once the prompt would exceed 100,000 tokens. Neither remembers what it
cleared: the client keeps the whole history, so that from there on each call clears one more result, which is a rewrite
of the cache each time. Runs: `examples/runs`, at each run's own prices and as one flagship, and the shared recordings
if they are beside this checkout, as a flagship and where the cache is cheapest. The figures are those of
`elision replay`, compared with what was sent, as recorded; sending everything is `raw` there.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

from benchmarks.recordings import CORPUS, EVERY, SAMPLES
from elision.lab.results import RECORDED, Row, total
from elision.lab.run_loading import Candidate, Loaded, StudySettings, load_runs
from elision.lab.study import run_study
from elision.strategies.schedules import FixedSchedule
from elision.strategies.selectors import AllButNewestResults, Selector
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.prices import Prices
from elision.trajectory.trajectory import Trajectory

#: Anthropic's and LangChain's defaults: `trigger` and `keep`. Both leave `clear_at_least` at nothing.
TRIGGER: Final = 100_000
KEEP: Final = 3
FLAGSHIP: Final = "claude-opus-5-5"
CHEAP_CACHE: Final = "claude-fable-5-2"
RAW, PEER, MASKING = "sending everything", "clear above 100k, keep 3", "masking"
ROWS: Final = (RECORDED, RAW, PEER, MASKING)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearResults(Strategy):
    """All but the newest three tool results may be cleared; the schedule says at which calls."""

    name: ClassVar[str] = "clear-results"

    def make_selector(self) -> Selector:
        return AllButNewestResults(KEEP)


def clear_at(tokens: Iterable[int]) -> ClearResults:
    """Return the peer's default for a run whose whole prompts have `tokens`, call by call."""
    calls = frozenset(call for call, count in enumerate(tokens, start=1) if count > TRIGGER)
    return ClearResults(schedule=FixedSchedule(mask_calls=calls), gist=0, placeholder="[cleared]")


def replay_default(run: Trajectory, prices: Prices | None) -> list[Row]:
    """Return the rows of `run`: as recorded, everything sent, the peer's default, and masking. None where none fits."""
    raw = Candidate(RAW, parse_strategy("raw"))
    loaded = Loaded((run,), ())
    whole = run_study(loaded, StudySettings(prices=prices, candidates=(raw,), hindsight=False, elongation="none"))
    sizes = [series.tokens for (_, _, label), series in whole.series.items() if label == RAW]
    if not sizes:
        return []
    candidates = (raw, Candidate(PEER, clear_at(sizes[0])), Candidate(MASKING, parse_strategy("masking")))
    settings = StudySettings(prices=prices, candidates=candidates, hindsight=False, elongation="none")
    return [row for row in run_study(loaded, settings).rows if row.strategy in ROWS]


def print_totals(title: str, results: Iterable[list[Row]]) -> None:
    """Print what each strategy costs over all runs, and how often it rewrites the cache."""
    found = [rows for rows in results if rows]
    print(f"{title}, {len(found)} runs")
    sums = {label: total(row for rows in found for row in rows if row.strategy == label) for label in ROWS}
    for label, row in sums.items():
        print(
            f"  {label:25} ${row.usd:>8.2f} {100 * (row.usd / sums[RECORDED].usd - 1):+6.1f} %"
            f"  {row.cache_rewrites:5} rewrites  {100 * row.regret_turns / row.turns:4.1f} % of the turns miss a fact"
        )


def main(*, small: bool = False) -> None:
    samples = load_runs([SAMPLES]).runs
    if not CORPUS.exists():
        print(f"The recordings are not in {CORPUS}: these are the four samples alone.")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        flagship = partial(replay_default, prices=find_prices(FLAGSHIP))
        print_totals("examples/runs as Claude Opus 5.5", pool.map(flagship, samples))
        print_totals("examples/runs as its own models", pool.map(partial(replay_default, prices=None), samples))
        if CORPUS.exists():
            runs = sorted(load_runs([CORPUS]).runs, key=lambda run: (len(run.turns), run.format, run.id))
            chosen = runs[EVERY // 2 :: EVERY] if small else runs
            print_totals("the recordings as Claude Opus 5.5", pool.map(flagship, chosen))
            cheap_cache = partial(replay_default, prices=find_prices(CHEAP_CACHE))
            print_totals("the recordings as Claude Fable 5.2", pool.map(cheap_cache, chosen))
