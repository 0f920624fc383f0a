"""Which strategy is the default: candidates at every price list, by what they cost and by what agents miss.

A turn is missing a fact, or a word of its own, if the agent used one that its view did not show any more. With recalls:
as if each such turn cost one more call, at the mean of its run. Without the shared recordings: `examples/runs`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

from benchmarks.recordings import load_recordings
from elision.lab.evidence import EvidenceTally, collect_evidence
from elision.lab.replay import replay_run
from elision.lab.run_as_recorded import add_recorded_head, sizer
from elision.lab.run_loading import find_named_prices
from elision.strategies.spec import parse_strategy
from elision.trajectory.trajectory import Trajectory

PRICES: Final = ("anthropic", "claude-opus-5-5", "fable", "openai", "qwen3-coder", "uncached")
CANDIDATES: Final = (
    "masking",
    "masking(fold=false)",
    "masking(window=20)",
    "summarization",
    "hybrid",
    "hybrid(fold=false)",
    "two-tier",
)
#: Calls at which a group of runs begins.
GROUPS: Final = (0, 40, 80, 150)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run under one strategy.

    usd, raw_usd: the bill, and that of sending everything. items, found: facts used, and those still visible. missing,
    missing_own: turns missing a fact, and those missing a word of their own alone, of `turns`. peak: tokens of the
    largest view.
    """

    usd: float
    raw_usd: float
    items: int
    found: int
    missing: int
    missing_own: int
    turns: int
    peak: int

    @property
    def recalled_usd(self) -> float:
        """The bill, had each turn that misses something taken one more call."""
        return self.usd * (1 + (self.missing + self.missing_own) / self.turns)


#: Price list, strategy.
Case = tuple[str, str]


def main(*, small: bool = False) -> None:
    runs = load_recordings(small=small)
    chosen_prices = PRICES[:2] if small else PRICES
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(pool.map(partial(replay_all, price_lists=chosen_prices), runs))
    for prices in chosen_prices:
        for start, end in ((0, None), *zip(GROUPS, (*GROUPS[1:], None), strict=True)):
            chosen = [each for each, run in zip(outcomes, runs, strict=True) if is_between(len(run.turns), start, end)]
            if chosen:
                print_table(
                    f"{prices}: {len(chosen)} runs of {start} to {end - 1 if end else '…'} calls", chosen, prices
                )


def replay_all(run: Trajectory, price_lists: Sequence[str]) -> dict[Case, Outcome]:
    """Replay `run` under every candidate at each of `price_lists`."""
    counting = sizer("openai", "o200k")
    whole = add_recorded_head(run, counting)
    known = collect_evidence(whole)
    outcomes: dict[Case, Outcome] = {}
    for prices in price_lists:
        for name in CANDIDATES:
            found = replay_run(
                whole, parse_strategy(name), find_named_prices(prices), counting, known=known, tally=EvidenceTally()
            )
            outcomes[prices, name] = Outcome(
                usd=found.usd,
                raw_usd=found.raw.usd,
                items=found.evidence.items,
                found=found.evidence.found,
                missing=found.evidence.regret_turns,
                missing_own=found.evidence.own_missing_turns,
                turns=len(whole.turns),
                peak=found.peak,
            )
    return outcomes


def is_between(calls: int, start: int, end: int | None) -> bool:
    return start <= calls and (end is None or calls < end)


def print_table(title: str, outcomes: Sequence[dict[Case, Outcome]], prices: str) -> None:
    costs = f"{'total':>6} {'recalls':>8} {'median':>7} {'worst':>6}"
    print(f"== {title}")
    print(f"  {'strategy':40} {costs} {'facts':>6} {'missing':>8} {'own':>9} {'largest':>8}")
    for name in CANDIDATES:
        print_row(name, [each[prices, name] for each in outcomes])


def print_row(name: str, outcomes: Sequence[Outcome]) -> None:
    """Print cost as a multiple of raw (in total, with recalls, of the median run, of the worst), facts visible, turns
    missing one, turns missing a word of their own, tokens of the largest view."""
    raw_usd = sum(each.raw_usd for each in outcomes)
    shares = [each.usd / each.raw_usd for each in outcomes if each.raw_usd]
    items = max(1, sum(each.items for each in outcomes))
    turns = sum(each.turns for each in outcomes)
    missing, own = sum(each.missing for each in outcomes), sum(each.missing_own for each in outcomes)
    cells = [
        f"{sum(each.usd for each in outcomes) / raw_usd:6.3f}",
        f"{sum(each.recalled_usd for each in outcomes) / raw_usd:8.3f}",
        f"{median(shares):7.3f}",
        f"{max(shares):6.3f}",
        f"{sum(each.found for each in outcomes) / items:6.1%}",
        f"{missing:3} {missing / turns:4.1%}",
        f"{own:3} {own / turns:5.1%}",
        f"{max(each.peak for each in outcomes):8,}",
    ]
    print(f"  {name:40} {' '.join(cells)}")
