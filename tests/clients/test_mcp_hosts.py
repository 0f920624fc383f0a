"""Real hosts of the Model Context Protocol with `elision mcp`: a model calls our tools, and reads what was hidden."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from elision.testing.builders import call, trajectory
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from elision.trajectory.turn import Turn, make_content
from tests.cli import stored
from tests.clients.environments import Outside, plain_environment, run

KEY = "sk-client"
TASK = "What did the session main lose?"
ANSWER = "Five results are hidden; row 30 of the first is still needed."


@pytest.fixture
def store(tmp_path: Path) -> str:
    """The address of a store with a session `main`, five of whose results are hidden."""
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed: elision mcp is not tried")
    stored.played(tmp_path, "main", 7)
    return stored.url(tmp_path)


def test_claude_code(claude: Path, tmp_path: Path, store: str) -> None:
    """Claude Code starts the server by itself, lists what is hidden, recalls a part of it, and answers."""
    work = tmp_path / "work"
    work.mkdir()
    server = {"command": str(Path(sys.executable).with_name("elision")), "args": ["mcp", "--store", store]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"elision": server}}), encoding="utf-8")
    steps = (
        call("mcp__elision__list_hidden", id="c1", session="main"),
        call("mcp__elision__recall_hidden", id="c2", session="main", handle="t1.1", pattern="^row 30:"),
        call("mcp__elision__recall_hidden", id="c3", session="main", handle="t99.1"),
    )
    turns = [
        Turn(index=index, content=make_content(f"Step {index}."), actions=(action,))
        for index, action in enumerate(steps, start=1)
    ]
    script = trajectory(*turns, Turn(index=len(steps) + 1, content=make_content(ANSWER)), id="host", task=TASK)
    with Playback(script, Terms(key=KEY)) as provider, Outside() as outside:
        environment = plain_environment(
            tmp_path / "home",
            ANTHROPIC_BASE_URL=provider.url,
            ANTHROPIC_API_KEY=KEY,
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
            # It refuses to skip permissions as root, unless it is told that it is in a sandbox.
            IS_SANDBOX="1",
            MAX_THINKING_TOKENS="0",
            # All tools stand in the request, as in other hosts.
            ENABLE_TOOL_SEARCH="false",
        )
        options = ("--strict-mcp-config", "--mcp-config", str(tmp_path / "mcp.json"), "--dangerously-skip-permissions")
        command: list[str | Path] = [claude, "-p", TASK, "--model", "claude-sonnet-4-5", *options]
        said = run(command, {**environment, **outside.environment()}, work)
    assert ANSWER in said
    asked = [request for request in provider.requests if request.turn is not None]
    assert [request.turn for request in asked] == [1, 2, 3, 4]
    tools = {tool["name"] for tool in json.loads(asked[0].raw)["tools"]}
    assert {"mcp__elision__recall_hidden", "mcp__elision__search_history", "mcp__elision__inspect_session"} <= tools
    newest = asked[-1].raw.decode()
    assert "hidden_results" in newest
    assert "32: row 30: module_1_30.py" in newest
    assert "keeps nothing under t99.1: it has 7 turns" in newest
