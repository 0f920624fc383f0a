"""Run the cases of one framework in the environment that has it: what the framework's own test is about.

    python -m tests.adapters.cases_runner HOST FOLDER

The cases are the functions of tests/adapters/cases/HOST.py whose names begin with `check_`. Each works in a folder of
its own. A line of JSON for each has its name, and the traceback where it failed.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import inspect
import json
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.adapters.environments import PATIENCE, ROOT, find_python
from tests.adapters.worker import ENVIRONMENT, stay_on_loopback


def list_cases(host: str) -> list[str]:
    """Return the names of a framework's cases, without importing them."""
    tree = ast.parse((ROOT / "tests" / "adapters" / "cases" / f"{host}.py").read_bytes())
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [name for name in functions if name.startswith("check_")]


def run_cases(host: str, folder: Path) -> dict[str, str]:
    """Return for each case why it failed; "" where it did not. Raises AssertionError where nothing could be run."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    done = subprocess.run(
        [find_python(host), "-m", "tests.adapters.cases_runner", host, folder],
        env={"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"the cases of {host}: {done.stderr[-4_000:]}"
    return dict(map(json.loads, done.stdout.splitlines()))


def catch(kind: type[BaseException], function: Callable[[], Any]) -> str:
    """Return the text of the error that a function raises, as there is no pytest where the cases run."""
    try:
        function()
    except kind as error:
        return str(error).lower()
    raise AssertionError(f"no {kind.__name__} was raised")


def run_case(case: Any, folder: Path) -> str:
    """Return the traceback of a case; "" if it did well."""
    folder.mkdir()
    os.chdir(folder)
    try:
        found = case()
        if inspect.isawaitable(found):

            async def wait() -> None:
                await found

            asyncio.run(wait())
    except Exception:  # noqa: BLE001 - what a case ends with is what the report says
        return traceback.format_exc()
    return ""


def main() -> None:
    """Run the cases of a framework. What is printed meanwhile goes to stderr."""
    parser = argparse.ArgumentParser()
    parser.add_argument("host")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    report = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    os.environ.update(ENVIRONMENT, HOME=str(options.folder))
    sys.addaudithook(stay_on_loopback)
    warnings.simplefilter("ignore")
    warnings.filterwarnings("error", module=r"elision(\..*)?$")
    module = import_module(f"tests.adapters.cases.{options.host}")
    for name in list_cases(options.host):
        print(json.dumps([name, run_case(getattr(module, name), options.folder / name)]), file=report, flush=True)


if __name__ == "__main__":
    main()
