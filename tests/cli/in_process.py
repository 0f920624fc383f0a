"""`elision` as a user calls it, without a process of its own: most tests are not about the process."""

from __future__ import annotations

import contextlib
import io
import sys
from subprocess import CompletedProcess

import pytest
from click.testing import CliRunner, Result

from elision.cli import main
from elision.cli.app import app
from elision.errors import ElisionError


class Command:
    """A command of `elision` by click's runner, which lets tests see its errors as they are raised."""

    def __init__(self, *words: str, width: int = 100) -> None:
        self._words = words
        self._width = width

    def run(self, *arguments: object, width: int = 0) -> Result:
        """Run it in a terminal of `width` columns."""
        columns = str(width or self._width)
        return CliRunner().invoke(app, [*self._words, *map(str, arguments)], env={"COLUMNS": columns})

    def print(self, *arguments: object, width: int = 0) -> str:
        """Return what it prints. Raises its error."""
        result = self.run(*arguments, width=width)
        if result.exception is not None:
            raise result.exception
        return result.stdout

    def refuse(self, error: type[ElisionError], *arguments: object) -> str:
        """Return the sentence of the error, which is what the user would read."""
        with pytest.raises(error) as raised:
            self.print(*arguments)
        return str(raised.value)


def run_elision(*arguments: object) -> CompletedProcess[str]:
    """Run `elision` with `arguments` to its end; return its exit code and what it printed, as 80 columns."""
    words = [str(each) for each in arguments]
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["elision", *words])
        patch.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as ended:
            main()
    assert isinstance(ended.value.code, int)
    return CompletedProcess(words, ended.value.code, _read(out), _read(err))


def _read(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
