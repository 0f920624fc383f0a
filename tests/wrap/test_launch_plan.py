"""The start of an agent: its plan, the server that it is offered, and the terminal that it gets."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import tomllib
from pathlib import Path

import pytest

from elision.errors import ElisionError
from elision.wrap.agent_table import AGENTS, FOLDER, URL, Agent, make_command_agent
from elision.wrap.launch_plan import (
    GATEWAY_VARIABLE,
    LaunchPlan,
    bypass_proxies,
    check_agent,
    offer_mcp_server,
    plan_launch,
    run_program,
)
from tests.wrap.wrapped import TIMEOUT_SECONDS

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


#: Runs `run_program` on a program's text, in a session whose terminal is standard input.
_RUNNER = """\
import os, sys
from elision.wrap.launch_plan import run_program
if os.isatty(0):
    os.open(os.ttyname(0), os.O_RDWR)
sys.exit(run_program([sys.executable, "-c", sys.argv[1]], os.environ))
"""


@pytest.mark.parametrize(("text", "code"), [("", 0), ("raise SystemExit(7)", 7)])
def test_the_exit_code(text: str, code: int) -> None:
    """It is the program's."""
    assert run_program([sys.executable, "-c", text], os.environ) == code


def test_the_code_of_a_signal() -> None:
    """As shells have it: 128 and the signal's number."""
    text = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run_program([sys.executable, "-c", text], os.environ) == 128 + signal.SIGKILL


def test_what_cannot_be_started(tmp_path: Path) -> None:
    """A sentence names the program."""
    with pytest.raises(ElisionError, match=r"nothing.* cannot be started: No such file"):
        run_program([str(tmp_path / "nothing")], os.environ)


def test_signals_of_before_are_back() -> None:
    """Handlers are ours only while the program runs."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    run_program([sys.executable, "-c", ""], os.environ)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_signal_to_us_is_forwarded() -> None:
    """SIGTERM ends the program in its own way, and its exit code is ours."""
    text = (
        "import signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "print('up', flush=True)\n"
        # `pause` would wait for ever if the signal came right before it.
        "signal.sigwait([signal.SIGTERM])\n"
        "sys.exit(9)"
    )
    with subprocess.Popen([sys.executable, "-c", _RUNNER, text], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 9


def test_a_real_terminal() -> None:
    """The program has the terminal and its size, and Ctrl-C is the program's to answer."""
    text = (
        "import os, signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "print(sys.stdin.isatty(), *os.get_terminal_size(), flush=True)\n"
        # `pause` would wait for ever if the signal came right before it.
        "signal.sigwait([signal.SIGINT])\n"
        "sys.exit(5)"
    )
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    command = [sys.executable, "-c", _RUNNER, text]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, start_new_session=True) as process:
        os.close(theirs)
        with os.fdopen(ours, "r+b", buffering=0) as terminal:
            assert terminal.readline().split() == [b"True", b"77", b"33"]
            terminal.write(b"\x03")
            assert process.wait(TIMEOUT_SECONDS) == 5


def test_a_stopped_program_stops_us() -> None:
    """A program that stops itself stops us as well, so that the shell takes over; both continue together."""
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nraise SystemExit(6)"
    with subprocess.Popen([sys.executable, "-c", _RUNNER, text]) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.wait(TIMEOUT_SECONDS) == 6
