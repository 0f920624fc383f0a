"""What strategies and runs are called in a report: short, unique, and with nothing in them that could act."""

from __future__ import annotations

import os.path
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import count

from elision.errors import SpecError
from elision.lab.report.figures import neutralize_text
from elision.lab.results import BILLED, RECORDED, Row, Study, is_on_top
from elision.strategies.presets import PRESETS
from elision.strategies.spec import parse_strategy

#: Cells; `summarization, every turn` fits.
LONGEST_STRATEGY = 26
#: Characters of a run's name that are kept; a path is longer only if somebody means harm.
LONGEST_RUN = 240

#: Characters of a long label kept before the ellipsis: what is tried first, and then to tell it from others.
_HEADS = (15, LONGEST_STRATEGY - 1, 8, 1)


def shorten_strategies(labels: Sequence[str]) -> dict[str, str]:
    """A short and unique name for each label: itself if short, else with an ellipsis where others are the same."""
    result: dict[str, str] = {}
    for label in labels:
        others = [other for other in labels if other != label]
        result[label] = next(name for name in _propose_names(label, others) if name not in result.values())
    return result


def _propose_names(label: str, others: Sequence[str]) -> Iterator[str]:
    """What `label` may be called, the best first; without end. Numbers come last."""
    for head in _HEADS:
        name = _shorten_label(label, head)
        if all(name != _shorten_label(other, head) for other in others):
            yield name
    name = _shorten_label(label, _HEADS[0])
    yield name
    yield from (f"{name[: LONGEST_STRATEGY - 5]} {number}" for number in count(2))


def _shorten_label(label: str, head: int) -> str:
    """`label` if it is short, else its first `head` characters and as much of its end as there is room for."""
    text = neutralize_text(label)
    if len(text) <= LONGEST_STRATEGY:
        return text
    tail = LONGEST_STRATEGY - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :]}"


def list_shortened(study: Study) -> list[tuple[str, str]]:
    """(short name, full label) of every strategy whose name was shortened."""
    return [
        (name, neutralize_text(label))
        for label, name in shorten_strategies(study.strategies).items()
        if name != neutralize_text(label)
    ]


def find_family(label: str) -> str:
    """The kind of a strategy: `hybrid` of `hybrid, every turn`, `hybrid(window=10)` or the preset `paper-hybrid`."""
    name = _find_name(label)
    return _find_name(PRESETS.get(name, name))


def _find_name(label: str) -> str:
    """What a label begins with: the name of a strategy or preset."""
    return re.split(r"[\s(,]", label.strip(), maxsplit=1)[0]


@cache
def is_raw(label: str) -> bool:
    """Return whether the strategy sends everything, as the yardstick does: `raw`, without folds."""
    if find_family(label) != "raw":
        return False
    try:
        strategy = parse_strategy(label)
    except SpecError:
        # A name that the caller gave.
        return True
    return not strategy.fold


def is_sent(label: str) -> bool:
    """Return whether the row is of what happened, and not of a strategy."""
    return label in (RECORDED, BILLED)


def is_hindsight(label: str) -> bool:
    """Whether the strategy knows the future, so that it cannot be run live."""
    return "hindsight" in label


def is_every_turn(label: str) -> bool:
    """Whether the strategy hides at every turn, as in the papers."""
    if "schedule=" not in label and "every-turn" in PRESETS.get(_find_name(label), ""):
        return True
    return "every turn" in label or "every-turn" in label


#: Headings of the groups of strategies, in the order in which a report shows them.
GROUPS = (
    "what happened",
    "nothing hidden",
    "as in the papers",
    "Elision (cache-aware)",
    "on top of the agent's own",
    "yardstick",
)
#: Of the second group, where the agents condensed their own history.
NEVER_SENT = "nothing hidden (never sent)"


def find_group(label: str) -> str:
    """Return the heading, one of `GROUPS`, under which a report shows the strategy."""
    if is_sent(label):
        return GROUPS[0]
    if is_raw(label):
        return GROUPS[1]
    if is_hindsight(label):
        return GROUPS[5]
    if is_on_top(label):
        return GROUPS[4]
    if is_every_turn(label):
        return GROUPS[2]
    return GROUPS[3]


def group_rows(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Return the rows under the headings of their groups; under no heading if there are fewer than three groups."""
    grouped = [(name, [row for row in rows if find_group(row.strategy) == name]) for name in GROUPS]
    filled = [(name, members) for name, members in grouped if members]
    if len(filled) > 2:
        is_hypothesis = any(is_raw(row.strategy) and row.recorded_usd and not row.is_as_sent for row in rows)
        return [(NEVER_SENT if name == GROUPS[1] and is_hypothesis else name, members) for name, members in filled]
    return [("", list(rows))]


def name_runs(rows: Iterable[Row]) -> dict[tuple[str, str], str]:
    """Return (file, trajectory) -> a name: the path after the shared folder, and the id in a file of several."""
    keys = list(dict.fromkeys((row.file, row.trajectory) for row in rows))
    files = [file for file, _ in keys]
    start = _measure_shared_path(files)
    runs_in = Counter(files)
    names = {}
    for file, run in keys:
        name = file[start:] if file and runs_in[file] == 1 else f"{file[start:]} {run}".strip()
        name = neutralize_text(name)
        # The end is kept: that is where paths differ.
        names[file, run] = name if len(name) <= LONGEST_RUN else f"…{name[1 - LONGEST_RUN :]}"
    return names


def _measure_shared_path(files: Sequence[str]) -> int:
    """Length of the folder, slash included, that all `files` lie in."""
    folders = {os.path.dirname(file) for file in files}
    if len({os.path.isabs(folder) for folder in folders}) != 1 or "" in folders:
        return 0
    common = os.path.commonpath(folders)
    if common:
        return len(common) + (not common.endswith(os.sep))
    return 0
