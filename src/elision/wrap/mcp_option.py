"""Give a wrapped agent the server of `elision mcp`, for this process alone: a flag, a variable, or a temporary file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from elision.errors import ElisionError
from elision.wrap.agent_table import AGENTS, FOLDER, Agent

#: The server as the agent's tools name it.
SERVER_NAME: Final = "elision"
_CLAUDE_FILE: Final = "mcp.json"


def offer_mcp_server(agent: Agent, command: Sequence[str], variables: Mapping[str, str]) -> Agent:
    """Return `agent` with the server that `command` starts, beside those of its user.

    variables: the server's environment, which may hold passwords: no command line shows them. Raises ElisionError
    where the agent takes servers by its own files alone.
    """
    if agent.mcp == "claude":
        return _offer_to_claude(agent, command, variables)
    if agent.mcp == "codex":
        return _offer_to_codex(agent, command, variables)
    if agent.mcp == "opencode":
        return _offer_to_opencode(agent, command, variables)
    able = ", ".join(row.name for row in AGENTS.values() if row.mcp)
    raise ElisionError(
        f"--mcp: {agent.name} takes no server by flag or variable; these do: {able}. Add the command "
        "`elision mcp --store URL` to its own configuration, or omit --mcp"
    )


def _offer_to_claude(agent: Agent, command: Sequence[str], variables: Mapping[str, str]) -> Agent:
    server = {"command": command[0], "args": list(command[1:]), "env": dict(variables)}
    text = json.dumps({"mcpServers": {SERVER_NAME: server}})
    # Both flags take several values: with "=" they take one, and leave the user's prompt alone. The tools only read.
    flags = (f"--mcp-config={FOLDER}/{_CLAUDE_FILE}", f"--allowedTools=mcp__{SERVER_NAME}")
    return replace(agent, arguments=(*agent.arguments, *flags), files={**agent.files, _CLAUDE_FILE: text})


def _offer_to_codex(agent: Agent, command: Sequence[str], variables: Mapping[str, str]) -> Agent:
    settings: dict[str, Any] = {"command": command[0], "args": list(command[1:]), "env_vars": list(variables)}
    # Codex waits for servers that it requires: so the tools are there from its first request on. Others may enter after
    # results are hidden, and break its cache. By itself it waits for 10 seconds, and Python may need more.
    settings |= {"required": True, "startup_timeout_sec": 60}
    flags: list[str] = []
    for name, value in settings.items():
        # A JSON string, or a list of them, is TOML too.
        flags += ("-c", f"mcp_servers.{SERVER_NAME}.{name}={json.dumps(value)}")
    return replace(agent, arguments=(*agent.arguments, *flags), environment={**agent.environment, **variables})


def _offer_to_opencode(agent: Agent, command: Sequence[str], variables: Mapping[str, str]) -> Agent:
    server = {"type": "local", "command": list(command), "environment": dict(variables), "enabled": True}
    environment: dict[str, str | Mapping[str, Any]] = {}
    for name, value in agent.environment.items():
        environment[name] = value if isinstance(value, str) else {**value, "mcp": {SERVER_NAME: server}}
    return replace(agent, environment=environment)
