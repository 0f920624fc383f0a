"""Coding agents from npm under `elision wrap`: their traffic passes through, and the user's files stay as they are."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from elision.testing.builders import call, trajectory
from elision.testing.exchange import ReceivedRequest
from elision.testing.playback import Playback
from elision.testing.recorded_provider import Terms
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Action, Turn, make_content
from elision.wrap.agent_table import AGENTS
from tests.clients.environments import Outside
from tests.soak import leave_to_soak
from tests.wrap.wrapped import make_environment, read_tree, run_wrap

KEY = "sk-client"
PROMPT = "Look at a.txt and say how long it is."
ANSWER = "It has 60 lines."
LOOKS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class WrappedAgent:
    """An agent as its user calls it. shell: its tool for commands, and the name of that tool's argument.

    configuration: a file of the user's below the home -> its text. variables: those that the user sets.
    """

    fixture: str
    shell: tuple[str, str]
    arguments: tuple[str, ...]
    configuration: dict[str, str]
    variables: dict[str, str]


WRAPPED = {
    "claude": WrappedAgent(
        fixture="claude",
        shell=("Bash", "command"),
        arguments=("-p", PROMPT, "--model", "claude-sonnet-4-5", "--dangerously-skip-permissions"),
        configuration={".claude/settings.json": '{"theme": "dark"}\n', ".claude/CLAUDE.md": "Be brief.\n"},
        # It refuses to skip permissions as root, unless it is told that it is in a sandbox. The recording has no
        # thoughts.
        variables={
            "ANTHROPIC_API_KEY": KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "IS_SANDBOX": "1",
            "MAX_THINKING_TOKENS": "0",
        },
    ),
    "codex": WrappedAgent(
        fixture="codex",
        shell=("exec_command", "cmd"),
        arguments=(
            *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
            *("-m", "gpt-5", "-c", "features.plugins=false", "-c", "features.apps=false", PROMPT),
        ),
        configuration={
            ".codex/config.toml": "check_for_update_on_startup = false\n\n[analytics]\nenabled = false\n",
        },
        variables={"OPENAI_API_KEY": KEY},
    ),
    "opencode": WrappedAgent(
        fixture="opencode",
        shell=("bash", "command"),
        arguments=("run", "-m", "anthropic/claude-sonnet-4-5", PROMPT),
        # It adds the schema to a file without one, wrapped or not.
        configuration={
            ".config/opencode/opencode.json": '{"$schema": "https://opencode.ai/config.json", "share": "disabled"}\n'
        },
        variables={"ANTHROPIC_API_KEY": KEY, "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    ),
    "pi": WrappedAgent(
        fixture="pi",
        shell=("bash", "command"),
        arguments=("--provider", "openai", "--model", "gpt-5", "-p", PROMPT),
        configuration={".pi/agent/settings.json": '{"defaultThinkingLevel": "off"}\n'},
        variables={"OPENAI_API_KEY": KEY, "PI_OFFLINE": "1", "PI_TELEMETRY": "0", "PI_SKIP_VERSION_CHECK": "1"},
    ),
    "qwen": WrappedAgent(
        fixture="qwen",
        shell=("run_shell_command", "command"),
        arguments=("--auth-type", "openai", "--yolo", "-p", PROMPT),
        configuration={".qwen/QWEN.md": "Be brief.\n"},
        variables={"OPENAI_API_KEY": KEY, "OPENAI_MODEL": "gpt-5", "QWEN_TELEMETRY_ENABLED": "false"},
    ),
}


def make_script(shell: tuple[str, str], *more: Action) -> Trajectory:
    """A model that writes a file, looks at it many times, makes `more` calls, and says how long it is."""
    tool, argument = shell
    lines = ["seq -f 'line %g of alpha' 60 > a.txt"]
    lines += [f"echo look {number}; cat a.txt" for number in range(LOOKS)]
    actions = [run_shell(tool, argument, index, line) for index, line in enumerate(lines, start=1)]
    turns = [
        Turn(index=index, content=make_content(f"Step {index}."), actions=(action,))
        for index, action in enumerate([*actions, *more], start=1)
    ]
    last = Turn(index=len(turns) + 1, content=make_content(ANSWER))
    return trajectory(*turns, last, id="agent", task=PROMPT)


def run_shell(tool: str, argument: str, index: int, line: str) -> Action:
    more = {"description": "Look."} if tool in ("Bash", "bash", "run_shell_command") else {}
    if tool == "run_shell_command":
        more["is_background"] = False  # type: ignore[assignment]
    return call(tool, id=f"c{index}", **{argument: line}, **more)


@pytest.fixture
def start_folder(tmp_path: Path) -> Callable[[Path, str], Path]:
    """Puts an agent's program under its usual name into a folder for the PATH."""

    def make(program: Path, name: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / name).symlink_to(program)
        return folder

    return make


# Claude Code and Codex are wrapped with a server below.
@pytest.mark.parametrize("name", leave_to_soak(WRAPPED, "claude", "codex", "opencode", "qwen"))
def test_a_wrapped_agent(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, start_folder: Callable[[Path, str], Path]
) -> None:
    """The agent works to its end; old results are hidden, savings are reported, and no file of the user changed."""
    folder = start_folder(request.getfixturevalue(WRAPPED[name].fixture), AGENTS[name].binary)
    asked = work_through(name, make_script(WRAPPED[name].shell), folder, tmp_path)
    assert max(each.turn or 0 for each in asked) == LOOKS + 2
    assert b"tokens hidden" in asked[-1].raw


#: How each agent names the tool of a server.
MCP_TOOLS = {"claude": "mcp__elision__recall_hidden", "opencode": "elision_recall_hidden"}


@pytest.mark.parametrize("name", leave_to_soak(MCP_TOOLS, "opencode"))
def test_a_wrapped_agent_with_a_server(
    name: str, request: pytest.FixtureRequest, tmp_path: Path, start_folder: Callable[[Path, str], Path]
) -> None:
    """With `--mcp` the model reads what was hidden by the agent's own server, which shows this session alone."""
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed: elision wrap --mcp is not tried")
    folder = start_folder(request.getfixturevalue(WRAPPED[name].fixture), AGENTS[name].binary)
    script = make_script(WRAPPED[name].shell, call(MCP_TOOLS[name], id="m1", handle="t2.1", pattern="line 30 "))
    asked = work_through(name, script, folder, tmp_path, "--mcp")
    assert max(each.turn or 0 for each in asked) == LOOKS + 3
    newest = asked[-1].raw.decode()
    assert "[t2.1 " in newest
    assert "31: line 30 of alpha" in newest
    assert '"elision_recall"' not in newest


def test_codex_offers_a_server(codex: Path, tmp_path: Path, start_folder: Callable[[Path, str], Path]) -> None:
    """Codex starts the server and offers its tools, in a namespace, which no playback calls."""
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed: elision wrap --mcp is not tried")
    asked = work_through("codex", make_script(WRAPPED["codex"].shell), start_folder(codex, "codex"), tmp_path, "--mcp")
    offered = {tool["name"]: tool.get("tools", []) for tool in json.loads(asked[-1].raw)["tools"] if "name" in tool}
    assert "recall_hidden" in [tool["name"] for tool in offered["mcp__elision"]]
    assert "elision_recall" not in offered
    assert b"[t2.1 " in asked[-1].raw


def work_through(name: str, script: Trajectory, folder: Path, at: Path, *options: str) -> list[ReceivedRequest]:
    """Let an agent play `script` under `elision wrap` and return its requests. No file of its user may change.

    folder: for the PATH; it has the agent.
    """
    wrapped = WRAPPED[name]
    home, work = at / "home", at / "work"
    work.mkdir()
    for path, text in wrapped.configuration.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_text(text, encoding="utf-8")
    before = read_tree(home)
    with Playback(script, Terms(key=KEY)) as provider, Outside() as outside:
        environment = make_environment(home, provider.url, **wrapped.variables, **outside.environment())
        environment["PATH"] = f"{folder}:{environment['PATH']}"
        done = run_wrap([*options, name, *wrapped.arguments], environment, work)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    assert ANSWER in done.stdout
    assert "tokens sent" in done.stderr
    after = read_tree(home)
    assert {path: after.get(path) for path in before} == before
    return [each for each in provider.requests if each.turn is not None]
