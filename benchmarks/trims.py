"""What each rule that shortens new results saves, and what it hides: cost against the same strategy without it.

`python -m benchmarks trims`. Without the shared recordings: `examples/runs`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from benchmarks.folding import Outcome
from benchmarks.recordings import load_recordings
from elision.lab.dialect import sizer
from elision.lab.evidence import EvidenceTally, collect_evidence
from elision.lab.head_estimate import add_recorded_head
from elision.lab.replay import replay_run
from elision.strategies.birth_rules import TRIMS
from elision.strategies.rules import Rule
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.trajectory import Trajectory

STRATEGIES: Final = ("raw", "masking")
ENDS: Final = 4_000
#: By name in the table.
RULES: Final[dict[str, tuple[Rule, ...]]] = {
    "": (),
    **{f"trim={name}": (Rule(trim=name),) for name in TRIMS},
    f"ends={ENDS}": (Rule(ends=ENDS),),
    "all five": (*(Rule(trim=name) for name in TRIMS), Rule(ends=ENDS)),
}


def replay_rules(run: Trajectory) -> dict[tuple[str, str], Outcome]:
    """Replay `run` under each strategy with each of `RULES`."""
    counting = sizer("openai", "o200k")
    whole = add_recorded_head(run, counting)
    known = collect_evidence(whole)
    outcomes = {}
    for name in STRATEGIES:
        for label, rules in RULES.items():
            strategy = replace(parse_strategy(name), rules=rules)
            prices = find_price_set("anthropic")
            found = replay_run(whole, strategy, prices, counting, known=known, tally=EvidenceTally())
            evidence = found.evidence
            outcomes[name, label] = Outcome(found.usd, evidence.items, evidence.found, found.epochs)
    return outcomes


def main(*, small: bool = False) -> None:
    runs = load_recordings(small=small)
    totals: dict[tuple[str, str, str], Outcome] = {}
    for run in runs:
        for (name, label), outcome in replay_rules(run).items():
            for place in (run.format, "all"):
                totals[place, name, label] = totals.get((place, name, label), Outcome()) + outcome
    print(f"Cost with a rule / cost without, {len(runs)} runs, Claude prices; facts still visible in points.")
    for name in STRATEGIES:
        print(f"== {name}")
        print(f"  {'format':20}" + "".join(f"{label:>20}" for label in RULES if label))
        for place in [*sorted({run.format for run in runs}), "all"]:
            plain = totals[place, name, ""]
            cells = (_compare(totals[place, name, label], plain) for label in RULES if label)
            print(f"  {place:20}" + "".join(f"{cell:>20}" for cell in cells))


def _compare(ours: Outcome, plain: Outcome) -> str:
    points = 100 * (ours.found - plain.found) / plain.items if plain.items else 0.0
    return f"{ours.usd / plain.usd:.3f} ({points:+.1f})"
