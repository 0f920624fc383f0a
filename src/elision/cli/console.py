"""The console that commands print to, how far a long command is, and the exit code after a bug of ours.

Lines end where their text does, unless they go to a terminal.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Final, cast

import click
from rich.console import Console

from elision.lab.report.figures import neutralize_text
from elision.trajectory.trajectory import Problem

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Blanks at a line's end, with which rich fills tables and wrapped paragraphs up.
_BLANKS: Final = re.compile(r" +(?=\n)")


class _TrimmedStream:
    """A text stream to which lines are written without blanks at their ends."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(_BLANKS.sub("", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def open_console(*, is_stderr: bool = False, quiet: bool = False) -> Console:
    """Return a console on standard output, or standard error. Lines that are piped or saved end without blanks."""
    stream = sys.stderr if is_stderr else sys.stdout
    file = None if stream.isatty() else cast(IO[str], _TrimmedStream(stream))
    return Console(file=file, stderr=is_stderr, quiet=quiet)


@contextmanager
def page_output(console: Console) -> Iterator[None]:
    """Show what is printed inside in the user's pager, as git does, if standard output is a terminal."""
    if not console.is_terminal:
        yield
        return
    # Colours pass, and what fits on one screen needs no key to leave.
    os.environ.setdefault("LESS", "-FRX")
    with console.pager(styles=True):
        yield


#: Seconds between two lines where no terminal is; a command that takes less prints none.
SECONDS = 10.0


class ProgressMeter:
    """Shows on `notes` how far a command is, inside a `with` block. doing: what it does, in a word."""

    def __init__(self, notes: Console, doing: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._notes = notes
        self._doing = doing
        self._clock = clock
        self._printed = clock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressMeter:
        if self._notes.is_terminal and not self._notes.quiet:
            from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=self._notes, transient=True)
            self._task = self._bar.add_task(self._doing, total=None)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, text: str, share: float | None = None) -> None:
        """Show `text`, such as "3 of 16 replays finished". share: of all work that is done; None if that is unknown."""
        text = neutralize_text(text)
        if self._bar is not None and self._task is not None:
            total = None if share is None else 1.0
            self._bar.update(self._task, description=f"{self._doing}: {text}", completed=share or 0.0, total=total)
            return
        now = self._clock()
        if now - self._printed >= SECONDS:
            self._printed = now
            self._notes.print(text, markup=False, highlight=False, soft_wrap=True)


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
