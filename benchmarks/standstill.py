"""How often a guard would have said that a run stands still, and how often it was right, on recorded runs."""

from __future__ import annotations

import logging

from benchmarks.recordings import CORPUS, SAMPLES
from elision.formats.registry import read_runs
from elision.strategies.guards import Guards
from elision.trajectory.trajectory import Trajectory

WINDOWS = (3, 4, 5, 6, 8)


def main() -> None:
    logging.disable(logging.WARNING)
    found = runs()
    where = "the corpus" if CORPUS.exists() else "the sample runs"
    print(f"{len(found)} runs of {where}, {sum(len(run.turns) for run in found):,} turns.")
    print("window  runs with a hint  hints  went on  never ended")
    for window in WINDOWS:
        hints = [spells(run, window) for run in found]
        ended = sum(went for each in hints for went in each)
        count = sum(map(len, hints))
        print(f"{window:>6}{sum(map(bool, hints)):>18}{count:>7}{ended:>9}{count - ended:>13}")


def runs() -> list[Trajectory]:
    """Every recorded run that has turns."""
    source = CORPUS if CORPUS.exists() else SAMPLES
    return [found for found in read_runs(source) if isinstance(found, Trajectory) and found.turns]


def spells(run: Trajectory, window: int) -> list[bool]:
    """For each time that the guard began to hint, whether the run went on by itself afterwards."""
    watch, hinted, went = Guards(plateau_window=window).start_watch(), False, list[bool]()
    for turn in run.turns:
        watch.add_turn(turn)
        hints = watch.find_hint() is not None
        if hints and not hinted:
            went.append(False)
        elif hinted and not hints:
            went[-1] = True
        hinted = hints
    return went
