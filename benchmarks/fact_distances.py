"""How far back the facts are that agents use: turns between the newest result that shows one and its first use.

`python -m benchmarks fact-distances` prints shares, over the shared recordings or else the samples. The closed loop
draws from `distances.json`, which this writes over all of them: `python -m benchmarks.fact_distances --write`.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from benchmarks.recordings import ROOT, load_recordings
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn

TABLE: Final = ROOT / "src/elision/testing/loop/distances.json"
LIMITS: Final = (1, 3, 5, 10, 20, 40, 80)
#: Identifiers, paths, and numbers of three digits or more.
FACT: Final = re.compile(
    r"[A-Za-z_]\w*(?:[._/-]\w+)+|[A-Za-z]+_[A-Za-z_0-9]+|[a-z]+[A-Z]\w+|\b\d{3,}\b|#?[A-Z]{1,3}\d{3,}"
)


def measure_distances(runs: Iterable[Trajectory]) -> Counter[int]:
    """Count first uses by the turns since a result showed the fact."""
    found: Counter[int] = Counter()
    for run in runs:
        said = set(FACT.findall(" ".join(message.text for message in run.head.messages)))
        shown: dict[str, int] = {}
        for number, turn in enumerate(run.turns):
            words = set(FACT.findall(_list_words(turn)))
            found.update(number - shown[word] for word in words - said if word in shown)
            said |= words
            for result in turn.observations:
                shown.update(dict.fromkeys(FACT.findall(result.text), number))
    return found


def _list_words(turn: Turn) -> str:
    return " ".join([turn.text, *(action.arguments for action in turn.actions)])


def main(*, small: bool = False) -> None:
    found = measure_distances(load_recordings(small=small))
    shares = " ".join(
        f">{limit} {sum(n for d, n in found.items() if d > limit) / found.total():.1%}" for limit in LIMITS
    )
    print(f"{found.total()} first uses; turns back: {shares}")


def write_table(path: Path = TABLE) -> None:
    """Write the counts with what the table says of their source."""
    known = json.loads(path.read_text(encoding="utf-8"))
    found = measure_distances(load_recordings())
    counts = {str(distance): count for distance, count in sorted(found.items())}
    text = json.dumps({**known, "uses": found.total(), "counts": counts}, indent=1)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_table() if sys.argv[1:] == ["--write"] else main()
