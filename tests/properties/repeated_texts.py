"""Generated observations that repeat each other's lines, with other line numbers and other line ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Final, NamedTuple

#: How a piece's lines are written: as they are, with carriage returns, or numbered as tools do.
FORMS: Final = (
    "{line}",
    "{line}",
    "{line}\r",
    "{number:6}\t{line}",
    "{number:6}→{line}",
    "{number}:{line}",
    "{number}|{line}",
    "{number}-{line}",
    "src/a.py:{number}:{line}",
    "Line {number}:{line}",
    "0{number}:{line}",
    "\x1b[32m{number}\x1b[0m:{line}",
)
LINES: Final = (
    "def run(self):",
    "    return 1",
    "",
    "}",
    "}",
    "",
    "a\u2028b\x0cc\x85d",
    "[same as lines 1–4 of t1.1]",
    "[same as lines numbered 7–12 of t1.1 (read a.py), here 9–14]",
    "12:34:56 started",
    "7\tseven",
    "     8\teight",
    "x" * 500,
    "x" * 500 + "y",
    "lone \ud800 surrogate",
    "\x1b[31mred\x1b[0m",
    "50%\r100%",
    "{0} %s \\1",
    "9" * 30 + ":nine",
    "观察结果",
)


class Piece(NamedTuple):
    """Some of `LINES`, from `start` on, around the end if need be; `step` is added to `number` for each line."""

    form: int
    start: int
    count: int
    number: int
    step: int


def write_text(pieces: Iterable[Piece], ending: str) -> str:
    """Return an observation's text: the lines of all pieces, and what follows the last one."""
    lines = []
    for piece in pieces:
        form = FORMS[piece.form % len(FORMS)]
        for index in range(piece.count):
            line = LINES[(piece.start + index) % len(LINES)]
            lines.append(form.format(number=piece.number + index * piece.step, line=line))
    return "\n".join(lines) + ending


def draw_texts(random: Random) -> Sequence[str]:
    """Draw some observations of a session."""
    return [
        write_text([_draw_piece(random) for _ in range(random.randint(0, 4))], random.choice(("", "\n", "\r\n")))
        for _ in range(random.randint(2, 5))
    ]


def _draw_piece(random: Random) -> Piece:
    form, start = random.randrange(len(FORMS)), random.choice((0, 2, 6, 10, 14))
    return Piece(form, start, random.randint(0, 12), random.randint(0, 120), random.choice((1, 1, 1, 0, 3)))
