"""How numbers and names look in a report.

Numbers have few digits and one notation, with a dash for what is not known. Names of strategies and runs are short and
unique, and nothing in them could act.
"""

from __future__ import annotations

import math
import os.path
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import count
from textwrap import wrap

from elision.errors import SpecError
from elision.lab.results import BILLED, RECORDED, Row, is_on_top
from elision.strategies.spec import PRESETS, parse_strategy
from elision.telemetry.context_report import MINUS

NOTHING = "–"
#: Blanks at which no line may break: those of `96 %` and `× raw`.
_UNBROKEN = re.compile(r"(?<=\d) (?=%)|(?<=×) ")


def bind_units(text: str) -> str:
    """Return `text` with a no-break space between a number and its unit."""
    return _UNBROKEN.sub("\xa0", text)


def wrap_text(text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` letters, a number and its unit on one; blanks stay plain blanks.

    For rich, which breaks lines at no-break spaces too.
    """
    return [line.replace("\xa0", " ") for line in wrap(bind_units(text), max(1, width), break_on_hyphens=False)]


def format_usd(value: float | None) -> str:
    """`$1,234`, `$12.34`, `$0.123`, `$0.0012`: two decimals, more where they would say too little."""
    if value is None or not math.isfinite(value):
        return NOTHING
    if value >= 1000:
        return f"${value:,.0f}"
    if value >= 1 or value == 0:
        return f"${value:.2f}"
    if value < 0.0001:
        return "<$0.0001"
    if value >= 0.1:
        return f"${value:.3f}"
    return f"${value:.4f}"


def format_rate(value: float) -> str:
    """USD per million tokens: `$3`, `$3.75`, `$0.30`, `$0.025`."""
    if value == int(value):
        return f"${value:,.0f}"
    digits = 2 if round(value, 2) == round(value, 6) else 3
    return f"${value:.{digits}f}"


def format_multiple(value: float | None) -> str:
    """A multiple: `0.53`."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{value:,.2f}"


def format_share(share: float | None) -> str:
    """A share, at least 0: `96 %`; one decimal where a whole number would round to all or nothing."""
    if share is None or not math.isfinite(share):
        return NOTHING
    value = share * 100
    if 0 < value < 0.05:
        return "<0.1 %"
    if 99.5 <= value < 100:
        return f"{math.floor(value * 10) / 10:.1f} %"
    if 0 < value < 0.95:
        return f"{value:.1f} %"
    return f"{value:,.0f} %"


def is_unchanged(to_raw: float) -> bool:
    """Whether a multiple is shown as `±0 %`."""
    return abs(to_raw - 1) < 0.0005


def format_change(to_raw: float | None) -> str:
    """What a multiple of the price means: `−47 %`, `+7 %`, `−0.5 %`; `±0 %` for less than a twentieth of a percent."""
    if to_raw is None or not math.isfinite(to_raw):
        return NOTHING
    share = to_raw - 1
    if is_unchanged(to_raw):
        return "±0 %"
    return f"{MINUS if share < 0 else '+'}{format_share(abs(share))}"


def format_change_range(low: float, high: float) -> str:
    """What two multiples of the price mean: `−14 to +20 %`; one change where both look the same."""
    first, last = format_change(low), format_change(high)
    return first if first == last else f"{first.removesuffix(' %')} to {last}"


def format_tokens(value: int) -> str:
    """`950`, `12.3k`, `123k`, `1.2M`."""
    for size, unit in ((1_000_000, "M"), (1_000, "k")):
        if value >= 0.9995 * size:
            scaled = value / size
            if scaled < 99.95:
                return f"{scaled:.1f}{unit}"
            return f"{scaled:,.0f}{unit}"
    return str(value)


def format_count(value: int) -> str:
    return f"{value:,}"


def format_turns(value: float) -> str:
    """A number of turns: `0.4`, `14`, `1,240`."""
    if value >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.1f}"


def format_size(count: int) -> str:
    """Bytes: `12 B`, `3.4 kB`, `56 MB`."""
    value = float(count)
    unit = "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value = value / 1_000
        unit = larger
    if unit == "B" or value >= 9.95:
        return f"{value:.0f} {unit}"
    return f"{value:.1f} {unit}"


def format_duration(seconds: float) -> str:
    """A span in the largest unit that fits at least once: `3 d`, `5 h`, `40 s`; weeks from the eighth on."""
    for unit, length, least in (("w", 604_800, 8), ("d", 86_400, 1), ("h", 3_600, 1), ("min", 60, 1)):
        if seconds >= length * least:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def format_signed_usd(usd: float) -> str:
    """USD that may be negative: `−$0.12`."""
    return f"{MINUS}{format_usd(-usd)}" if usd < 0 else format_usd(usd)


def format_plural(number: int, one: str, many: str = "") -> str:
    return f"{format_count(number)} {one if number == 1 else many or one + 's'}"


def neutralize_text(text: str) -> str:
    """`text` without what could steer a terminal or turn a line around: controls, lone surrogates, bidi marks."""
    return "".join(char if char.isprintable() or char == "\xa0" else "·" for char in text)


# -- names of strategies and runs -------------------------------------------------------------------------------------


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
