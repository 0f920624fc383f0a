"""Clients in environments of their own. Where one is missing its tests are skipped, and the summary says so aloud."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environments import AGENTS, HERE, OPENHANDS, PYTHON, LiteLLM

_skipped: list[str] = []


@pytest.fixture(scope="session")
def litellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiteLLM]:
    """LiteLLM and mini-swe-agent, one process for all tests."""
    if not PYTHON.exists():
        _skip("LiteLLM and mini-swe-agent are not installed: make clients")
    process = LiteLLM(tmp_path_factory.mktemp("litellm"))
    yield process
    process.close()


@pytest.fixture(scope="session")
def pi() -> Path:
    """The coding agent pi: its script, for node."""
    return _agent("@mariozechner/pi-coding-agent/dist/cli.js")


@pytest.fixture(scope="session")
def codex() -> Path:
    """The coding agent Codex: its script, for node."""
    return _agent("@openai/codex/bin/codex.js")


@pytest.fixture(scope="session")
def claude() -> Path:
    """The coding agent Claude Code: its program, which needs no node."""
    return _agent("@anthropic-ai/claude-code-linux-x64/claude")


@pytest.fixture(scope="session")
def opencode() -> Path:
    """The coding agent opencode: its program, which needs no node."""
    return _agent("opencode-linux-x64/bin/opencode")


@pytest.fixture(scope="session")
def qwen() -> Path:
    """The coding agent Qwen Code: its script, for node."""
    return _agent("@qwen-code/qwen-code/cli-entry.js")


@pytest.fixture(scope="session")
def openhands() -> Path:
    """A Python that has the OpenHands SDK and its tools."""
    if not OPENHANDS.exists():
        _skip("the OpenHands SDK is not installed: make openhands, with Python 3.12 or newer")
    return OPENHANDS


@pytest.fixture(scope="session")
def java() -> list[str | Path]:
    """The command of a client over Java's own HttpClient; its arguments are a URL and a framing."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        _skip("Java's client: no JDK (Debian: default-jdk-headless)")
    return ["java", HERE / "java" / "Client.java"]


def _agent(name: str) -> Path:
    if shutil.which("node") is None:
        _skip("no node on the path")
    if not (script := AGENTS / name).exists():
        _skip(f"{name} is not installed: make clients")
    return script


def _skip(reason: str) -> None:
    _skipped.append(reason)
    pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say aloud that clients were not tried."""
    for reason in dict.fromkeys(_skipped):
        terminalreporter.write_line(f"WARNING: clients were NOT tried: {reason}", yellow=True, bold=True)
