"""Where the time of a replay goes: each strategy against the bare counting of the same text."""

from __future__ import annotations

from time import perf_counter

from benchmarks.stitched import runs
from elision.lab.evidence import collect_evidence
from elision.lab.hindsight import find_cheapest_plan
from elision.lab.replay import replay_run
from elision.lab.run_as_recorded import add_recorded_head
from elision.lab.run_loading import DEFAULTS
from elision.strategies.schedules import HindsightSchedule
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, VocabularyCounter, make_counter


def main() -> None:
    found = runs()
    texts = [part.text for run in found for turn in run.turns for part in turn.observations]
    texts += [turn.text + turn.reasoning for run in found for turn in run.turns]
    fresh = VocabularyCounter("o200k")
    fresh.count("load the vocabulary")
    start = perf_counter()
    for text in texts:
        fresh.count(text)
    bound = perf_counter() - start
    size = sum(map(len, texts))
    print(f"Replay of {len(found)} runs, {sum(len(run.turns) for run in found)} turns, {size / 1e6:.1f} MB, one core.")
    print(f"Bound: counting every text once, {bound:.2f} s. Each strategy as a multiple of it, counts cached:")
    sizer, prices = Sizer(make_counter()), find_price_set("anthropic")
    prepared = [add_recorded_head(run, sizer) for run in found]
    known = [collect_evidence(run) for run in prepared]
    taken = dict.fromkeys((label for label, _ in DEFAULTS), 0.0)
    # Run by run, as `elision replay` does: what one strategy has read of a run the next need not read again.
    for run, own in zip(prepared, known, strict=True):
        for label, spec in DEFAULTS:
            start = perf_counter()
            strategy = parse_strategy(spec)
            if isinstance(strategy.schedule, HindsightSchedule):
                find_cheapest_plan(run, strategy, prices, sizer)
            else:
                replay_run(run, strategy, prices, sizer, known=own)
            taken[label] += perf_counter() - start
    for label, seconds in taken.items():
        print(f"  {label:28} {seconds / bound:6.1f} x   ({seconds:.1f} s here)")
