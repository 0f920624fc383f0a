"""Variables of other programs in the environment: every command that reads settings runs as if they were not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elision import ContextManager
from elision.config.setting_keys import ALIASES, ALL_KEYS, CONFIG
from elision.stores.store_urls import locate_store
from tests.cli.in_process import run_elision
from tests.manager.agents import make_history

#: Each setting's name as somebody else's variable, with a value that is none of ours.
FOREIGN = {spelled: "gpt-4" for name in (*ALL_KEYS, *ALIASES, CONFIG) for spelled in (name, name.upper())}
OTHERS = ("--upstream-anthropic", "none", "--upstream-gemini", "none")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with ContextManager(session="s") as context:
        context.prepare(make_history("openai", 4))
    Path("run.json").write_text(json.dumps(make_history("openai", 4)), encoding="utf-8")


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "--settings"),
        ("replay", "run.json", "--strategy", "masking", "--no-hindsight"),
        ("serve", "--check", "--off", "--upstream-openai", "http://127.0.0.1:9", *OTHERS),
        ("wrap", "--print", "claude"),
        ("sessions",),
        ("sessions", "--sizes"),
    ],
    ids=" ".join,
)
def test_variables_without_our_prefix_do_no_harm(arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code and every line that is printed are those of an environment without them."""
    plain = run_elision(*arguments)
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    found = run_elision(*arguments)
    assert (found.returncode, found.stdout, found.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert "gpt-4" not in found.stdout + found.stderr


def test_variables_without_our_prefix_do_no_harm_to_mcp() -> None:
    """The server of the Model Context Protocol starts as it does without them."""
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    environment = {**os.environ, **FOREIGN}
    # Its standard input ends at once, and so does the server.
    found = subprocess.run(
        [sys.executable, "-m", "elision", "mcp"], env=environment, input="", capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (0, "")
    assert found.stderr == f"store: {locate_store('sqlite:')}\n"


def test_variables_without_our_prefix_do_no_harm_to_from_env() -> None:
    """The library reads its settings out of the same environment."""
    with ContextManager.from_env(FOREIGN, store="memory:") as context, ContextManager(store="memory:") as plain:
        assert context._opened.options.effective_strategy == plain._opened.options.effective_strategy
        assert context._opened.options.model == ""
