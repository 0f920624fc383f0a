"""Lines of a digest: selection by weight within a limit, and the text in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from elision.summarizers.prose import clip_line

#: A line that does not fit is tried once more at this many characters.
SHORT = 70
#: Lines that did not fit, after which no more are tried: the budget is used up.
_MISSES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestLine:
    """One line of a section.

    rank:  lines of lower rank are taken first.
    place: its position within its section.
    is_firm: whether it must not be shortened.
    """

    section: str
    text: str
    rank: float
    place: int
    is_firm: bool = False


class LineSelection:
    """Lines taken so far, within a limit in tokens. Candidates are counted one by one, instead of the whole text."""

    def __init__(self, limit: int, count: Callable[[str], int]) -> None:
        self.remaining_tokens = limit
        self._count = count
        self._lines: dict[tuple[str, int], DigestLine] = {}
        self._begun: set[str] = set()

    @property
    def lines(self) -> list[DigestLine]:
        return list(self._lines.values())

    def take_lines(self, lines: Iterable[DigestLine], reserve: int = 0) -> None:
        """Take `lines`, lowest rank first, as long as `reserve` tokens stay free."""
        misses = 0
        for line in sorted(lines, key=lambda line: (line.rank, line.section, line.place)):
            if (line.section, line.place) in self._lines or self._add_line(line, reserve):
                continue
            if not line.is_firm and self._add_line(shorten_line(line), reserve):
                continue
            misses += 1
            if misses > _MISSES:
                return

    def _add_line(self, line: DigestLine, reserve: int) -> bool:
        cost = self._count(f"- {line.text}\n")
        if line.section not in self._begun:
            cost += self._count(f"{line.section}:\n")
        if cost > self.remaining_tokens - reserve:
            return False
        self.remaining_tokens -= cost
        self._lines[line.section, line.place] = line
        self._begun.add(line.section)
        return True


def shorten_line(line: DigestLine) -> DigestLine:
    """Return `line` at SHORT characters."""
    return DigestLine(section=line.section, text=clip_line(line.text, SHORT), rank=line.rank, place=line.place)


def render_lines(title: str, lines: Sequence[DigestLine], order: Sequence[str]) -> str:
    """Return the text of a digest: its title, then the sections in `order`, lines in place."""
    by_section: Mapping[str, list[DigestLine]] = {name: [] for name in order}
    for line in lines:
        by_section[line.section].append(line)
    parts = [title]
    for name, members in by_section.items():
        if members:
            parts.append(f"{name}:")
            parts += [f"- {line.text}" for line in sorted(members, key=lambda line: line.place)]
    return "\n".join(parts)
