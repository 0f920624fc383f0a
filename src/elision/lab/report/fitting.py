"""Which columns of a table fit into a terminal: whole columns are left out, never a part of a number or heading."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

#: Cells between two columns.
GAP = 2


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
