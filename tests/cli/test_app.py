"""Commands are imported when they are asked for, and are listed without that."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import click
import pytest
from click.testing import CliRunner

from elision.cli.app import COMMANDS, SUBCOMMANDS, app
from elision.cli.declarations import list_rare_options
from tests.cli.in_process import run_elision

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
HEAVY_FOLDERS = tuple(f"{name}." for name in HEAVY)
#: A line of help -> the command and its words.
LEAVES = {
    **{(name,): entry for name, entry in COMMANDS.items() if name != "lab"},
    **{(group, name): entry for group, commands in SUBCOMMANDS.items() for name, entry in commands.items()},
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


@pytest.mark.parametrize("words", [*LEAVES, ("lab",)], ids=" ".join)
def test_help_imports_nothing_large(words: tuple[str, ...]) -> None:
    """The help of a command loads its declaration only, so it takes a tenth of a second of processor time."""
    ended, modules = modules_after([*words, "--help"])
    assert ended == 0
    light = {"elision.trajectory", "elision.trajectory.foreign_text"}
    if words == ("tune",):
        # Its defaults are part of its help, and the package has them without the tuner.
        light |= {"elision.lab", "elision.lab.tuning"}
    assert {name for name in modules if name in HEAVY or name.startswith(HEAVY_FOLDERS)} - light == set()


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_the_list_says_what_the_command_says(words: tuple[str, ...]) -> None:
    """The line in the group's help is the first paragraph of the command's own help."""
    assert find_command(*words).help.partition("\n\n")[0] == LEAVES[words].line


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_command_has_json_and_quiet(words: tuple[str, ...]) -> None:
    """The same two options, with the same help."""
    options = {each.opts[0]: each for each in find_command(*words).params if isinstance(each, click.Option)}
    assert options["--json"].help == "Print one JSON object (elision/1) instead of text."
    assert options["--quiet"].help == "Print only the result and errors."


@pytest.mark.parametrize("words", [*LEAVES, ("lab",)], ids=" ".join)
def test_the_first_screen_has_at_most_twelve_options(words: tuple[str, ...]) -> None:
    """`--help` shows twelve and counts the others; `--help-all` shows every one."""
    command = find_command(*words)
    screens = {name: CliRunner().invoke(app, [*words, name]).output for name in ("--help", "--help-all")}
    shown = [line for line in screens["--help"].splitlines() if line.startswith("  -")]
    assert 1 <= len(shown) <= 12
    rare = list_rare_options(find_command(*words))
    options = [each.opts[0] for each in command.params if isinstance(each, click.Option) and each.name != "help_all"]
    if len(options) + 1 > len(shown):
        assert f"{len(options) + 1 - len(shown)} more: elision {' '.join(words)} --help-all" in screens["--help"]
        assert all(name in screens["--help-all"] for name in options)
        assert len(rare) == len(options) + 1 - len(shown)


def test_options_follow_a_subcommand() -> None:
    """Options of the list are not lost silently where a subcommand comes after them."""
    done = run_elision("sessions", "--all", "check")
    assert done.returncode == 2
    assert "options follow the command: elision sessions check [OPTIONS]" in done.stderr


def find_command(*words: str) -> Any:
    found: Any = app
    for word in words:
        found = found.commands[word]
    return found
