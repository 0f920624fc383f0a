"""Plan the start of an agent behind a gateway, its command, variables and files; and run it.

It is run with the terminal handed through: its signals, its size, its exit code.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any, Final

from elision.errors import ElisionError
from elision.wrap.agent_table import AGENTS, FOLDER, URL, Agent

#: Set in every environment that leads to a gateway: its address.
GATEWAY_VARIABLE: Final = "ELISION_GATEWAY_URL"
_PROXY_VARIABLES: Final = ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
_LOOPBACK: Final = "127.0.0.1,localhost"
#: The server as the agent's tools name it.
SERVER_NAME: Final = "elision"
_CLAUDE_FILE: Final = "mcp.json"
#: The terminal sends them to the program too: it decides what they mean.
_SHARED_SIGNALS: Final = ("SIGINT", "SIGQUIT")
#: Sent to this process alone: passed on.
_FORWARDED_SIGNALS: Final = ("SIGTERM", "SIGHUP")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """command: the program and its arguments. variables: those that change. files: path -> text."""

    command: tuple[str, ...]
    variables: Mapping[str, str]
    files: Mapping[Path, str]


def plan_launch(
    agent: Agent, arguments: Sequence[str], url: str, folder: Path, environ: Mapping[str, str]
) -> LaunchPlan:
    """Plan the start of `agent` behind the gateway at `url`.

    arguments: the user's own. folder: for the agent's files; nothing is written here. environ: the user's variables.
    Raises ElisionError where one of them holds something that cannot be merged.
    """
    return LaunchPlan(
        command=(agent.binary, *(_fill(each, url, folder) for each in agent.arguments), *arguments),
        variables=fill_variables(agent.environment, url, folder, environ),
        files={folder / name: _fill(text, url, folder) for name, text in agent.files.items()},
    )


def fill_variables(
    templates: Mapping[str, str | Mapping[str, Any]], url: str, folder: Path | str, environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of a row as they are set beside `environ`, and those that every row needs."""
    variables = {GATEWAY_VARIABLE: url}
    for name, value in templates.items():
        if isinstance(value, str):
            variables[name] = _fill(value, url, folder)
        else:
            ours = json.loads(_fill(json.dumps(value), url, folder))
            variables[name] = _merge_json(name, environ.get(name, ""), ours)
    variables.update(bypass_proxies(environ))
    return variables


def _fill(text: str, url: str, folder: Path | str) -> str:
    return text.replace(URL, url).replace(FOLDER, str(folder))


def check_agent(agent: Agent, environ: Mapping[str, str]) -> None:
    """Raise ElisionError with the mend if `agent` cannot be started, or would bypass the gateway."""
    if agent.refusal:
        raise ElisionError(f"{agent.name}: {agent.refusal}")
    for name, meaning in agent.needs.items():
        if not environ.get(name):
            raise ElisionError(f"{agent.name} needs {name}: {meaning}")
    for name, why in agent.clashes.items():
        if environ.get(name, "") not in ("", "0", "false"):
            raise ElisionError(f"{agent.name}: {name} is set: {why}")
    if shutil.which(agent.binary, path=environ.get("PATH")) is None:
        if agent.name in AGENTS:
            raise ElisionError(
                f"{agent.name} is not installed: there is no program {agent.binary} on the PATH; install it, or add "
                "the folder that it is in to the PATH"
            )
        close = "".join(f"; did you mean {name}?" for name in get_close_matches(agent.binary, AGENTS, n=1))
        raise ElisionError(f"{agent.binary}: there is no such program on the PATH; install it, or name its path{close}")


def bypass_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep requests to this machine away from the proxies of `environ`; {} without one."""
    if not any(environ.get(name) for name in _PROXY_VARIABLES):
        return {}
    found = {}
    for name in ("NO_PROXY", "no_proxy"):
        own = environ.get(name, "")
        found[name] = f"{own},{_LOOPBACK}" if own else _LOOPBACK
    return found


def _merge_json(name: str, own: str, ours: Mapping[str, Any]) -> str:
    """Return the JSON object `own` with `ours` merged into it. Raises ElisionError if it is none."""
    try:
        value = json.loads(own) if own.strip() else {}
    except ValueError as error:
        raise ElisionError(f"{name} is not JSON ({error}); fix or unset it") from None
    if not isinstance(value, dict):
        raise ElisionError(f"{name} is not a JSON object; fix or unset it")
    return json.dumps(_merge_objects(value, ours))


def _merge_objects(own: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(own)
    for name, value in ours.items():
        before = found.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            found[name] = _merge_objects(before, value)
        else:
            found[name] = value
    return found


# -- the server of `elision mcp`, for this process alone: by a flag, a variable, or a temporary file -----------------


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


# -- running it -------------------------------------------------------------------------------------------------------


def run_program(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run `command` to its end with our terminal, and return its exit code; 128 + N if signal N ended it.

    It stays in our process group, so the terminal sends it Ctrl-C, Ctrl-Z and changes of the window's size itself.
    Raises ElisionError where it cannot be started.
    """
    try:
        process = subprocess.Popen(list(command), env=dict(environment))
    except OSError as error:
        raise ElisionError(f"{command[0]} cannot be started: {error.strerror or error}") from error
    with _pass_signals(process.pid):
        code = _wait_program(process)
    return 128 - code if code < 0 else code


def _wait_program(process: subprocess.Popen[bytes]) -> int:
    """Wait until `process` ends. While it is stopped, this process is stopped too, so that the shell takes over."""
    if not hasattr(os, "WUNTRACED"):
        return process.wait()
    while True:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            os.kill(os.getpid(), signal.SIGSTOP)
            os.kill(process.pid, signal.SIGCONT)
        else:
            process.returncode = os.waitstatus_to_exitcode(status)
            return process.returncode


@contextmanager
def _pass_signals(pid: int) -> Iterator[None]:
    """Leave the terminal's signals to the program, and forward those that only this process gets."""

    def ignore(number: int, frame: FrameType | None) -> None:
        pass

    def forward(number: int, frame: FrameType | None) -> None:
        os.kill(pid, number)

    # Handlers, where SIG_IGN would be inherited by the program.
    handlers = {**dict.fromkeys(_SHARED_SIGNALS, ignore), **dict.fromkeys(_FORWARDED_SIGNALS, forward)}
    before: dict[int, Any] = {}
    for name, handler in handlers.items():
        number = getattr(signal, name, None)
        if number is not None:
            before[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)
