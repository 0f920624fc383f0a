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
from itertools import chain
from typing import Final

from elision.trajectory.text_pieces import PIECE, iter_line_matches

#: A path has a dot or a slash; looked ahead for, so that a long line without a colon is read twice and no more.
_GUTTER: Final = r"((?=[^\s:]*[./])[^\s:]+:|[Ll]ine | *+)(\d+)([:|\t\u2192-])"
_FIRST: Final = re.compile(_GUTTER)
#: Begins with a character, not with "^", and so it is found three times as fast.
_LATER: Final = re.compile(r"\n" + _GUTTER)
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


def find_gutters(text: str) -> list[re.Match[str]]:
    """Return the gutters of `text`, in order.

    Groups: what is before the number, the number, the mark after it. A line begins where the first group does.
    """
    # Runs of neighbouring lines whose numbers follow each other.
    runs: list[list[re.Match[str]]] = []
    wanted = -1
    first = _FIRST.match(text)
    start = first.end() if first else 0
    later = _LATER.finditer(text, start) if len(text) <= PIECE else iter_line_matches(_LATER, text, start)
    for match in chain([first] if first else [], later):
        number = int(match[2][-9:])
        before = runs[-1][-1] if runs else match
        if (
            number == wanted
            and match[1].strip() == before[1].strip()
            and text.find("\n", before.end(), match.start(1)) == match.start(1) - 1
        ):
            runs[-1].append(match)
        else:
            runs.append([match])
        wanted = number + 1
    gutters = []
    for run in runs:
        for match in run:
            lead, digits, mark = match.groups()
            if mark == "\t":
                is_gutter = len(lead) + len(digits) >= _WIDTH and not lead.strip()
            elif mark in "|-":
                is_gutter = len(run) > 1
            else:
                is_code = mark == "\u2192" or _CODE.match(text, match.end()) is not None
                is_gutter = is_code or len(run) >= _LISTING
            if is_gutter:
                gutters.append(match)
    return gutters
