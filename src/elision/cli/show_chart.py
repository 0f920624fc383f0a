"""The context of a session over its calls, drawn with blocks: what was sent, in front of what would have been."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from elision.lab.report import figures
from elision.lab.report.report import Words

#: Rows of a chart.
HEIGHT: Final = 6
#: Cells of the scale in front of it.
SCALE: Final = 7
#: Cells of a chart at most, however wide the terminal.
WIDEST: Final = 160
#: Cells of a call at most.
WIDE: Final = 4
#: Raw contexts that are larger by more than this leave the chart at its top, so that what was sent can be seen.
TALLEST: Final = 4.0
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_RAW: Final = "░"


def draw_chart(sent: Sequence[int], raw: Sequence[int], width: int) -> list[Words]:
    """`HEIGHT` rows of at most `width` cells; a call takes a cell or more; where there
    are too many, a cell is the largest of several.

    sent, raw: tokens, call by call, equally many.
    """
    room = max(1, min(width, WIDEST) - SCALE)
    columns = max(1, min(len(sent), room))
    ours, everything = (_fit_columns(values, columns, room) for values in (sent, raw))
    highest = min(max(everything, default=0), int(max(ours, default=0) * TALLEST)) or 1
    return [_draw_row(row, ours, everything, highest) for row in reversed(range(HEIGHT))]


def _fit_columns(values: Sequence[int], columns: int, room: int) -> list[int]:
    """`values` in `columns` stretches, the largest of each; few in several cells each, so that more than a sliver is
    seen."""
    ends = [len(values) * column // columns for column in range(columns + 1)]
    largest = [max(values[start:end], default=0) for start, end in pairwise(ends)]
    cells = max(1, min(WIDE, room // columns))
    return [value for value in largest for _ in range(cells)]


def _draw_row(row: int, ours: Sequence[int], raw: Sequence[int], highest: int) -> Words:
    """Row `row` from below: eighths of a cell for what was sent, a shade where only raw would have reached."""
    cells = []
    for mine, all_ in zip(ours, raw, strict=True):
        filled = _filled_eighths(mine, row, highest)
        shade = _RAW if _filled_eighths(all_, row, highest) >= 4 else " "
        cells.append((_EIGHTHS[filled], "note") if filled else (shade, "quiet"))
    label = {HEIGHT - 1: figures.format_tokens(highest), 0: "0"}.get(row, "")
    return [(f"{label:>{SCALE - 1}} ", "quiet"), *cells]


def _filled_eighths(value: int, row: int, highest: int) -> int:
    """Eighths of row `row` that `value` reaches; what is there at all shows in the lowest row."""
    eighths = round(value * HEIGHT * 8 / highest)
    return max(0, min(8, max(eighths, 1 if value else 0) - row * 8))
