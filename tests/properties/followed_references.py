"""Following a reference as the page on folding says: from the line and the results that a view shows, nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from elision.trajectory.plan import Edit, FoldedRun, Gutter
from tests.strategies.unfolding import cut_number

REFERENCE: Final = re.compile(
    r"\[same as (?:lines (?:numbered (?P<prefix>\S*?:)?(?P<first>\d+)–(?P<last>\d+)|(?P<top>\d+)–(?P<end>\d+)"
    r"(?: from the top)?) of )?(?P<handle>t\d+\.\d+)(?: \((?P<call>.*)\))?"
    r"(?:, here (?:numbered )?(?P<here_prefix>\S*?:)?(?P<here_first>\d+)–(?P<here_last>\d+))?\]"
)


def check_references(fold: Edit, own: str, shown: Mapping[str, str]) -> None:
    """Assert that each reference in `fold` leads to the lines of `own` that it stands for.

    shown: the texts of the results of the same view, by handle.
    """
    lines, references = own.split("\n"), fold.text.split("\n")
    skipped = 0
    named: set[str] = set()
    for run in fold.runs:
        text = references[run.start - skipped]
        skipped += run.lines - 1
        found = REFERENCE.fullmatch(text)
        assert found is not None, text
        assert (found["call"] is None) == (found["handle"] in named), text
        named.add(found["handle"])
        ours = lines[run.start : run.start + run.lines]
        theirs = follow_reference(found, shown[found["handle"]].split("\n"))
        assert _cut_numbers(run.source_gutter, theirs) == _cut_numbers(run.gutter, ours), text
        _check_numbers(run, found, ours, theirs)


def follow_reference(found: re.Match[str], shown: Sequence[str]) -> Sequence[str]:
    """Return the lines of a shown result that a reference means: all, by the numbers in front of them, or counted."""
    if found["top"] is None and found["first"] is None:
        return shown
    if found["top"] is not None:
        return shown[int(found["top"]) - 1 : int(found["end"])]
    first, last = (_find_number(shown, found["prefix"] or "", int(found[name])) for name in ("first", "last"))
    return shown[first : last + 1]


def _find_number(shown: Sequence[str], prefix: str, number: int) -> int:
    """Return the place of the only line that begins with `number`."""
    begins = re.compile(rf"{re.escape(prefix) or '(?:[Ll]ine +|[ ]*)'}{number}(?!\d)")
    (place,) = (index for index, line in enumerate(shown) if begins.match(line))
    return place


def _cut_numbers(gutter: Gutter | None, lines: Sequence[str]) -> Sequence[str]:
    return lines if gutter is None else [cut_number(gutter, line)[1] for line in lines]


def _check_numbers(run: FoldedRun, found: re.Match[str], ours: Sequence[str], theirs: Sequence[str]) -> None:
    """Assert that a reader knows the numbers in front of our lines: those that the line gives, or the source shows."""
    if run.gutter is None:
        assert found["here_first"] is None
        return
    if found["here_first"]:
        known = [int(found["here_first"]), int(found["here_last"])]
    else:
        assert run.source_gutter is not None
        known = [cut_number(run.source_gutter, line)[0] for line in (theirs[0], theirs[-1])]
    assert known == [cut_number(run.gutter, line)[0] for line in (ours[0], ours[-1])], found[0]
