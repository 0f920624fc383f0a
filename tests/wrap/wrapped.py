"""`elision wrap` as a process of its own, in a home of its own, in front of recorded runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from elision.testing.builders import step, trajectory, turn
from elision.trajectory.trajectory import Trajectory

CLIENT_PROGRAM = Path(__file__).parent / "client_program.py"
#: Seconds that a whole run may take on a busy machine.
TIMEOUT_SECONDS = 120.0
EAGER = "masking(window=2, schedule=every-turn)"
CALLS = 8


def make_run(calls: int = CALLS) -> Trajectory:
    """A model that calls a tool in each turn but the last."""
    steps = [step(number) for number in range(1, calls)]
    return trajectory(*steps, turn(calls, text="I have seen all."), id="agent", task="Look at every file.")


def make_environment(home: Path, upstream: str, **more: str) -> dict[str, str]:
    """What a user's shell sets: programs, a home, and a gateway's settings, which lead to `upstream`."""
    home.mkdir(parents=True, exist_ok=True)
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "SSL_CERT_FILE": os.environ["SSL_CERT_FILE"],
        "AGENT_CONTEXT_STRATEGY": EAGER,
        # The vocabulary, which a gateway loads as it starts, takes longer than all that these programs ask.
        "AGENT_CONTEXT_TOKENS": "estimate",
        "AGENT_CONTEXT_GATEWAY_UPSTREAM_OPENAI": upstream,
        "AGENT_CONTEXT_GATEWAY_UPSTREAM_ANTHROPIC": upstream,
        # A port at which nothing answers: a gateway of the developer's own is not used.
        "AGENT_CONTEXT_GATEWAY_PORT": "9",
        **more,
    }


def start_wrap(
    arguments: Sequence[str | Path], environment: Mapping[str, str], folder: Path, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    """Start `elision wrap` in `folder`."""
    program = "from elision.cli import main; main()"
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program, "wrap", *arguments],
        env=dict(environment),
        cwd=folder,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_wrap(
    arguments: Sequence[str | Path], environment: Mapping[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run `elision wrap` to its end."""
    with start_wrap(arguments, environment, folder) as process:
        try:
            out, err = process.communicate(timeout=TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return subprocess.CompletedProcess(list(arguments), process.returncode, out, err)


def read_tree(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`, byte for byte."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
