"""What folding saves: each strategy with `fold` against the same without it, by format; and work per call.

`reads` is hybrid with `fold_reads=true`: files are folded even where the agent's edits must match their text.

Without the shared recordings: `examples/runs`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from time import process_time
from typing import Final

from benchmarks.stitched import CORPUS, SAMPLES
from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.lab.dialect import sizer
from elision.lab.evidence import EvidenceTally, collect_evidence
from elision.lab.head_estimate import add_recorded_head
from elision.lab.replay import model_free_summarizer, replay_run
from elision.lab.study import load_runs
from elision.strategies.spec import parse_strategy
from elision.testing.builders import call, result, turn
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory

PRICE_SETS: Final = ("anthropic", "fable", "openai", "qwen3-coder", "uncached")
#: Column -> strategy without folding, and with it.
COLUMNS: Final = {
    "raw": ("raw", "fold"),
    "masking": ("masking", "masking(fold=5)"),
    "hybrid": ("hybrid", "hybrid(fold=5)"),
    "reads": ("hybrid", "hybrid(fold=5, fold_reads=true)"),
}
TURNS: Final = 5_000
EARLY, LATE = range(400, 500), range(4_900, 5_000)
#: The bound that the issue sets for work per call.
BOUND: Final = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run, or several, under one strategy: USD, facts used and still visible, epochs."""

    usd: float = 0.0
    items: int = 0
    found: int = 0
    epochs: int = 0

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(
            self.usd + other.usd, self.items + other.items, self.found + other.found, self.epochs + other.epochs
        )


#: Price set, strategy.
Case = tuple[str, str]


def main() -> None:
    runs = load_runs([CORPUS if CORPUS.is_dir() else SAMPLES]).runs
    print(f"Cost with fold=5 / cost without, {len(runs)} runs; facts still visible in points, epochs in %.")
    totals: dict[tuple[str, Case], Outcome] = {}
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for run, outcomes in zip(runs, pool.map(replay_all, runs), strict=True):
            for case, outcome in outcomes.items():
                for place in (run.format, "all"):
                    totals[place, case] = totals.get((place, case), Outcome()) + outcome
    formats = [*sorted({run.format for run in runs}), "all"]
    for prices in PRICE_SETS:
        print(f"== {prices}")
        print(f"  {'format':24}" + "".join(f"{column:>26}" for column in COLUMNS))
        for name in formats:
            print(f"  {name:24}" + "".join(f"{cell:>26}" for cell in list_cells(totals, name, prices)))
    print_work()


def replay_all(run: Trajectory) -> dict[Case, Outcome]:
    """Replay `run` with and without folding, under every strategy and at every price set."""
    counting = sizer("openai", "o200k")
    whole = add_recorded_head(run, counting)
    known = collect_evidence(whole)
    outcomes: dict[Case, Outcome] = {}
    for prices in PRICE_SETS:
        for name in sorted({name for pair in COLUMNS.values() for name in pair}):
            found = replay_run(
                whole, parse_strategy(name), find_price_set(prices), counting, known=known, tally=EvidenceTally()
            )
            evidence = found.evidence
            outcomes[prices, name] = Outcome(found.usd, evidence.items, evidence.found, found.epochs)
    return outcomes


def list_cells(totals: dict[tuple[str, Case], Outcome], name: str, prices: str) -> Iterator[str]:
    for pair in COLUMNS.values():
        plain, folded = (totals[name, (prices, strategy)] for strategy in pair)
        points = 100 * (folded.found - plain.found) / plain.items if plain.items else 0.0
        epochs = 100 * (folded.epochs / plain.epochs - 1)
        yield f"{folded.usd / plain.usd:.3f} ({points:+.1f}, {epochs:+.0f} %)"


def print_work() -> None:
    """Print what a call costs late in a long session, against early: the same file is read again and again."""
    print(f"== work per call, calls {LATE[0]}-{LATE[-1]} / calls {EARLY[0]}-{EARLY[-1]} of one session")
    for spec in ("raw", "fold", "masking", "masking(fold=5)", "hybrid", "hybrid(fold=5)"):
        early, late = time_calls(spec)
        print(f"  {spec:18} {late / early:5.2f} x (bound {BOUND:.0f} x), {1e3 * late:.2f} ms of a late call")


def time_calls(spec: str) -> tuple[float, float]:
    """Return the mean processor seconds of early and of late calls that rewrite nothing."""
    log = Log.fold((), LogSetup(parse_strategy(spec), find_price_set("anthropic"), Sizer(make_counter())))
    summarizer = model_free_summarizer(log.sizer)
    seconds: dict[int, float] = {}
    epoch = 1
    for index in range(1, TURNS + 1):
        log.add_turn(turn(index, (call("read_file", path="a.py"), result(write_file(index), "read_file"))))
        begun = process_time()
        view = run_pass(decide(log, make_plain_terms()), summarizer)
        if view.epoch == epoch:
            seconds[index] = process_time() - begun
        epoch = view.epoch
    early, late = ([seconds[index] for index in calls if index in seconds] for calls in (EARLY, LATE))
    return sum(early) / len(early), sum(late) / len(late)


def write_file(index: int) -> str:
    """Return a file of 60 lines of which each turn changes one; every 50 turns it is another file."""
    lines = [f"    step_{place} = compute_part({place}, {index // 50})" for place in range(60)]
    lines[index % 60] = f"    step_{index} = changed({index})"
    return "\n".join(lines)
