"""Recorded texts as they are shown: in rows, with the middle of a long text left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elision.lab.report.report import Passage
from elision.trajectory.control_characters import make_visible

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

#: Fewer hidden rows than this are not worth folding.
LEAST_FOLDED_ROWS = 3


@dataclass(frozen=True, slots=True)
class FoldedText:
    """A text as it is shown: its beginning and end; between them `rows` rows, `letters` letters, are left out."""

    head: str
    tail: str = ""
    rows: int = 0
    letters: int = 0


def fold_text(text: str, head: int, tail: int, width: int) -> FoldedText:
    """`text` in at most `head` + `tail` rows of `width` letters; whole where fewer than 3 rows would be left out."""
    rows = [row for line in text.split("\n") for row in _wrap_line(line, width)]
    hidden = len(rows) - head - tail
    if hidden < LEAST_FOLDED_ROWS:
        return FoldedText(text)
    first = "".join(rows[:head]).removesuffix("\n")
    last = "".join(rows[head + hidden :]).removesuffix("\n")
    return FoldedText(first, last, hidden, len(text) - len(first) - len(last))


def _wrap_line(line: str, width: int) -> Iterator[str]:
    """The rows that a line takes, broken at spaces where there are some; the last of them ends with its newline."""
    start = 0
    while len(line) - start > width:
        space = line.rfind(" ", start + 1, start + width + 1)
        end = start + width if space < 0 else space + 1
        yield line[start:end]
        start = end
    yield f"{line[start:]}\n"


def fold_passage(passage: Passage, width: int) -> FoldedText:
    """Return the text of `passage` in rows of `width` letters, as much of it as it asks for."""
    clean = make_visible(passage.text).expandtabs(4).strip("\n")
    return FoldedText(clean) if passage.rows is None else fold_text(clean, *passage.rows, width=width)


def build_passage(passage: Passage, width: int, style: str) -> Text:
    """Return a passage for a terminal of `width` cells, with a count in place of what is left out."""
    from rich.text import Text

    cut = fold_passage(passage, width)
    if not (cut.head.strip() or cut.rows):
        return Text("(empty)", style="italic bright_black")
    line = Text(cut.head, style=style)
    if cut.rows:
        line.append(f"\n⋯ {cut.rows:,} more rows, {cut.letters:,} characters ⋯\n", style="italic bright_black")
        line.append(cut.tail)
    return line


@dataclass(frozen=True, slots=True)
class BarredBlock:
    """`body` with `mark` in front of every row."""

    body: RenderableType
    mark: str
    colour: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment
        from rich.style import Style

        width = options.max_width - len(self.mark) - 1
        style = Style.parse(self.colour)
        for row in console.render_lines(self.body, options.update(width=width), pad=False):
            yield Segment(f"{self.mark} ", style)
            yield from row
            yield Segment.line()
