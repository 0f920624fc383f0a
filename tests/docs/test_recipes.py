"""The recipes that CONTRIBUTING names, followed to the letter in a copy of the project."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.blocks import CONTRIBUTING, ROOT, Block, applied, blocks, commands

RECIPES = sorted((ROOT / "tests" / "recipes").glob("*.md"))
BLOCKS = [block for recipe in RECIPES for block in blocks(recipe)]
#: Recipe -> the files of `src` that it touches: new ones, and the table that names them.
TOUCHED = {"format": 2, "price": 1, "strategy": 2}
COPIED = ("src", "tests", "examples", "pyproject.toml")
TYPED = [command.text for block in BLOCKS if block.language == "console" for command in commands(block)]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with every file of the recipes written and every change made."""
    at = tmp_path_factory.mktemp("recipes")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            # With its bytecode: each of the processes would compile all that it imports.
            shutil.copytree(source, at / name)
        else:
            shutil.copy(source, at / name)
    for block in BLOCKS:
        if block.title:
            _written(at / block.title, block.language, block.text)
    return at


def _written(path: Path, language: str, text: str) -> None:
    if language == "diff":
        text = applied(text, path.read_text(encoding="utf-8"))
    else:
        assert not path.exists(), path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def run(at: Path, *command: str) -> str:
    """Run Python in the copy, on the copy's own source."""
    environment = {**os.environ, "PYTHONPATH": str(at / "src")}
    done = subprocess.run(
        [sys.executable, *command], cwd=at, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_a_recipe_touches_few_files_and_ends_with_a_trial(recipe: Path) -> None:
    """Each has files or changes, as many in `src` as CONTRIBUTING says, and commands to try them."""
    assert f"(tests/recipes/{recipe.name})" in CONTRIBUTING.read_text(encoding="utf-8")
    found: list[Block] = blocks(recipe)
    assert len({block.title for block in found if block.title.startswith("src/")}) == TOUCHED[recipe.stem]
    assert any(block.title.startswith("tests/") for block in found)
    assert sum(len(list(commands(block))) for block in found if block.language == "console") >= 2


def test_the_tests_of_the_recipes_pass(copy: Path) -> None:
    """What the reader is told to test passes; so do the import directions with the new files. The example strategy is
    one of the cases of the property tests, and holds the invariants."""
    files = [file for line in TYPED if line.startswith("pytest ") for file in shlex.split(line)[1:]]
    assert len(files) == 3
    theirs = " or ".join(Path(file).stem for file in files)
    ours = "one_way or cycle or each_other or (bulky and (keeps_the_invariants or cases_act))"
    more = ("tests/test_imports.py", "tests/properties/test_invariants.py")
    quiet = ("-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider")
    done = run(copy, *quiet, *files, *more, "-k", f"{theirs} or {ours}")
    for each in (*files, "test_no_modules_import_each_other", "keeps_the_invariants[", "cases_act["):
        assert re.search(rf"^PASSED .*{re.escape(each)}", done, re.MULTILINE), each


@pytest.mark.parametrize("line", [line for line in TYPED if line.startswith("elision ")])
def test_the_commands_of_the_recipes_work(copy: Path, line: str) -> None:
    """What the reader is told to try works."""
    assert run(copy, "-c", "from elision.cli import main; main()", *shlex.split(line)[1:])


def test_the_new_files_are_in_style(copy: Path) -> None:
    """What the recipes show passes the project's own lint and format."""
    files = [block.title for block in BLOCKS if block.title.endswith(".py")]
    assert run(copy, "-m", "ruff", "check", *files)
    run(copy, "-m", "ruff", "format", "--check", *files)
