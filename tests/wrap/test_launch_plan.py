"""What is set for each agent, and what is refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from elision.errors import ElisionError
from elision.wrap.agent_table import AGENTS, FOLDER, URL, Agent, make_command_agent
from elision.wrap.launch_plan import GATEWAY_VARIABLE, bypass_proxies, check_agent, plan_launch

GATEWAY = "http://127.0.0.1:4321"
FOLDER_HERE = Path("/tmp/elision-x")


@pytest.mark.parametrize("agent", AGENTS.values(), ids=lambda agent: agent.name)
def test_every_row_leads_to_the_gateway(agent: Agent) -> None:
    """Each agent gets the gateway's address by a variable, a flag or a file, unless it is refused with a sentence."""
    plan = plan_launch(agent, ["own"], GATEWAY, FOLDER_HERE, {})
    texts = [*plan.command, *plan.files.values(), *(plan.variables[name] for name in agent.environment)]
    if agent.refusal:
        assert not agent.environment
        assert not agent.arguments
    else:
        assert any(GATEWAY in text for text in texts)
        assert agent.apis
    assert not any(URL in text or FOLDER in text for text in texts)
    assert plan.command[0] == agent.binary
    assert plan.command[-1] == "own"
    assert plan.variables[GATEWAY_VARIABLE] == GATEWAY
    assert all(path.parent == FOLDER_HERE for path in plan.files)


def test_any_other_program() -> None:
    """A program without a row gets the variables that the usual clients read."""
    plan = plan_launch(make_command_agent("./agent.sh"), ["-v"], GATEWAY, FOLDER_HERE, {})
    assert plan.command == ("./agent.sh", "-v")
    assert plan.variables["OPENAI_BASE_URL"] == plan.variables["OPENAI_API_BASE"] == f"{GATEWAY}/v1"
    # With `/v1` behind it, as Anthropic's own clients have it, and without, as the Vercel AI SDK has it.
    assert plan.variables["ANTHROPIC_BASE_URL"] == f"{GATEWAY}/anthropic"


def test_a_configuration_in_a_variable_is_kept() -> None:
    """What the user's variable holds besides the base URLs stays in it."""
    own = {"theme": "dark", "provider": {"openai": {"options": {"timeout": 5}, "models": {}}, "other": {}}}
    plan = plan_launch(AGENTS["opencode"], [], GATEWAY, FOLDER_HERE, {"OPENCODE_CONFIG_CONTENT": json.dumps(own)})
    merged = json.loads(plan.variables["OPENCODE_CONFIG_CONTENT"])
    assert merged["theme"] == "dark"
    assert merged["provider"]["other"] == {}
    assert merged["provider"]["openai"] == {"options": {"timeout": 5, "baseURL": f"{GATEWAY}/v1"}, "models": {}}
    assert merged["provider"]["anthropic"]["options"] == {"baseURL": f"{GATEWAY}/v1"}


@pytest.mark.parametrize("broken", ["{", "[1]", "7"])
def test_a_broken_configuration_is_refused(broken: str) -> None:
    """The error names the variable."""
    with pytest.raises(ElisionError, match=r"OPENCODE_CONFIG_CONTENT is not (a )?JSON"):
        plan_launch(AGENTS["opencode"], [], GATEWAY, FOLDER_HERE, {"OPENCODE_CONFIG_CONTENT": broken})


def test_proxies_are_bypassed() -> None:
    """With a proxy in the environment, requests to this machine do not take it; what was excepted stays so."""
    assert bypass_proxies({"NO_PROXY": "a.example"}) == {}
    found = bypass_proxies({"HTTPS_PROXY": "http://proxy.example", "NO_PROXY": "a.example"})
    assert found == {"NO_PROXY": "a.example,127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}


def test_what_is_refused() -> None:
    """An agent that cannot be wrapped, lacks something, would bypass the gateway, or is not installed."""
    path = {"PATH": "/nowhere"}
    with pytest.raises(ElisionError, match="cannot reach a gateway on this machine"):
        check_agent(AGENTS["cursor"], path)
    with pytest.raises(ElisionError, match="codex needs OPENAI_API_KEY: an API key; a ChatGPT login"):
        check_agent(AGENTS["codex"], path)
    with pytest.raises(ElisionError, match="CLAUDE_CODE_USE_BEDROCK is set"):
        check_agent(AGENTS["claude"], {**path, "CLAUDE_CODE_USE_BEDROCK": "1"})
    with pytest.raises(ElisionError, match=r"claude is not installed: .* install it, or add the folder") as missing:
        check_agent(AGENTS["claude"], {**path, "CLAUDE_CODE_USE_BEDROCK": "0"})
    assert "did you mean" not in str(missing.value)
    with pytest.raises(ElisionError, match=r"no such program on the PATH; install it, or name its path$"):
        check_agent(make_command_agent("quite-another-program"), path)
    check_agent(make_command_agent(sys.executable), path)
    with pytest.raises(ElisionError, match=r"claud: there is no such program .* did you mean claude\?"):
        check_agent(make_command_agent("claud"), path)
