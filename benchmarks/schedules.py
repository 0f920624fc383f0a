"""What the schedules cost against the cheapest schedule in hindsight, at every named price set."""

from __future__ import annotations

import os

from benchmarks.recordings import load_recordings
from elision.lab.run_loading import Loaded, StudySettings, parse_candidates
from elision.lab.study import run_study
from elision.trajectory.price_table import load_price_table

SPECS = (
    "masking(schedule=every-turn)",
    "masking",
    "hybrid(schedule=every-turn)",
    "hybrid",
)


def main(*, small: bool = False) -> None:
    loaded = Loaded(load_recordings(small=small), ())
    print(f"Cost / hindsight of the same strategy, total and worst run; cost / raw. {len(loaded.runs)} runs.")
    print(f"  {'prices':12} {'strategy':32} {'total':>7} {'worst':>7} {'raw':>7} {'cap':>6}")
    sets = load_price_table().sets
    for name, prices in ((name, sets[name]) for name in (("anthropic", "fable") if small else sets)):
        found = run_study(
            loaded, StudySettings(prices=prices, candidates=parse_candidates(SPECS)), jobs=os.cpu_count() or 1
        )
        for row in found.totals:
            worst = max(one.to_hindsight or 0.0 for one in found.of(row.strategy))
            print(
                f"  {name:12} {row.strategy:32} {row.to_hindsight or 0:7.3f} {worst:7.3f} {row.to_raw or 0:7.3f} "
                f"{row.worst_ratio:6.3f}"
            )
