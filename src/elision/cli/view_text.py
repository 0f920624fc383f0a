"""Recorded text, made fit for a terminal: nothing that it would act on, and no more than a screen can bear."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

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
