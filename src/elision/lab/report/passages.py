"""Recorded texts as they are shown: controls made visible, and the middle of a long text left out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elision.lab.report.report import Passage

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

#: Fewer hidden rows than this are not worth folding.
LEAST_FOLDED_ROWS = 3
# CSI sequences; OSC, DCS, SOS, PM and APC strings; two-letter escapes.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
# Control characters but newline and tab, and what turns the direction of writing.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    """`text` without anything that a terminal would act on but newlines; tabs are four letters wide."""
    clean = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROLS.sub("", clean).encode("utf-8", "replace").decode("utf-8").expandtabs(4)


def make_visible(text: str) -> str:
    """`text` with a sign for everything that a terminal would act on, and newlines and tabs as they are."""

    def picture_control(found: re.Match[str]) -> str:
        """Unicode's picture of a control character; others by their number."""
        code = ord(found[0])
        if code < 0x20 or code == 0x7F:
            return chr(0x2421 if code == 0x7F else 0x2400 + code)
        return f"<U+{code:04X}>"

    clean = _CONTROLS.sub(picture_control, text.replace("\r\n", "\n"))
    return clean.encode("utf-8", "replace").decode("utf-8")


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
