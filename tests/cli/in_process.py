"""`elision` as a user calls it, without a process of its own: most tests are not about the process."""

from __future__ import annotations

import contextlib
import io
import sys
from subprocess import CompletedProcess

import pytest

from elision.cli import main


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
