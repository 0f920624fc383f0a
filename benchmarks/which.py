"""Which results to hide: gists by kind, windows by age and by reuse, known ends, on both halves.

Constants are set on one half of the corpus and judged on the other. Without the shared recordings: `examples/runs`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from benchmarks.recordings import load_recordings
from elision.lab.dialect import sizer
from elision.lab.evidence import EvidenceTally, collect_evidence
from elision.lab.head_estimate import add_recorded_head
from elision.lab.replay import replay_run
from elision.lab.tuning.run_split import split_runs
from elision.strategies.schedules import CacheAwareSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.trajectory import Trajectory

#: Shorter runs hide nothing by the default window.
FEWEST_TURNS = 10
SEED = 0
PRICE_SETS = ("anthropic", "openai")
GISTS = (
    "masking",
    "masking(gist=20)",
    "masking(gist=80)",
    "masking(gist=20, gist_reads=80)",
    "masking(gist=30, gist_reads=60)",
    "hybrid",
    "hybrid(gist=20, gist_reads=80)",
    "hybrid(gist=30, gist_reads=60)",
)
#: By age and by reuse: strategies with a window, its values, and gists.
WINDOWS = (5, 6, 7, 8, 9)
WINDOWS_BY_AGE = (4, *WINDOWS, 10, 11, 12)
COMPARED = ("masking(gist=50", "masking(gist=30, gist_reads=100", "hybrid(gist=50")
ENDED = ("masking", "hybrid")
LIMITS = (50, 100, 250)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One run, or several: USD, those of sending everything, facts used and still visible, turns missing one."""

    usd: float = 0.0
    raw_usd: float = 0.0
    items: int = 0
    found: int = 0
    missing: int = 0

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            usd=self.usd + other.usd,
            raw_usd=self.raw_usd + other.raw_usd,
            items=self.items + other.items,
            found=self.found + other.found,
            missing=self.missing + other.missing,
        )


def main(*, small: bool = False) -> None:
    halves = load_halves()
    print(f"{' + '.join(str(len(half)) for half in halves)} runs of {FEWEST_TURNS} turns or more; seed {SEED}.")
    print("Cost / raw, facts still visible, turns missing one: of the first half, and of the second.")
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for prices in PRICE_SETS[:1] if small else PRICE_SETS:
            print(f"== {prices}")
            for text in GISTS:
                strategy = parse_strategy(text)
                print_row(text, [sum_outcomes(pool.map(partial(replay, strategy, prices), half)) for half in halves])
            for text in COMPARED[:1] if small else COMPARED:
                compare_reuse(pool, prices, text, halves)
            if small:
                continue
            for text in ENDED:
                for label, replay_ended in list_ends(parse_strategy(text), prices):
                    print_row(f"{text}, {label}", [sum_outcomes(pool.map(replay_ended, half)) for half in halves])


def load_halves() -> tuple[list[Trajectory], list[Trajectory]]:
    """Return the runs that set constants, and those that judge."""
    runs = [run for run in load_recordings() if len(run.turns) >= FEWEST_TURNS]
    return tuple([runs[place] for place in places] for places in split_runs(runs, 0.5, SEED))  # type: ignore[return-value]


def list_ends(strategy: Strategy, prices: str) -> Iterator[tuple[str, Callable[[Trajectory], Outcome]]]:
    yield "true ends", partial(replay_to_end, strategy, prices, None)
    for limit in LIMITS:
        yield f"limit {limit}", partial(replay_to_end, strategy, prices, limit)


def replay_to_end(strategy: Strategy, prices: str, limit: int | None, run: Trajectory) -> Outcome:
    """Replay `run` knowing a limit of turns that it did not exceed; its own end if `limit` is None."""
    turns = len(run.turns) if limit is None else limit
    if turns >= len(run.turns):
        strategy = replace(strategy, schedule=CacheAwareSchedule(max_turns=turns))
    return replay(strategy, prices, run)


def replay(strategy: Strategy, prices: str, run: Trajectory) -> Outcome:
    counting = sizer("openai", "o200k")
    whole = add_recorded_head(run, counting)
    known = collect_evidence(whole)
    found = replay_run(whole, strategy, find_price_set(prices), counting, known=known, tally=EvidenceTally())
    return Outcome(
        usd=found.usd,
        raw_usd=found.raw.usd,
        items=found.evidence.items,
        found=found.evidence.found,
        missing=found.evidence.regret_turns,
    )


def compare_reuse(pool: Executor, prices: str, text: str, halves: Sequence[Sequence[Trajectory]]) -> None:
    """Print `which=reuse` beside windows by age, and what it misses of what they miss at the same cost."""

    def replay_all(options: str) -> list[Outcome]:
        strategy = parse_strategy(f"{text}, {options})")
        found = [sum_outcomes(pool.map(partial(replay, strategy, prices), half)) for half in halves]
        print_row(f"{text}, {options})".replace("gist=50, ", ""), found)
        return found

    by_age = [replay_all(f"window={window}") for window in WINDOWS_BY_AGE]
    by_reuse = [replay_all(f"window={window}, which=reuse") for window in WINDOWS]
    for number, name in enumerate(("first", "second")):
        known = [row[number] for row in by_age]
        shares = [row[number].missing / interpolate_missing(known, row[number].usd) for row in by_reuse]
        each = " ".join(f"{share - 1:+.0%}" for share in shares)
        print(
            f"    turns missing a fact, {name} half, at equal cost: {each}; mean {sum(shares) / len(shares) - 1:+.1%}"
        )


def interpolate_missing(known: Sequence[Outcome], usd: float) -> float:
    """Return the turns missing a fact at a cost, on the straight line through the strategies of `known`."""
    # Windows are steps, and single ones are lucky or not: a line through all of them is not.
    slope, start = np.polyfit([each.usd for each in known], [each.missing for each in known], 1)
    return float(slope * usd + start)


def sum_outcomes(outcomes: Iterator[Outcome]) -> Outcome:
    return sum(outcomes, Outcome())


def print_row(label: str, halves: Sequence[Outcome]) -> None:
    cells = [
        f"{half.usd / half.raw_usd:8.4f} {half.found / max(1, half.items):6.1%} {half.missing:4}" for half in halves
    ]
    print(f"  {label:34} {' '.join(cells)}")
