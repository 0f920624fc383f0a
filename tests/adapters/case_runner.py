"""Run the cases of a framework, in the environment that has it.

    python -m tests.adapters.case_runner HOST

It prints a line of JSON: for each function `check_*` of tests/adapters/cases/HOST.py, sync or async, why it failed; ""
if it passed.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import os
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.adapters.worker import ENVIRONMENT, stay_on_loopback

ROOT = Path(__file__).parents[2]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def list_cases(host: str) -> list[str]:
    """Return the names of a framework's cases, without importing what they import."""
    source = (ROOT / "tests" / "adapters" / "cases" / f"{host}.py").read_bytes()
    names = [node.name for node in ast.parse(source).body if isinstance(node, _FUNCTIONS)]
    return [name for name in names if name.startswith("check_")]


def run_cases(host: str) -> dict[str, str]:
    """Return why each case failed, in a process of the framework's environment. Raises where that process fails."""
    # Here, as the environments of the frameworks have nothing of what this imports.
    from tests.adapters.environments import PATIENCE, find_python

    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [find_python(host), "-m", "tests.adapters.case_runner", host],
            cwd=folder,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, f"the cases of {host}: {done.stderr[-4_000:]}"
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def catch(kind: type[BaseException], function: Callable[[], Any]) -> str:
    """Return the text of the error that a function raises, in lower case: there is no pytest where the cases run."""
    try:
        function()
    except kind as error:
        return str(error).lower()
    raise AssertionError(f"no {kind.__name__} was raised")


async def catch_async(kind: type[BaseException], work: Awaitable[Any]) -> str:
    """Return the text of the error that `work` ends with, in lower case."""
    try:
        await work
    except kind as error:
        return str(error).lower()
    raise AssertionError(f"no {kind.__name__} was raised")


def main() -> None:
    """Run the cases that the argument names. What frameworks print goes to stderr."""
    records = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ.update(ENVIRONMENT, HOME=os.getcwd(), MSWEA_GLOBAL_CONFIG_DIR=os.getcwd())
    sys.addaudithook(stay_on_loopback)
    warnings.simplefilter("ignore")
    warnings.filterwarnings("error", module=r"elision(\..*)?$")
    host = sys.argv[1]
    module = import_module(f"tests.adapters.cases.{host}")
    failures = {}
    for name in list_cases(host):
        failures[name] = ""
        try:
            found = getattr(module, name)()
            if inspect.iscoroutine(found):
                asyncio.run(found)
        except Exception:  # noqa: BLE001 - the report says what failed
            failures[name] = traceback.format_exc(limit=-4)
    print(json.dumps(failures), file=records, flush=True)


if __name__ == "__main__":
    main()
