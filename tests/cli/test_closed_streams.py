"""Commands whose standard streams the caller closed, as `>&-` does, and the ports that commands listen at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from elision.cli.app import app
from elision.config.setting_keys import ALL_KEYS

ELISION = Path(sys.executable).with_name("elision")


def run_closed(closed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with streams closed, such as ">&-"."""
    line = f'exec "$0" "$@" {closed}'
    return subprocess.run(
        ["sh", "-c", line, str(ELISION), *arguments], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    "arguments",
    [["doctor", "--prices", "-q"], ["doctor", "--settings", "-q"], ["--help"], ["--version"], ["mcp", "--help"]],
)
def test_a_closed_output_is_no_failure(arguments: list[str]) -> None:
    """There is nobody to read it: the command ends as if its output went to the null device."""
    ended = run_closed(">&-", *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_errors_keep_their_code_when_nobody_reads_them(tmp_path: Path) -> None:
    """With all three streams closed, and with standard output alone."""
    command = ["sessions", "--store", f"sqlite:///{tmp_path}/missing.db"]
    assert run_closed("<&- >&- 2>&-", *command).returncode == 2
    ended = run_closed(">&-", *command)
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith("elision: ")
    assert "Traceback" not in ended.stderr


def test_no_two_commands_share_a_default_port() -> None:
    """So that each can run beside the others."""
    ports = {"serve": ALL_KEYS["gateway_port"].default}
    for name, command in [*app.commands.items(), ("playback", app.commands["lab"].commands["playback"])]:  # type: ignore[attr-defined]
        for option in command.params:
            if option.name == "port" and option.default is not None:
                ports[name] = option.default
    assert {"mcp", "playback", "serve"} <= set(ports)
    assert len(set(ports.values())) == len(ports), ports
