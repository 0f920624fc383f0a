"""Fitting a record into its limit: which lines stay, decided by weight, written in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from elision.summarizers.prose import clip

#: A line that does not fit is tried once more at this many characters.
SHORT = 70
#: Lines that did not fit, after which no more are tried: the budget is used up.
_MISSES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a section.

    rank:  lower stays longer.
    place: where it stands within its section.
    firm:  whether it must not be shortened.
    """

    section: str
    text: str
    rank: float
    place: int
    firm: bool = False


class Page:
    """Lines taken so far, against a limit in tokens. Every candidate is counted once or twice, never the whole text."""

    def __init__(self, limit: int, count: Callable[[str], int]) -> None:
        self.left = limit
        self._count = count
        self._lines: dict[tuple[str, int], Line] = {}
        self._begun: set[str] = set()

    @property
    def lines(self) -> list[Line]:
        return list(self._lines.values())

    def take(self, lines: Iterable[Line], reserve: int = 0) -> None:
        """Take `lines`, lowest rank first, as long as `reserve` tokens stay free."""
        misses = 0
        for line in sorted(lines, key=lambda line: (line.rank, line.section, line.place)):
            key = (line.section, line.place)
            if key in self._lines:
                continue
            fits = self._add(key, line, reserve) or (not line.firm and self._add(key, shortened(line), reserve))
            misses += not fits
            if misses > _MISSES:
                return

    def _add(self, key: tuple[str, int], line: Line, reserve: int) -> bool:
        cost = self._count(f"- {line.text}\n")
        if line.section not in self._begun:
            cost += self._count(f"{line.section}:\n")
        if cost > self.left - reserve:
            return False
        self.left -= cost
        self._lines[key] = line
        self._begun.add(line.section)
        return True


def shortened(line: Line) -> Line:
    """`line` at SHORT characters."""
    return Line(section=line.section, text=clip(line.text, SHORT), rank=line.rank, place=line.place)


def written(title: str, lines: Sequence[Line], order: Sequence[str]) -> str:
    """The text of a digest: its title, then the sections in `order`, lines in place."""
    by_section: Mapping[str, list[Line]] = {name: [] for name in order}
    for line in lines:
        by_section[line.section].append(line)
    parts = [title]
    for name, members in by_section.items():
        if members:
            parts.append(f"{name}:")
            parts += [f"- {line.text}" for line in sorted(members, key=lambda line: line.place)]
    return "\n".join(parts)
