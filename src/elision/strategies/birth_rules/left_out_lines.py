"""Lines that a result is shown without: one line in their place says how many, of what, and how to recall them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

#: Fewer lines in a row stay: a note is hardly shorter.
LEAST_LINES: Final = 3
#: Characters of a line that patterns look at.
LOOKED_AT: Final = 400


def leave_out_lines(text: str, is_noise: Callable[[str], bool], what: str, handle: str) -> str:
    """Return `text` with a note in place of each `LEAST_LINES` or more lines in a row that are noise.

    is_noise: is given a line without its line end, at most `LOOKED_AT` characters of it. what: the lines, in a few
    words. handle: of the whole result; "" to name none.
    """
    lines = text.split("\n")
    flags = [is_noise(line[:LOOKED_AT].rstrip("\r")) for line in lines]
    return "\n".join(_join_kept(lines, flags, what, handle))


def _join_kept(lines: Sequence[str], flags: Sequence[bool], what: str, handle: str) -> Iterator[str]:
    start = 0
    for is_noise, group in groupby(flags):
        count = sum(1 for _ in group)
        if is_noise and count >= LEAST_LINES:
            yield write_note(f"{count:,} lines of {what}", handle)
        else:
            yield from lines[start : start + count]
        start += count


def write_note(what: str, handle: str) -> str:
    """Return the line that stands for what is left out. handle: of the whole result; "" to name none."""
    name = f": {handle}" if handle else ""
    return f"[{what} left out{name}]"
