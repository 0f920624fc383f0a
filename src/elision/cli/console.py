"""The console that commands print to: its lines end where their text does, unless they go to a terminal."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final, cast

from rich.console import Console

from elision.config.setting_readers import conceal_password
from elision.stores.store_urls import locate_store
from elision.trajectory.control_characters import escape_controls

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


def open_console() -> Console:
    """Return a console on standard output, for the result. Lines that are piped or saved end without blanks."""
    return _open(is_stderr=False, quiet=False)


def open_notes(quiet: bool) -> Console:
    """Return a console on standard error, for progress and notes; with `quiet` it prints nothing."""
    return _open(is_stderr=True, quiet=quiet)


def _open(*, is_stderr: bool, quiet: bool) -> Console:
    stream = sys.stderr if is_stderr else sys.stdout
    if stream.isatty():
        return Console(stderr=is_stderr, quiet=quiet)
    return Console(file=cast(IO[str], _TrimmedStream(stream)), stderr=is_stderr, quiet=quiet)


def name_store(address: str, *, quiet: bool) -> str:
    """Print on standard error which store is opened; return its address, that of the default with its path."""
    located = locate_store(address)
    shown = escape_controls(conceal_password(located))
    open_notes(quiet).print(f"store: {shown}", style="dim", markup=False, highlight=False, soft_wrap=True)
    return located


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
