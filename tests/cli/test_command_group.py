"""Commands are imported when they are asked for, and are listed without that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
import typer

from elision.cli.app import app
from elision.cli.command_group import COMMANDS

#: Packages that take long to import, and parts of ours that import them or are large themselves.
HEAVY = (
    "aiohttp",
    "anthropic",
    "asyncio",
    "genai_prices",
    "httptools",
    "multiprocessing",
    "numpy",
    "openai",
    "opentelemetry",
    "psycopg",
    "re2",
    "requests",
    "rich",
    "sqlite3",
    "ssl",
    "starlette",
    "tiktoken",
    "urllib3",
    "uvicorn",
    "resvg_py",
    "elision.zstd",
    "elision.agent",
    "elision.config",
    "elision.providers",
    "elision.engine",
    "elision.formats",
    "elision.gateway",
    "elision.lab",
    "elision.manager",
    "elision.stores",
    "elision.strategies",
    "elision.summarizers",
    "elision.telemetry",
    "elision.testing",
    "elision.trajectory",
)
#: What serves and reads on behalf of other commands than those that only show a store.
_SERVING = {"aiohttp", "starlette", "uvicorn", "httptools", "elision.gateway", "genai_prices", "tiktoken", "resvg_py"}
_LAB = {"numpy", "elision.lab.hindsight", "elision.lab.study"}
_READING = {"elision.formats", "elision.lab.run_loading", "elision.lab.study"}
_SESSION = {"elision.manager", "elision.engine", "elision.summarizers", "sqlite3"}
#: Command -> what its help must not import.
SPARED = {
    "audit": _SERVING | {"elision.manager"},
    "calibrate": _SERVING | {"numpy"},
    "config": _SERVING | _LAB | _READING | _SESSION,
    "mcp": _SERVING | _LAB | _READING | {"elision.mcp", "mcp"},
    "doctor": _SERVING | _LAB | _READING | _SESSION,
    "outcomes": _SERVING | {"elision.lab.study"},
    "playback": _SERVING | _LAB | _SESSION,
    "prices": _SERVING | _LAB | _READING | _SESSION | {"elision.config", "asyncio"},
    "recall": _SERVING | _LAB | _READING,
    "replay": _SERVING | {"elision.manager"},
    "rules": _SERVING | {"elision.manager"},
    "run": _SERVING | _LAB | _READING,
    "serve": _SERVING | _LAB | _READING | _SESSION,
    "sessions": _SERVING | _LAB | _READING,
    "show": _SERVING | _LAB | _READING,
    "store": _SERVING | _LAB | _SESSION - {"sqlite3"},
    "tune": _SERVING | {"elision.manager", "optuna"},
    "wrap": _SERVING | _LAB | _READING | _SESSION,
    "view": _SERVING | {"numpy", "elision.manager", "elision.lab.hindsight"},
}


def modules_after(arguments: Sequence[str]) -> tuple[int, set[str]]:
    """Run `elision` with `arguments` in a process of its own; its exit code, and what was imported when it ended."""
    program = (
        "import sys; from elision.cli import main\n"
        "try: main()\n"
        "except SystemExit as ended: print('ended', ended.code, *sys.modules)"
    )
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, *modules = done.stdout.splitlines()[-1].removeprefix("ended ").split()
    return int(code), set(modules)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--version"], 0), (["--help"], 0), (["-h"], 0), ([], 2), (["shw"], 2), (["--non"], 2)],
    ids=str,
)
def test_what_needs_no_command_imports_none(arguments: list[str], code: int) -> None:
    """The version, the list of commands and mistyped words load neither a command nor anything large."""
    ended, modules = modules_after(arguments)
    assert ended == code
    assert modules & set(HEAVY) == set()
    assert {f"elision.cli.{name}" for name in COMMANDS} & modules == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_imports_what_it_needs(name: str) -> None:
    """No command loads another one's libraries."""
    ended, modules = modules_after([name, "--help"])
    assert ended == 0
    assert f"elision.cli.{name}" in modules
    assert modules & SPARED[name] == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_what_the_command_says(name: str) -> None:
    """The line in `elision --help` is the first paragraph of the command's own help."""
    command = typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
    assert COMMANDS[name] == command.short_help
    assert command.help.partition("\n\n")[0] == COMMANDS[name]
