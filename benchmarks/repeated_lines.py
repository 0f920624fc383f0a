"""Finding repeated lines costs what is new: the same results after 500 and after 5,000 turns.

`python -m benchmarks repeated-lines`
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from time import thread_time

from benchmarks.stitched import runs, stitched
from elision.strategies.repeated_lines import LineIndex
from elision.trajectory.plan import Key
from elision.trajectory.trajectory import Trajectory

EARLY, LATE = 500, 5_000
#: Turns whose results are matched after either history.
PROBED = 100
REPEATS = 5
#: The bar: late work / early work.
BAR = 2.0


def list_texts(run: Trajectory) -> list[tuple[Key, str]]:
    """Return the tool results of `run`, with their keys."""
    return [
        ((turn.index, position), result.text)
        for turn in run.turns
        for position, result in enumerate(turn.observations, start=1)
    ]


def measure_probe(history: Sequence[tuple[Key, str]], probe: Sequence[tuple[Key, str]]) -> tuple[float, int]:
    """Return processor seconds a character of `probe` after `history`, best of `REPEATS`, and the lines indexed.

    Nothing is folded, so that every line of the history is a source: the most that there can be to look through.
    """
    index = LineIndex()
    for key, text in history:
        index.add_observation(key, text)
    lines, seconds = index.line_count, []
    for _ in range(REPEATS):
        gc.collect()
        begun = thread_time()
        for key, text in probe:
            index.find_runs(key, text)
            index.add_observation(key, text)
        for key, _ in probe:
            index.remove_observation(key)
        seconds.append(thread_time() - begun)
    return min(seconds) / sum(len(text) for _, text in probe), lines


def main() -> None:
    parts = [part for part in runs() if len(part.turns) > 60]
    run = stitched(parts, LATE + PROBED + 1)
    texts = list_texts(run)
    probe = [(key, text) for key, text in texts if key[0] > LATE]
    found = {}
    for turns in (EARLY, LATE):
        history = [(key, text) for key, text in texts if key[0] <= turns]
        found[turns], lines = measure_probe(history, probe)
        print(f"  after {turns:5,} turns, {lines:7,} lines indexed: {found[turns] * 1e9:4.0f} ns a character")
    ratio = found[LATE] / found[EARLY]
    print(f"Matching {PROBED} turns after {LATE:,} turns / after {EARLY}: {ratio:.2f} x (bar {BAR:.0f} x)")
