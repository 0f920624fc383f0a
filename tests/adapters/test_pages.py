"""The pages of the frameworks and the examples run in each framework's environment, and print what the pages show."""

from __future__ import annotations

import json
import os
import re
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.adapters.conftest import skip_if_missing
from tests.adapters.environments import ENVIRONMENTS, PATIENCE, ROOT, find_python
from tests.docs.blocks import blocks, commands
from tests.docs.framework_pages import FRAMEWORK_PAGES

EXAMPLES = sorted((ROOT / "examples" / "adapters").glob("*.py"))
#: What other programs a reader is told to type. They are not run.
OTHERS = {"llm", "mini", "pip", "python"}
#: Words that a page may have.
MOST_WORDS = 500


def find_host(file: Path) -> str:
    """Return the framework that a page or an example is about.

    An example is named `NAME_example.py` where `NAME.py` would hide the framework's own package from itself.
    """
    return file.stem.replace("-", "_").removesuffix("_example")


def run_file(file: Path, folder: Path) -> dict[int, list[str]]:
    """Return for the line of each Python block what it prints."""
    host = find_host(file)
    skip_if_missing(host)
    environment = {
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")]),
    }
    done = subprocess.run(
        [find_python(host), "-m", "tests.adapters.page_runner", file],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{file.name}: {done.stderr[-4_000:]}"
    return dict(map(json.loads, done.stdout.splitlines()))


def check_page(page: Path, folder: Path) -> None:
    """Check that a page's code runs from top to bottom in one namespace, and prints what is shown below it."""
    printed = run_file(page, folder)
    for code, shown in pairwise(blocks(page)):
        if code.language == "python" and shown.language == "text":
            real = "\n".join(printed[code.line])
            assert shown.text.rstrip("\n") == real, f"{page}:{shown.line} is printed as\n{real}"


@pytest.mark.parametrize("page", FRAMEWORK_PAGES, ids=lambda page: page.stem)
def test_page_runs(page: Path, tmp_path: Path) -> None:
    """Its code prints what is shown below it."""
    check_page(page, tmp_path)


def test_a_wrong_output_is_seen(tmp_path: Path) -> None:
    """A block sees the names of the one before it; a claimed line that is not printed fails."""
    page = tmp_path / "langchain.md"
    text = "```python\nimport langchain\n\ncount = 2\n```\n\n```python\nprint(count)\n```\n\n```text\n2\n```\n"
    page.write_text(text, encoding="utf-8")
    check_page(page, tmp_path)
    page.write_text(text.replace("text\n2", "text\n3"), encoding="utf-8")
    with pytest.raises(AssertionError, match="is printed as"):
        check_page(page, tmp_path)


def test_every_framework_has_a_page() -> None:
    """Named as the framework is in tests/adapters/environments.py."""
    assert sorted(map(find_host, FRAMEWORK_PAGES)) == sorted(ENVIRONMENTS)


@pytest.mark.parametrize("page", FRAMEWORK_PAGES, ids=lambda page: page.stem)
def test_page_is_complete(page: Path) -> None:
    """It is short, and shows an example as its file is."""
    text = page.read_text(encoding="utf-8")
    count = len(re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).split())
    assert count <= MOST_WORDS, f"{page.name} has {count} words"
    for block in blocks(page):
        if block.language == "python" and block.title:
            assert block.text == (ROOT / block.title).read_text(encoding="utf-8"), f"{page}:{block.line}"
        for command in commands(block):
            assert command.text.split()[0] in OTHERS, command.text


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    """It ends well and prints something. One that its page shows whole has run there."""
    title = f"title={example.relative_to(ROOT).as_posix()}\n"
    if any(title in page.read_text(encoding="utf-8") for page in FRAMEWORK_PAGES):
        return
    (printed,) = run_file(example, tmp_path).values()
    assert printed
