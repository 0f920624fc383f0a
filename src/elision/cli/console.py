"""The console that commands print to: its lines end where their text does, unless they go to a terminal."""

from __future__ import annotations

import re
import sys
from typing import IO, Any, Final, cast

from rich.console import Console

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


def open_console(*, stderr: bool = False) -> Console:
    """Return a console on standard output or standard error. Lines that are piped or saved end without blanks."""
    stream = sys.stderr if stderr else sys.stdout
    if stream.isatty():
        return Console(stderr=stderr)
    return Console(file=cast(IO[str], _TrimmedStream(stream)), stderr=stderr)
