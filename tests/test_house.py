"""The house gets no heavier: no number of `tools/measure_house.py` is above the one that was landed last."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
#: A thread that comes late, one run in twenty, adds its calls to the next request.
TRIES = 3
with patch.object(sys, "path", [str(TOOLS), *sys.path]):
    HOUSE = runpy.run_path(str(TOOLS / "measure_house.py"))


def test_no_number_has_risen() -> None:
    """Counted in a process of its own, where nothing is cached yet."""
    for _ in range(TRIES):
        done = subprocess.run([sys.executable, str(TOOLS / "measure_house.py")], capture_output=True, text=True)
        if done.returncode == 0:
            return
        # What is read from the source is the same every time.
        if any(line.endswith("has risen") and "request" not in line for line in done.stdout.splitlines()):
            break
    raise AssertionError(done.stdout + done.stderr)


@pytest.mark.parametrize(
    ("number", "has_risen"),
    [({"a": 10}, False), ({"a": 11}, True), ({"a": 9}, False), ({"new": 1}, True)],
)
def test_what_has_risen_is_named(number: dict[str, float], has_risen: bool) -> None:
    """One more is too many, and so is a row that was never landed."""
    assert HOUSE["find_risen"](number, {"a": 10}) == (list(number) if has_risen else [])


def test_calls_of_a_request_have_a_margin() -> None:
    """The order of threads moves them a little."""
    row = "gateway request: calls"
    assert HOUSE["find_risen"]({row: 10_190}, {row: 10_000}) == []
    assert HOUSE["find_risen"]({row: 10_210}, {row: 10_000}) == [row]


def test_a_raw_call_runs_what_it_must() -> None:
    """Its functions are counted from the public method down, without lambdas and comprehensions."""
    walk = HOUSE["count_call"]("raw")
    assert walk.functions["manager/context.py", "ContextManager.prepare"] == 1
    assert not [name for _, name in walk.functions if name.rpartition(".")[2].startswith("<")]


def test_tokens_are_counted(tmp_path: Path) -> None:
    """An f-string is one, whatever stands in it; comments and line ends are none."""
    (tmp_path / "one.py").write_text("x = f\"{y + f'{z}'}\" + 1  # why\n", encoding="utf-8")
    assert HOUSE["count_tokens"](tmp_path) == 5


def test_short_helpers_with_one_caller_are_counted() -> None:
    """Not one with two callers, one that is not private, or one of six lines."""
    once = "def _once():\n    return 1\n"
    twice = "def _twice():\n    return 1\n"
    public = "def public():\n    return _once() + _twice() + _twice() + _long()\n"
    long = "def _long():\n" + "    print()\n" * 6
    tree = ast.parse(once + twice + public + long)
    assert HOUSE["count_short_helpers"](list(ast.walk(tree))) == 1
