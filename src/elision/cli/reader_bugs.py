"""The exit code of a command that met a bug of ours while it read recordings."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import click

from elision.lab.report.figures import neutralize_text
from elision.trajectory.trajectory import Problem

#: Neither success (0) nor something that the user can mend (2). EX_SOFTWARE of sysexits.h.
READER_BUG = 70


def exit_on_reader_bug(problems: Iterable[Problem]) -> None:
    """Report the first bug of ours among `problems` on standard error and exit with `READER_BUG`; else do nothing.

    Call it last: what could be read is shown first.
    """
    bugs = [problem for problem in problems if problem.kind == "bug"]
    if bugs:
        others = f" (and {len(bugs) - 1} more)" if len(bugs) > 1 else ""
        print(f"elision: {neutralize_text(str(bugs[0]))}{others}", file=sys.stderr)
        raise click.exceptions.Exit(READER_BUG)
