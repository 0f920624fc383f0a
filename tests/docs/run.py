"""Commands and code of the documentation, run where the sample runs are at hand."""

from __future__ import annotations

import gzip
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest

from elision.cli import demo, main
from tests.docs.blocks import ROOT
from tests.soak import SOAK

#: Columns of the terminal whose output the documentation shows.
WIDTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Printed:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Both streams, standard output first, without trailing blanks."""
        return [line.rstrip() for line in (self.out + self.err).splitlines()]


def folder(at: Path) -> Path:
    """`at` with the sample runs in it, under the names that the documentation uses; one is the reader's own run."""
    (at / "examples").symlink_to(ROOT / "examples")
    sample = ROOT / "examples" / "runs" / "swe-agent-sympy-20801.traj.gz"
    (at / "my-run.json").write_bytes(gzip.decompress(sample.read_bytes()))
    return at


@contextmanager
def with_a_short_demo(at: Path) -> Iterator[None]:
    """Let `elision demo` replay one run instead of four, but in soaks: pages quote its figures, and bars hold those."""
    with pytest.MonkeyPatch.context() as patch:
        if not SOAK:
            patch.setattr(demo, "find_runs", lambda: at / "my-run.json")
        yield


@contextmanager
def working_in(at: Path) -> Iterator[None]:
    """Work in folder `at`."""
    before = Path.cwd()
    os.chdir(at)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def called_with(arguments: list[str]) -> Iterator[None]:
    """The command line and the terminal as the documentation has them."""
    argv, environment = sys.argv, dict(os.environ)
    sys.argv = arguments
    os.environ.update(COLUMNS=str(WIDTH), NO_COLOR="1")
    try:
        yield
    finally:
        sys.argv = argv
        os.environ.clear()
        os.environ.update(environment)


def elision(command: str, at: Path) -> Printed:
    """Run `elision ...` in folder `at`, in this process: token counts are shared between commands."""
    command, _, file = command.partition(" > ")
    arguments = shlex.split(command)
    assert arguments[0] == "elision"
    out, err, code = StringIO(), StringIO(), 0
    # One process: no worker is forked out of the tests. A study starts processes of its own.
    own = {"-j", "--jobs", "--workers", "--report"} & {*arguments}
    jobs = ["--jobs", "1"] if arguments[1] in ("demo", "replay", "tune") and not own else []
    with (
        working_in(at),
        with_a_short_demo(at),
        redirect_stdout(out),
        redirect_stderr(err),
        called_with([*arguments, *jobs]),
    ):
        try:
            main()
        except SystemExit as done:
            code = int(done.code or 0)
    if file:
        (at / file).write_text(out.getvalue(), encoding="utf-8")
        out = StringIO()
    return Printed(code=code, out=out.getvalue(), err=err.getvalue())


def made(target: str) -> list[str]:
    """The `elision` commands that `make TARGET` runs, as the Makefile says."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    variables = dict(re.findall(r"^(\w+) [?:]?= (.*)$", text, re.MULTILINE))
    recipe = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)+)", text, re.MULTILINE)
    lines = recipe[1].splitlines() if recipe else []
    filled = [re.sub(r"\$\((\w+)\)", lambda found: variables.get(found[1], found[0]), line.strip()) for line in lines]
    return [line.removeprefix(".venv/bin/") for line in filled if line.startswith(".venv/bin/elision ")]
