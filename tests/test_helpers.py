"""The helpers by which tests start programs and measure work."""

from __future__ import annotations

import builtins
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes import MARK, kill_leftovers, start_process
from tests.work import assert_linear, count_calls

#: Starts a child that waits for ever in a session of its own, says its number, and waits as well.
PARENT = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(600)\n"
)


def test_a_failed_test_leaves_nothing_running() -> None:
    """What a program started is ended with it, also when the test that started it fails."""

    def fail() -> None:
        with start_process([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as process:
            started.append(process)
            children.append(psutil.Process(int(process.stdout.readline())))
            raise AssertionError("as tests do")

    started: list[subprocess.Popen[str]] = []
    children: list[psutil.Process] = []
    with pytest.raises(AssertionError, match="as tests do"):
        fail()
    assert started[0].returncode == -signal.SIGKILL
    children[0].wait(60)


def test_orphans_are_found() -> None:
    """A program whose parent was killed alone is found by its mark, and killed; others are left alone."""
    marked = {**os.environ, MARK: "of this test alone"}
    with start_process([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=marked) as process:
        child = psutil.Process(int(process.stdout.readline()))
        process.kill()
        process.wait()
    with start_process([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        assert len(kill_leftovers("of this test alone")) == 1
        assert other.poll() is None
    child.wait(60)


def test_children_can_be_interrupted() -> None:
    """SIGINT reaches what tests start, whether or not a shell has this run in the background."""
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"True\n"


def test_quadratic_work_is_not_linear() -> None:
    """Work that grows with the square of its size is told from work that grows with it."""

    def linear(size: int) -> int:
        return sum(range(200 * size))

    def quadratic(size: int) -> int:
        return sum(sum(range(size)) for _ in range(size))

    assert_linear(linear, 1_000)
    with pytest.raises(AssertionError, match="16 times the size takes"):
        assert_linear(quadratic, 400)


def test_calls_are_counted() -> None:
    """Calls of Python's functions and of built-in ones count; the number is the same every time."""

    def work() -> None:
        for _ in range(10):
            len("")

    assert count_calls(work) - count_calls(lambda: None) == 10
    assert count_calls(work) == count_calls(work)


_RELATIVE = re.compile(r"^\s*from \.", re.MULTILINE)
_FOLDERS = sorted(folder.name for folder in Path(__file__).parent.iterdir() if (folder / "__init__.py").is_file())
#: `docs` has modules of its own beside the tests: `from docs.paper.facts import ...` is right.
_OUTSIDE = {"docs"}
_BARE = re.compile(rf"^\s*(?:from|import) (?:{'|'.join(set(_FOLDERS) - _OUTSIDE)})\b", re.MULTILINE)


def test_helpers_are_imported_in_one_way() -> None:
    """`from tests.gateway.loopback_gateway import ...`: never relative, never as a top-level package."""
    files = [file for file in Path(__file__).parent.rglob("*.py") if "data" not in file.parts]
    assert [str(file) for file in files if _RELATIVE.search(file.read_text("utf-8"))] == []
    assert [str(file) for file in files if _BARE.search(file.read_text("utf-8"))] == []


def test_no_folder_of_tests_has_the_name_of_a_builtin() -> None:
    """A package called `property` hid the builtin from whoever imported it."""
    assert [name for name in _FOLDERS if hasattr(builtins, name)] == []
