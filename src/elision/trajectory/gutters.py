"""Line numbers that a tool put in front of lines: `cat -n`, editors, `grep -n`. They name no fact of the task.

    345:def run(self):                 an editor, grep -n
    src/app.py:345:def run(self):      grep -rn
    Line 345:def run(self):            search tools
       345<tab>def run(self):          cat -n, nl, editors
       345→def run(self):              editors
    345|def run(self):                 editors
    345-    return                     grep -C

Other numbers stay: `app.py:345: error: …`, `404: Not Found`, `2026-11-22 10:15:00`, `4096<tab>./src`, `101 | Ada`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

#: A path has a dot or a slash; looked ahead for, so that a long line without a colon is read twice and no more.
_NUMBERED: Final = re.compile(
    r"^((?=[^\s:]*[./])[^\s:]+:|[Ll]ine | *)(\d+)([:|\t\u2192-])",
    re.MULTILINE,
)
#: What follows the colon in front of a line of code: never a digit, and no single blank, which is a sentence's.
_CODE: Final = re.compile(r"(?! \S)\D|$")
#: `cat -n` and editors that follow it fill up to so many characters.
_WIDTH: Final = 6
#: So many lines numbered one after the other are a listing, whatever follows the numbers.
_LISTING: Final = 3


def strip_gutters(text: str) -> str:
    """Return `text` with a blank in place of each line number in a gutter."""
    parts = []
    end = 0
    for match in find_gutters(text):
        parts += [text[end : match.start(2)], " "]
        end = match.end()
    return "".join([*parts, text[end:]])


def find_gutters(text: str) -> Iterator[re.Match[str]]:
    """Yield the gutters of `text`, in order. Groups: what is before the number, the number, the mark after it."""
    numbered = list(_NUMBERED.finditer(text))
    for run in _find_listings(text, numbered):
        for match in run:
            if _is_gutter(text, match, len(run)):
                yield match


def _find_listings(text: str, numbered: Sequence[re.Match[str]]) -> Iterator[list[re.Match[str]]]:
    """`numbered` in runs of neighbouring lines whose numbers follow each other."""
    run: list[re.Match[str]] = []
    for match in numbered:
        if run and not _is_next_line(text, run[-1], match):
            yield run
            run = []
        run.append(match)
    if run:
        yield run


def _is_next_line(text: str, before: re.Match[str], match: re.Match[str]) -> bool:
    """Whether the line of `match` comes right after that of `before`, with the next number."""
    return (
        int(match[2][-9:]) == int(before[2][-9:]) + 1
        and match[1].strip() == before[1].strip()
        and text.find("\n", before.end(), match.start()) == match.start() - 1
    )


def _is_gutter(text: str, match: re.Match[str], run: int) -> bool:
    """Whether the number of `match` is a gutter's. run: how many lines in a row are numbered one after the other."""
    lead, number, mark = match.groups()
    if mark == "\u2192":
        return True
    if mark == "\t":
        return len(lead) + len(number) >= _WIDTH and not lead.strip()
    if mark in "|-":
        return run > 1
    return run >= _LISTING or _CODE.match(text, match.end()) is not None
