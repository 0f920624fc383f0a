"""Lines of a text, each with the line number that a tool put in front of it kept apart."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

from elision.trajectory.gutters import find_gutters
from elision.trajectory.plan import Gutter
from elision.trajectory.text_pieces import digest_text

#: Characters of a line that is kept itself; a longer one is kept as its hash.
_LONG_LINE: Final = 400
#: Digits of a line number. Python reads no number of more than 4,300.
_MOST_DIGITS: Final = 9

#: A number that a line begins with, whatever it is.
_LEADING: Final = re.compile(
    rf"^((?=[^\s:]*[./])[^\s:]+:|[ \t]*[Ll]ine |[ \t]*)0*(\d{{1,{_MOST_DIGITS}}})(?!\d)", re.MULTILINE
)

#: A line without its number, or its hash; None for a line that is not shown.
Body: TypeAlias = str | bytes | None


class LineNumber(NamedTuple):
    """What is in front of a line: a path or blanks, the number, the mark after it."""

    lead: str
    number: int
    mark: str


@dataclass(frozen=True, slots=True)
class NumberedLines:
    """The lines of `text`: `bodies`, and `numbers` of those that have one, by index."""

    text: str
    bodies: Sequence[Body]
    numbers: Mapping[int, LineNumber]

    def shows_misleading_numbers(self, gutter: Gutter | None) -> bool:
        """Return whether numbers in front of lines do not tell which lines are meant.

        gutter: by which the lines are named; None if they are counted, which other lines' numbers contradict.
        """
        if gutter is None:
            return bool(self.numbers)
        prefix = _simplify_lead(gutter.prefix)
        return not _find_repeated_numbers(self.text).isdisjoint([(prefix, gutter.first), (prefix, gutter.last)])

    def find_gutter(self, index: int, lines: int = 1) -> Gutter | None:
        """Return the gutter of a run of `lines` lines from `index` on; None if the first one has no number."""
        found = self.numbers.get(index)
        if found is None:
            return None
        prefix = found.lead.lstrip(" ")
        if found.lead and not prefix:
            width = len(found.lead) + len(str(found.number))
        else:
            width = 0
        return Gutter(found.number, self.numbers[index + lines - 1].number, found.mark, prefix, width)


def split_lines(text: str) -> NumberedLines:
    """Split `text` at "\\n" alone, and take the line numbers from its lines."""
    lines = text.split("\n")
    bodies: list[Body] = list(lines)
    numbers: dict[int, LineNumber] = {}
    index = seen = 0
    for match in find_gutters(text):
        lead, digits, mark = match.groups()
        begin = match.start(1)
        index += text.count("\n", seen, begin)
        seen = begin
        if len(digits) <= _MOST_DIGITS and (digits[0] != "0" or digits == "0"):
            numbers[index] = LineNumber(lead, int(digits), mark)
            line = bodies[index]
            assert isinstance(line, str)
            bodies[index] = line[match.end() - begin :]
    if max(map(len, lines)) > _LONG_LINE:
        bodies = [digest_text(body) if isinstance(body, str) and len(body) > _LONG_LINE else body for body in bodies]
    return NumberedLines(text, bodies, numbers)


@lru_cache(maxsize=16)
def _find_repeated_numbers(text: str) -> frozenset[tuple[str, int]]:
    """Return numbers that several lines begin with, also where they are part of the text: a reader cannot tell."""
    counts = Counter((_simplify_lead(match[1]), int(match[2])) for match in _LEADING.finditer(text))
    return frozenset(number for number, count in counts.items() if count > 1)


def _simplify_lead(lead: str) -> str:
    """Return what a reference says of `lead`: a path, or nothing."""
    lead = lead.strip()
    if lead.lower() == "line":
        return ""
    return lead
