"""What folding saves: each strategy with `fold` against the same without it, by format; and work per call.

Last the bar: what folding must save, and must not cost, in every coding format where a tenth of the results repeats.

`fable, bound` is what live sessions do where thinking is bound: the provider clears results, and no summary is made.

Without the shared recordings: `examples/runs`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from time import process_time
from typing import Final

from benchmarks.recordings import load_recordings
from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.lab.evidence import EvidenceTally, collect_evidence
from elision.lab.replay import model_free_summarizer, replay_run
from elision.lab.run_as_recorded import add_recorded_head, sizer
from elision.strategies.repeated_lines import LineIndex
from elision.strategies.spec import parse_strategy
from elision.testing.builders import call, result, turn
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory

PRICE_SETS: Final = ("anthropic", "fable", "openai", "qwen3-coder", "uncached")
#: Column -> strategy without folding, and with it.
COLUMNS: Final = {
    "raw": ("raw", "raw(fold=true)"),
    "masking": ("masking(fold=false)", "masking"),
    "hybrid": ("hybrid(fold=false)", "hybrid"),
}
#: The price set where thinking is bound as well; and the provider's placeholder, which is assumed to be this short.
BOUND_PRICES: Final = "fable, bound"
CLEARED: Final = "[cleared]"
TURNS: Final = 5_000
EARLY, LATE = range(400, 500), range(4_900, 5_000)
#: Most of late work per call / early.
BOUND: Final = 2.0
#: Of these formats no run is a coding agent's.
OTHER_FORMATS: Final = frozenset({"anthropic-messages", "magentic-one", "openai-chat", "tau2-bench"})
#: Formats that the bar is for repeat this share of the characters of their results, or more.
LEAST_SHARE: Final = 0.1
#: The bar: most of cost with folding / without, by format and over all runs, and most points of evidence lost.
MOST_COST, MOST_TOTAL, MOST_LOST = 0.97, 0.93, 0.5
#: A format where nothing repeats must cost the same within this share.
UNCHANGED: Final = 0.0005


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
#: Format or "all", case -> its outcome.
Totals = dict[tuple[str, Case], Outcome]


def main(*, small: bool = False) -> None:
    runs = load_recordings(small=small)
    print(f"Cost with folding / cost without, {len(runs)} runs; facts still visible in points, epochs in %.")
    totals: Totals = {}
    chosen = PRICE_SETS[:2] if small else (*PRICE_SETS, BOUND_PRICES)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for run, outcomes in zip(runs, pool.map(partial(replay_all, price_sets=chosen), runs), strict=True):
            for case, outcome in outcomes.items():
                for place in (run.format, "all"):
                    totals[place, case] = totals.get((place, case), Outcome()) + outcome
    formats = [*sorted({run.format for run in runs}), "all"]
    for prices in chosen:
        print(f"== {prices}")
        print(f"  {'format':24}" + "".join(f"{column:>26}" for column in COLUMNS))
        for name in formats:
            print(f"  {name:24}" + "".join(f"{cell:>26}" for cell in list_cells(totals, name, prices)))
    if not small:
        print_bar(totals, measure_shares(runs))
        print_work()


def replay_all(run: Trajectory, price_sets: Sequence[str]) -> dict[Case, Outcome]:
    """Replay `run` with and without folding, under every strategy and at each of `price_sets`."""
    counting = sizer("openai", "o200k")
    whole = add_recorded_head(run, counting)
    known = collect_evidence(whole)
    outcomes: dict[Case, Outcome] = {}
    for prices in price_sets:
        is_bound = prices == BOUND_PRICES
        for name in sorted({name for pair in COLUMNS.values() for name in pair}):
            strategy = parse_strategy(name)
            if is_bound:
                strategy = replace(strategy, gist=0, handles=False, placeholder=CLEARED)
            found = replay_run(
                whole,
                strategy,
                find_price_set(prices.removesuffix(", bound")),
                counting,
                known=known,
                tally=EvidenceTally(),
                is_bound=is_bound,
            )
            evidence = found.evidence
            outcomes[prices, name] = Outcome(found.usd, evidence.items, evidence.found, found.epochs)
    return outcomes


def list_cells(totals: Totals, name: str, prices: str) -> Iterator[str]:
    for pair in COLUMNS.values():
        plain, folded = (totals[name, (prices, strategy)] for strategy in pair)
        epochs = 100 * (folded.epochs / plain.epochs - 1)
        yield f"{folded.usd / plain.usd:.3f} ({count_points(plain, folded):+.1f}, {epochs:+.0f} %)"


def count_points(plain: Outcome, folded: Outcome) -> float:
    """Return by how many points more of the facts is still visible with folding."""
    return 100 * (folded.found - plain.found) / plain.items if plain.items else 0.0


def measure_shares(runs: Sequence[Trajectory]) -> dict[str, float]:
    """Return by format the share of the characters of tool results in runs of lines that came before in the run."""
    repeated: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    for run in runs:
        index = LineIndex()
        for each in run.turns:
            for position, observation in enumerate(each.observations, start=1):
                key, lines = (each.index, position), observation.text.split("\n")
                found = index.find_runs(key, observation.text)
                index.add_observation(key, observation.text, found)
                repeated[run.format] += sum(
                    len("\n".join(lines[folded.start : folded.start + folded.lines])) for folded in found
                )
                characters[run.format] += len(observation.text)
    return {name: repeated[name] / total for name, total in characters.items() if total}


def print_bar(totals: Totals, shares: dict[str, float]) -> None:
    """Print which columns keep the bar: by price set, and by format where a tenth repeats."""
    print(
        f"== bar: cost <= {MOST_COST} ({MOST_TOTAL} over all), facts >= -{MOST_LOST} points, no more epochs, "
        f"where {LEAST_SHARE:.0%} of the results repeats; others cost the same"
    )
    kept = checked = 0
    for name in [*sorted(shares), "all"]:
        share = shares.get(name, 1.0)
        if name != "all" and (name in OTHER_FORMATS or share < LEAST_SHARE):
            print(f"  {name:20} {share:5.1%} repeats" + ("" if share < LEAST_SHARE else ", but no coding agent"))
            if share >= UNCHANGED:
                continue
        for prices in PRICE_SETS:
            cells = []
            for column in COLUMNS:
                failures = list_failures(totals, name, prices, column, share)
                checked, kept = checked + 1, kept + (not failures)
                cells.append(f"{column}: {', '.join(failures) or 'pass'}")
            print(f"  {name:20} {prices:12} " + "; ".join(cells))
    print(f"  {kept} of {checked} pass")


def list_failures(totals: Totals, name: str, prices: str, column: str, share: float) -> list[str]:
    """Return what of the bar `column` does not keep for format `name`, of which `share` repeats."""
    plain, folded = (totals[name, (prices, strategy)] for strategy in COLUMNS[column])
    ratio, points = folded.usd / plain.usd, count_points(plain, folded)
    if share < UNCHANGED:
        return [f"cost {ratio:.4f}"] if abs(ratio - 1) > UNCHANGED else []
    failures = []
    if ratio > (MOST_TOTAL if name == "all" else MOST_COST):
        failures.append(f"cost {ratio:.3f}")
    if points < -MOST_LOST:
        failures.append(f"facts {points:+.1f}")
    if folded.epochs > plain.epochs:
        failures.append(f"epochs {plain.epochs} -> {folded.epochs}")
    return failures


def print_work() -> None:
    """Print what a call costs late in a long session, against early: the same file is read again and again."""
    print(f"== work per call, calls {LATE[0]}-{LATE[-1]} / calls {EARLY[0]}-{EARLY[-1]} of one session")
    for spec in ("raw", "raw(fold=true)", "masking(fold=false)", "masking", "hybrid(fold=false)", "hybrid"):
        early, late = time_calls(spec)
        print(f"  {spec:19} {late / early:5.2f} x (bound {BOUND:.0f} x), {1e3 * late:.2f} ms of a late call")


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
