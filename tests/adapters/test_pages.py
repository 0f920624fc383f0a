"""The examples run in each framework's environment, and the pages of docs/frameworks name what exists."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.adapters.conftest import skip_if_missing
from tests.adapters.environments import ENVIRONMENTS, PATIENCE, ROOT, find_python
from tests.docs.blocks import Block, blocks

EXAMPLES = sorted((ROOT / "examples" / "adapters").glob("*.py"))
PAGES = sorted((ROOT / "docs" / "frameworks").glob("*.md"))
SNIPPETS = [(page, block) for page in PAGES for block in blocks(page) if block.language == "py"]
#: How an example shows a hidden result: `[t1.1 read_file: ...`, without the handle where none can be read.
PLACEHOLDER = re.compile(r"^sent: .*\[(t\d+\.\d+ )?\w+: ", re.MULTILINE)


def find_host(file: Path) -> str:
    """Return the framework that an example is about.

    It is named `NAME_example.py` where `NAME.py` would hide the framework's own package from itself.
    """
    return file.stem.removesuffix("_example")


def run_example(file: Path, folder: Path) -> str:
    """Return what an example prints."""
    host = find_host(file)
    skip_if_missing(host)
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    done = subprocess.run(
        [find_python(host), "-m", "tests.adapters.example_runner", file],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{file.name}: {done.stderr[-4_000:]}"
    return "\n".join(json.loads(done.stdout))


@pytest.mark.parametrize("example", EXAMPLES, ids=find_host)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    """It hides a result in the request, keeps the framework's own, and saves tokens, as the page shows if it does."""
    printed = run_example(example, tmp_path)
    assert PLACEHOLDER.search(printed), printed
    assert re.search(r"^kept: (?!.*\[t\d)", printed, re.MULTILINE), printed
    assert re.search(r"^saved: [1-9]", printed, re.MULTILINE), printed
    title = example.relative_to(ROOT).as_posix()
    for block in (block for page in PAGES for block in blocks(page) if block.title == title):
        assert block.text.rstrip("\n") == printed


def test_every_framework_has_an_example_and_a_section() -> None:
    """Named as in tests/adapters/environments.py; the section imports or configures the framework's adapter."""
    assert sorted(map(find_host, EXAMPLES)) == sorted(ENVIRONMENTS)
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert {host for host in ENVIRONMENTS if not re.search(rf"elision\.adapters\.{host}\b", text)} == set()


@pytest.mark.parametrize(("page", "snippet"), SNIPPETS, ids=lambda value: getattr(value, "stem", ""))
def test_snippets_name_what_exists(page: Path, snippet: Block) -> None:
    """Each is Python, and what it imports from Elision is defined there."""
    place = f"{page.name}:{snippet.line}"
    tree = compile(snippet.text, place, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("elision."):
            module = ROOT / "src" / f"{(node.module or '').replace('.', '/')}.py"
            text = module.read_text(encoding="utf-8")
            for name in (alias.name for alias in node.names):
                assert re.search(rf"^(class|def) {name}\b|^{name}\b.* = ", text, re.MULTILINE), place
