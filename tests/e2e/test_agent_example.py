"""`examples/agent.py` against a playback server: it does a task, keeps its session, and continues it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elision import open_store
from elision.testing.builders import commands
from elision.testing.playback import Playback
from tests.processes import PATIENCE

EXAMPLE = Path(__file__).parents[2] / "examples" / "agent.py"
WRITE = commands("echo one > a.txt", "cat a.txt", id="write", task="Write one line.", done="It is \x1b[31mthere.")
LONG = commands(*(f"seq {number * 90} {number * 90 + 30}" for number in range(6)), id="long", task="Count.")


@pytest.fixture
def server() -> Iterator[Playback]:
    with Playback([WRITE, LONG]) as playing:
        yield playing


def run(server: Playback, folder: Path, model: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the example in `folder`, in an environment without settings and keys."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AGENT_CONTEXT_", "ELISION_"))}
    plain = {name: value for name, value in kept.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
    own = [
        "--model",
        f"run:{model}",
        "--base-url",
        f"{server.url}/v1",
        "--store",
        "sqlite:///agent.db",
        "--session",
        "s",
    ]
    command = [sys.executable, str(EXAMPLE), *own, *more]
    return subprocess.run(command, cwd=folder, env=plain, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_a_task_is_done(server: Playback, tmp_path: Path) -> None:
    """The answer is standard output, without the model's escapes; a line a turn is standard error."""
    done = run(server, tmp_path, "write", "Write one line.")
    assert done.returncode == 0, done.stderr
    assert "there." in done.stdout
    assert "\x1b" not in done.stdout + done.stderr
    assert "echo one > a.txt" in done.stderr
    assert (tmp_path / "a.txt").read_text() == "one\n"
    assert server.violations == []


def test_a_session_continues(server: Playback, tmp_path: Path) -> None:
    """Stopped at its limit of turns, the same session goes on where it was."""
    first = run(server, tmp_path, "long", "Count.", "--max-turns", "3")
    assert "max_turns" in first.stderr
    second = run(server, tmp_path, "long")
    assert second.returncode == 0, second.stderr
    assert [request.turn for request in server.requests] == list(range(1, 8))
    store = open_store(f"sqlite:///{tmp_path / 'agent.db'}")
    assert store.info("s").turns == 7
    store.close()


def test_wrong_input_is_a_sentence(server: Playback, tmp_path: Path) -> None:
    """No session to continue, and no key for a provider."""
    nothing = run(server, tmp_path, "long")
    assert (nothing.returncode, nothing.stderr.startswith("agent: no session 's' to continue")) == (2, True)
