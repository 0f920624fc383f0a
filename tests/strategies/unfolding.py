"""The inverse of folding, written apart from it: whatever a fold hides can be read from its sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from elision.trajectory.plan import Edit, FoldedRun, Gutter, Key


def unfold_text(fold: Edit, source_texts: Mapping[Key, str]) -> str:
    """Return the text that was folded. source_texts: the own texts of the observations that its runs name."""
    shown = fold.text.split("\n")
    lines: list[str] = []
    place = 0
    for run in fold.runs:
        between = run.start - len(lines)
        lines += shown[place : place + between]
        lines += _restore_lines(run, source_texts[run.source])
        place += between + 1
    return "\n".join(lines + shown[place:])


def _restore_lines(run: FoldedRun, source_text: str) -> Iterator[str]:
    """The lines that `run` stands for."""
    for step, line in enumerate(source_text.split("\n")[run.source_start : run.source_start + run.lines]):
        distance, body = step, line
        if run.source_gutter is not None:
            number, body = cut_number(run.source_gutter, line)
            distance = number - run.source_gutter.first
        if run.gutter is not None:
            gutter = run.gutter
            body = f"{gutter.prefix}{gutter.first + distance:>{gutter.width}}{gutter.mark}{body}"
        yield body


def cut_number(gutter: Gutter, line: str) -> tuple[int, str]:
    digits, _, body = line[len(gutter.prefix) :].partition(gutter.mark)
    return int(digits), body
