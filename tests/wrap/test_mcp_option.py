"""How each agent is given the server of `elision mcp`."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from elision.errors import ElisionError
from elision.wrap.agent_table import AGENTS, Agent
from elision.wrap.launch_plan import LaunchPlan, offer_mcp_server, plan_launch

FOLDER_HERE = Path("/tmp/elision-x")
SECRET = "postgresql://me:secret@db/agents"
COMMAND = ["python", "-m", "elision", "mcp", "--session-list", '{folder}/it\'s "here".txt']
LISTING = '/tmp/elision-x/it\'s "here".txt'


def plan(name: str, **environ: str) -> LaunchPlan:
    agent = offer_mcp_server(AGENTS[name], COMMAND, {"AGENT_CONTEXT_STORE": SECRET})
    return plan_launch(agent, ["Look."], "http://127.0.0.1:4321", FOLDER_HERE, environ)


def test_claude() -> None:
    """A file of its own, beside the user's servers; each flag takes one value, so a prompt stays a prompt."""
    found = plan("claude")
    assert found.command == (
        "claude",
        "--mcp-config=/tmp/elision-x/mcp.json",
        "--allowedTools=mcp__elision",
        "Look.",
    )
    server = json.loads(found.files[FOLDER_HERE / "mcp.json"])["mcpServers"]["elision"]
    assert server == {"command": "python", "args": [*COMMAND[1:-1], LISTING], "env": {"AGENT_CONTEXT_STORE": SECRET}}


def test_codex() -> None:
    """Flags that are TOML."""
    found = plan("codex")
    given = tomllib.loads("\n".join(found.command[2:-1:2]))
    assert given["mcp_servers"]["elision"] == {
        "command": "python",
        "args": [*COMMAND[1:-1], LISTING],
        "env_vars": ["AGENT_CONTEXT_STORE"],
        "required": True,
        "startup_timeout_sec": 60,
    }
    assert given["model_provider"] == "elision"
    assert found.variables["AGENT_CONTEXT_STORE"] == SECRET


@pytest.mark.parametrize("name", ["opencode", "kilo"])
def test_opencode(name: str) -> None:
    """Beside the servers of the user's own variable."""
    variable = f"{name.upper()}_CONFIG_CONTENT"
    found = plan(name, **{variable: json.dumps({"mcp": {"own": {"type": "remote"}}})})
    merged = json.loads(found.variables[variable])
    assert merged["mcp"]["own"] == {"type": "remote"}
    assert merged["mcp"]["elision"]["command"] == [*COMMAND[:-1], LISTING]
    assert merged["mcp"]["elision"]["environment"] == {"AGENT_CONTEXT_STORE": SECRET}
    assert "baseURL" in merged["provider"]["openai"]["options"]


@pytest.mark.parametrize("agent", AGENTS.values(), ids=lambda agent: agent.name)
def test_no_command_line_shows_the_store(agent: Agent) -> None:
    """Its address may hold a password. An agent that takes no server is refused with a sentence."""
    if agent.mcp:
        assert "secret" not in " ".join(plan(agent.name).command)
    else:
        with pytest.raises(ElisionError, match=f"{agent.name} takes no server by flag or variable; these do: claude,"):
            plan(agent.name)
