"""What fits into a terminal: whole columns of a table are left out, and no line ends inside a number with its unit."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from elision.lab.report.figures import wrap_text

#: Cells between two columns.
GAP = 2


def open_table(gap: int = 1) -> Table:
    """Return a table without columns, light enough that eight fit into 80 cells. gap: cells behind each."""
    return Table(box=SIMPLE_HEAD, padding=(0, gap, 0, 0), show_edge=False, pad_edge=False, header_style="bold")


def measure_column(column: Sequence[str]) -> int:
    """Cells that a column's heading and cells take, its gap included; a heading may break at its newlines."""
    return GAP + max((cell_len(line) for text in column for line in text.split("\n")), default=0)


def choose_columns(columns: Sequence[Sequence[str]], keep: Sequence[float], room: int) -> list[int]:
    """Places of the columns that fit into `room` cells, those of the highest `keep` first, in their order."""
    kept: list[int] = []
    for place in sorted(range(len(columns)), key=lambda place: -keep[place]):
        room -= measure_column(columns[place])
        if room < 0:
            break
        kept.append(place)
    return sorted(kept)


def print_text(console: Console, text: str | None, style: str = "", *, indent: int = 0) -> None:
    """Print `text`, in which nothing is markup, and no line break parts a number from its unit; None prints nothing."""
    if text:
        lines = wrap_text(text, console.width - indent)
        console.print(Padding(Text("\n".join(lines), style=style), (0, 0, 0, indent), expand=False))
