"""The recipes that CONTRIBUTING names, followed to the letter in a copy of the project."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import CONTRIBUTING, ROOT, Block, applied, blocks, commands
from tests.docs.recipe_commands import BLOCKS, RECIPES, TYPED

#: Recipe -> what it touches in `src`: files, of which a table that names them is one; a new package counts once.
TOUCHED = {"adapter": 1, "figure": 4, "format": 2, "price": 1, "provider": 2, "store": 2, "strategy": 2}
COPIED = ("src", "tests", "examples", "pyproject.toml")
#: Tests of the project that run on what the recipes add: import directions, all invariants, the commands.
OURS = ("tests/test_imports.py", "tests/properties/test_invariants.py", "tests/docs/recipe_commands.py")
OUR_TESTS = (
    "(test_imports.py and (one_way or cycle or each_other)) or recipe_commands.py "
    "or (bulky and (keeps_the_invariants or cases_act))"
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project with every file of the recipes written and every change made."""
    at = tmp_path_factory.mktemp("recipes")
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            # With its bytecode: the process would compile all that it imports.
            shutil.copytree(source, at / name)
        else:
            shutil.copy(source, at / name)
    for block in BLOCKS:
        if block.title:
            _write_block(at / block.title, block.language, block.text)
    return at


def _write_block(path: Path, language: str, text: str) -> None:
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


def list_runs() -> Iterator[tuple[str, str]]:
    """Yield the file of each test that a reader is told to run, and which of its tests."""
    for line in TYPED:
        if line.startswith("pytest "):
            file, *selected = shlex.split(line)[1:]
            yield file, f"{Path(file).name} and ({selected[-1]})" if selected else Path(file).name


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.stem)
def test_a_recipe_touches_few_files_and_ends_with_a_trial(recipe: Path) -> None:
    """Each has files or changes, as many in `src` as CONTRIBUTING says, and commands to try them."""
    assert f"(tests/recipes/{recipe.name})" in CONTRIBUTING.read_text(encoding="utf-8")
    found: list[Block] = blocks(recipe)
    changed = [Path(block.title) for block in found if block.title.startswith("src/")]
    assert len({path if (ROOT / path.parent).exists() else path.parent for path in changed}) == TOUCHED[recipe.stem]
    assert any(block.title.startswith("tests/") for block in found)
    assert any(list(commands(block)) for block in found if block.language == "console")


def test_what_the_reader_is_told_to_try_works(copy: Path) -> None:
    """The tests and commands of all recipes, in one process. So do the import directions with the new files, and the
    example strategy, as one of the cases of the property tests, holds the invariants."""
    runs = list(list_runs())
    assert len(runs) == 11
    files = dict.fromkeys((*(file for file, _ in runs), *OURS))
    chosen = " or ".join((*(f"({tests})" for _, tests in runs), OUR_TESTS))
    done = run(copy, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *files, "-k", chosen)
    for each in (*files, "test_no_modules_import_each_other", "keeps_the_invariants[", "cases_act["):
        assert re.search(rf"^PASSED .*{re.escape(each)}", done, re.MULTILINE), each
    assert done.count("PASSED tests/docs/recipe_commands.py") == sum(line.startswith("elision ") for line in TYPED)


def test_the_new_files_are_in_style(copy: Path) -> None:
    """What the recipes show passes the project's own lint and format."""
    files = [block.title for block in BLOCKS if block.title.endswith(".py")]
    assert run(copy, "-m", "ruff", "check", *files)
    run(copy, "-m", "ruff", "format", "--check", *files)
