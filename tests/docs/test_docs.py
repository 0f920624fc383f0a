"""Every block of the documentation runs, and prints what it is said to print."""

from __future__ import annotations

import json
import re
import shlex
import socket
import sys
import tomllib
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import ModuleType

import pytest

from elision.lab.run_loading import DEFAULTS
from tests.docs.blocks import (
    CONTRIBUTING,
    DOCS,
    PAGES,
    ROOT,
    Block,
    Command,
    applied,
    blocks,
    chunks,
    commands,
    place,
)
from tests.docs.run import elision, folder, made, working_in

#: What other programs a reader is told to type; the recipes have a test of their own.
OTHERS = {"git", "make", "pip", "python3"}
#: The port that pages show. Each run takes another one: several runs of the tests may go on beside each other.
SHOWN_PORT = "18377"
RUN = [page for page in PAGES if page != CONTRIBUTING]


def named(pages: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", pages, ids=[str(page.relative_to(ROOT)) for page in pages])


@named(RUN)
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom: commands end as said and print what is shown below them; code runs in one namespace."""
    at = folder(tmp_path)
    module = ModuleType("a_page")
    # Dataclasses look up the module that they are made in.
    monkeypatch.setitem(sys.modules, module.__name__, module)
    printed: list[str] | None = None
    port = str(find_free_port())
    for shown in blocks(page):
        block = replace(shown, text=shown.text.replace(SHOWN_PORT, port))
        if block.language == "python":
            printed = _executed(block, page, module, at)
            continue
        if block.language in ("console", "sh"):
            for command in commands(block):
                _typed(command, at)
        elif block.language == "text" and printed:
            assert block.text.splitlines() == printed, f"{page}:{block.line}"
        elif block.language == "json":
            json.loads(block.text)
        printed = None


def find_free_port() -> int:
    """Return a port on which nothing listens now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def _executed(block: Block, page: Path, module: ModuleType, at: Path) -> list[str]:
    """What the code of `block` prints."""
    out = StringIO()
    code = compile("\n" * block.line + block.text, str(page), "exec")
    with working_in(at), redirect_stdout(out):
        exec(code, module.__dict__)  # noqa: S102 - our own pages
    return out.getvalue().splitlines()


def _typed(command: Command, at: Path) -> None:
    first, *rest = shlex.split(command.text)
    # Recordings that are not part of this repository.
    if "../shared/" in command.text:
        return
    if first == "elision":
        _says(command.text, command.printed, at)
    elif first == "make":
        for target in rest:
            assert re.search(rf"^{re.escape(target)}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            for line in made(target) if command.printed else []:
                _says(line, command.printed, at)
    else:
        assert first in OTHERS, command.text


def _says(text: str, claimed: tuple[str, ...], at: Path) -> None:
    """The command succeeds, or fails with the message shown, and prints what is shown, in that order."""
    printed = elision(text, at)
    expected = 2 if any(line.startswith("elision: ") for line in claimed) else 0
    assert printed.code == expected, f"{text}\n{printed.err}"
    start = 0
    for chunk in chunks(claimed):
        found = place(chunk, printed.lines, start)
        assert found is not None, f"{text} does not print\n{chr(10).join(chunk)}\nbut\n{chr(10).join(printed.lines)}"
        start = found + len(chunk)


def test_extras_exist() -> None:
    """Every extra that a reader is told to install is one of the distribution's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    found = {extra for extras in re.findall(r"elision\[([\w,-]+)\]", text) for extra in extras.split(",")}
    assert found
    assert found <= set(project["optional-dependencies"])


def test_pages_that_install_lead_to_the_checkout() -> None:
    """The package is not published: what to run until then is written once."""
    said = "start/gateway.md#install-and-start"
    for page in DOCS:
        text = page.read_text(encoding="utf-8")
        assert "pip install 'elision[" not in text or said in text or page.match("start/gateway.md"), page


def test_the_published_options_are_those_of_the_defaults() -> None:
    """The strategies that the documentation says are compared are compared."""
    text = (ROOT / "docs" / "start" / "replay.md").read_text(encoding="utf-8")
    for label, spec in DEFAULTS:
        assert f"| {label} | `{spec}` |" in text


def test_a_wrong_output_is_seen(tmp_path: Path) -> None:
    """A claimed line that is not printed, or one in the wrong place, fails."""
    at = folder(tmp_path)
    _says("elision doctor --prices fable", ("fable",), at)
    for wrong in (("fabel",), ("cache", "…", "fable"), ("elision: fable",)):
        with pytest.raises(AssertionError):
            _says("elision doctor --prices fable", wrong, at)


def test_a_diff_must_fit() -> None:
    """A change is made where its old lines stand once, and refused elsewhere."""
    assert applied(" a\n-b\n+c\n", "a\nb\n") == "a\nc\n"
    for text in ("a\nx\n", "a\nb\na\nb\n"):
        with pytest.raises(ValueError, match="not once"):
            applied(" a\n-b\n+c\n", text)
