"""How far a long command is: one meter on a terminal, and elsewhere one line every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from elision.lab.report.figures import neutralize_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

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
