"""What the schedules cost against the cheapest schedule in hindsight, at every named price set."""

from __future__ import annotations

import os

from benchmarks.stitched import CORPUS, SAMPLES
from elision.lab.candidates import parse_candidates
from elision.lab.run_loading import load_runs
from elision.lab.study import run_study
from elision.lab.study_settings import StudySettings
from elision.trajectory.price_table import load_price_table

SPECS = (
    "masking(schedule=every-turn)",
    "masking(schedule=batched(10))",
    "masking(schedule=batched(20))",
    "masking",
    "hybrid(schedule=every-turn)",
    "hybrid",
)


def main() -> None:
    paths = sorted(CORPUS.glob("*/*")) if CORPUS.is_dir() else [SAMPLES]
    loaded = load_runs(paths)
    print(f"Cost / hindsight of the same strategy, total and worst run; cost / raw. {len(loaded.runs)} runs.")
    print(f"  {'prices':12} {'strategy':32} {'total':>7} {'worst':>7} {'raw':>7} {'cap':>6}")
    for name, prices in load_price_table().sets.items():
        found = run_study(
            loaded, StudySettings(prices=prices, candidates=parse_candidates(SPECS)), jobs=os.cpu_count() or 1
        )
        for row in found.totals:
            worst = max(one.to_hindsight or 0.0 for one in found.of(row.strategy))
            print(
                f"  {name:12} {row.strategy:32} {row.to_hindsight or 0:7.3f} {worst:7.3f} {row.to_raw or 0:7.3f} "
                f"{row.worst_ratio:6.3f}"
            )
