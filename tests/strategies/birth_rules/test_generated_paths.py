"""Listings lose generated files, unless the call is about them."""

from __future__ import annotations

import pytest

from elision.strategies.birth_rules.generated_paths import drop_generated_paths

GENERATED = (
    "./src/__pycache__/app.cpython-311.pyc",
    "node_modules/left-pad/index.js",
    "drwxr-xr-x 2 root root 4096 Jan  1 10:00 .git/objects/ab",
    "4.0K\t./build/lib.egg-info/PKG-INFO",
    "?? .venv/",
    "grep: src/__pycache__/app.cpython-311.pyc: binary file matches",
)
KEPT = (
    "./src/app.py",
    ".github/workflows/ci.yml",
    ".gitignore",
    "src/a.py:3:import __pycache__ as x",
    "see node_modules/left-pad for more",
    "docs/.venv-notes.md",
    "",
)


def test_generated_files_are_left_out() -> None:
    """Whatever listed them."""
    text = "\n".join([KEPT[0], *GENERATED, KEPT[1]])
    assert drop_generated_paths(text, "t3.2").split("\n") == [
        KEPT[0],
        "[6 lines of generated files left out: t3.2]",
        KEPT[1],
    ]


@pytest.mark.parametrize("line", KEPT)
def test_other_lines_stay(line: str) -> None:
    """Text that names such a folder, and folders whose name only begins like it."""
    text = "\n".join([line] * 3)
    assert drop_generated_paths(text) == text


def test_what_was_asked_for_stays() -> None:
    """An agent that looks into installed packages is shown them."""
    text = "\n".join(GENERATED)
    assert drop_generated_paths(text, asked="find . -path '*/node_modules/*'") == text
