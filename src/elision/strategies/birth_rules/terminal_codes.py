"""What a terminal acts on and does not show: colours, erased and overwritten text, progress that is counted up."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Final

from elision.strategies.birth_rules.left_out_lines import LEAST_LINES, write_note

#: Colours and cursor moves; titles and other commands, but not links (OSC 8), whose address is no decoration;
#: character sets; a single character after the escape.
_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,10}[@-~]|\](?!8;)[^\x07\x1b\n]{0,2000}(?:\x07|\x1b\\)|[()][0-9A-B]|[=>78cDEHMNOZ])"
)
#: A character that is printed over, as manual pages do for bold.
_OVERSTRUCK: Final = re.compile(r"[^\n\x08]\x08")
#: What progress is written with: a share, a count of a total, a bar, a mark that turns.
_PROGRESS: Final = re.compile(
    r"\d\s?%|\d\s?/\s?\d|[━\u2580-\u259f⣿]|[=#]{3,}>|\[[=#>. -]{5,}\]|\.{10}|[\u2801-\u28ff]|^[\s|/\\-]?$"
)
#: What changes from one line of progress to the next: numbers and their units, bars.
_CHANGING: Final = re.compile(
    r"\d[\d.,:]*\s?(?:[kKMGT]?i?[Bb](?:it)?(?:/s)?|ms|[smhd]\b|it/s|s/it)?|[━\u2580-\u259f⣿=#>.\-?|/\\\u2801-\u28ff]+|\beta\b"
)
_BLANKS: Final = re.compile(r"\s+")
#: Characters of a line by which progress is recognized.
_LOOKED_AT: Final = 200


def clean_terminal_text(text: str, handle: str = "") -> str:
    """Return `text` as a terminal shows it, with the last line of each progress that is printed line by line."""
    if "\x1b" in text:
        text = _ESCAPE.sub("", text)
    if "\x08" in text:
        text = _OVERSTRUCK.sub("", text)
    if "\r" in text:
        text = "\n".join(_drop_overwritten(line) for line in text.split("\n"))
    return _drop_progress(text, handle)


def _drop_overwritten(line: str) -> str:
    """Return `line` without progress that a later part of it overwrites. Parts that are no progress stay."""
    body = line.rstrip("\r")
    if "\r" not in body:
        return line
    parts = body.split("\r")
    kept = [part for part, later in pairwise(parts) if not _is_overwritten(part, later)]
    return "\r".join([*kept, parts[-1]]) + line[len(body) :]


def _is_overwritten(part: str, later: str) -> bool:
    """Whether `later` shows what `part` does, or the same progress as it went on."""
    if later.startswith(part.rstrip()):
        return True
    start, end = part[:_LOOKED_AT], later[:_LOOKED_AT]
    is_progress = _PROGRESS.search(start) is not None and _PROGRESS.search(end) is not None
    return is_progress and _find_label(start) == _find_label(end)


def _find_label(line: str) -> str:
    """Return the words before the first number or bar."""
    return _CHANGING.split(line, maxsplit=1)[0].strip()


def _drop_progress(text: str, handle: str) -> str:
    """Return `text` with the last of each `LEAST_LINES` or more lines in a row that differ in numbers and bars."""
    lines = text.split("\n")
    kept: list[str] = []
    run: list[str] = []
    shape = ""
    for line in lines:
        new = _find_shape(line)
        if run and (not new or new != shape):
            kept += _shorten_run(run, handle)
            run = []
        if new:
            run.append(line)
        else:
            kept.append(line)
        shape = new
    return "\n".join([*kept, *_shorten_run(run, handle)])


def _shorten_run(run: list[str], handle: str) -> list[str]:
    if len(run) <= LEAST_LINES:
        return run
    return [write_note(f"{len(run) - 1:,} lines of progress", handle), run[-1]]


def _find_shape(line: str) -> str:
    """Return what stays the same while progress counts up; "" for a line that shows none."""
    start = line[:_LOOKED_AT]
    if "%" not in start and not any(mark in start for mark in "━█"):
        return ""
    if _PROGRESS.search(start) is None:
        return ""
    return _BLANKS.sub(" ", _CHANGING.sub(" ", start)) or " "
