"""The `elision` commands of the recipes, each a test. `test_recipes` runs them in its copy with the recipes' tests."""

from __future__ import annotations

import pytest

from tests.docs.blocks import ROOT, blocks, commands
from tests.docs.run import elision

RECIPES = sorted((ROOT / "tests" / "recipes").glob("*.md"))
BLOCKS = [block for recipe in RECIPES for block in blocks(recipe)]
TYPED = [command.text for block in BLOCKS if block.language == "console" for command in commands(block)]


@pytest.mark.parametrize("line", [line for line in TYPED if line.startswith("elision ")])
def test_a_command_works(line: str) -> None:
    """What the reader is told to try works."""
    done = elision(line, ROOT)
    assert done.code == 0, done.err
    assert done.out
