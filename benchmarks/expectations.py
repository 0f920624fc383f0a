"""What masking saves by length of a run and by prices: the table of the README.

Runs: the shared recordings if they are beside this checkout, and `examples/runs`. A run that occurs twice counts once.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from statistics import median

from benchmarks.recordings import CORPUS, EVERY, SAMPLES
from elision.lab.report import figures
from elision.lab.results import Study
from elision.lab.run_loading import Candidate, Loaded, StudySettings, load_runs
from elision.lab.study import run_study
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set, find_prices

FOLDERS = (CORPUS, SAMPLES)
#: The newest flagships first, with all candidates; then a set whose cache reads cost 0.1 x input, and an API without a
#: cache, with masking alone.
FLAGSHIPS = ("Opus 5.5", "GPT-6.1")
PRICES = {
    "Opus 5.5": find_prices("claude-opus-5-5"),
    "GPT-6.1": find_prices("gpt-6.1-sol"),
    "reads at 0.1 ×": find_price_set("anthropic"),
    "uncached": find_price_set("uncached"),
}
#: Calls at which a group of runs begins.
GROUPS = (0, 40, 80, 150)
RAW, MASKING, UNFOLDED, EVERY_TURN = "raw", "masking", "masking, not folded", "masking, every turn"
CANDIDATES = (
    Candidate(RAW, parse_strategy("raw")),
    Candidate(MASKING, parse_strategy("masking")),
    Candidate(UNFOLDED, parse_strategy("masking(fold=false)")),
    Candidate(EVERY_TURN, parse_strategy("masking(schedule=every-turn, gist=0, fold=false)")),
)


def main(*, small: bool = False) -> None:
    loaded = load_runs([folder for folder in FOLDERS if folder.exists()])
    if small:
        runs = sorted(loaded.runs, key=lambda run: (len(run.turns), run.format, run.id))
        loaded = Loaded(tuple(runs[EVERY // 2 :: EVERY]), loaded.problems)
    studies = []
    for prices in PRICES.values():
        settings = StudySettings(prices=prices, candidates=CANDIDATES, hindsight=False)
        studies.append(run_study(loaded, settings, jobs=os.cpu_count() or 1))
    print(f"{len(loaded.runs)} runs of {', '.join(str(folder) for folder in FOLDERS if folder.exists())}")
    heads = [f" {name}: masking |" + (" fold=false | every turn |" if name in FLAGSHIPS else "") for name in PRICES]
    print("| calls | runs |" + "".join(heads))
    print("|---" * (2 + len(PRICES) + 2 * len(FLAGSHIPS)) + "|")
    for line in table(studies):
        print(line)


def table(studies: Iterable[Study]) -> Iterator[str]:
    """Yield Markdown rows: calls, runs, and by study the cost of masking, plain and folded, against what was sent."""
    groups = [costs_by_length(each) for each in studies]
    for start, end in zip(GROUPS, (*GROUPS[1:], None), strict=True):
        runs = len(groups[0][start])
        if not runs:
            continue
        cells = [figures.format_count(runs)]
        for name, costs in zip(PRICES, groups, strict=False):
            for strategy in (MASKING, UNFOLDED) if name in FLAGSHIPS else (MASKING,):
                shares = [each[strategy] for each in costs[start]]
                best, worst = figures.format_change(min(shares)), figures.format_change(max(shares))
                cells.append(f"**{figures.format_change(median(shares))}** ({best} … {worst})")
            if name in FLAGSHIPS:
                cells.append(figures.format_change(median(each[EVERY_TURN] for each in costs[start])))
        label = f"{start} or more" if end is None else f"{start}–{end - 1}" if start else f"under {end}"
        yield f"| {label} | {' | '.join(cells)} |"


def costs_by_length(found: Study) -> dict[int, list[dict[str, float]]]:
    """Return, for each group of `GROUPS`, the cost of each distinct run under each strategy / as it was sent."""
    runs: dict[tuple[str, str], dict[str, float]] = {}
    lengths: dict[tuple[str, str], int] = {}
    distinct: set[tuple[int, float]] = set()
    for row in found.rows:
        key = (row.file, row.trajectory)
        same = (row.calls, round(row.raw_usd, 9))
        if row.strategy == RAW and row.raw_usd and same not in distinct:
            distinct.add(same)
            runs[key] = {}
            lengths[key] = row.calls
        if key in runs and row.to_recorded is not None:
            runs[key][row.strategy] = row.to_recorded
    result: dict[int, list[dict[str, float]]] = {start: [] for start in GROUPS}
    for key, costs in runs.items():
        result[max(start for start in GROUPS if start <= lengths[key])].append(costs)
    return result
