"""Other libraries on the same messages, each in an environment of its own, installed from PyPI with uv.

The environments lie in benchmarks/.envs and stay there. What cannot be installed is left out, and why is printed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".envs"
#: Nothing is fetched but packages: no interpreter, and no prices (LiteLLM's thread for them can break its import).
PEER_ENVIRONMENT = {
    **os.environ,
    "UV_PYTHON_DOWNLOADS": "never",
    "OPENHANDS_SUPPRESS_BANNER": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """package: as PyPI has it. script: beside this file, "" for none. python: the oldest minor version of Python 3 it
    runs on."""

    package: str
    script: str = ""
    python: int = 11


PEERS = (
    Peer(package="langchain", script="on_langchain.py"),
    Peer(package="openhands-sdk", script="on_openhands.py", python=12),
)


class PeerError(Exception):
    """A peer cannot be run here; says why."""


def measured(peer: Peer, session: Path) -> tuple[str, dict[str, list[float]]]:
    """Name and version, and label -> seconds of each call. Raises PeerError."""
    python = environment(peer)
    printed = _run(str(python), str(HERE / peer.script), str(session))
    found: dict[str, Any] = json.loads(printed.strip().splitlines()[-1])
    return found["version"], found["seconds"]


def environment(peer: Peer) -> Path:
    """The interpreter of the peer's environment, which is made if it is not there. Raises PeerError."""
    folder = ENVIRONMENTS / peer.package.partition("[")[0]
    python = folder / "bin" / "python"
    if (folder / "ready").exists():
        return python
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
    if uv is None:
        raise PeerError("there is no uv; `make setup` installs it")
    _run(uv, "venv", "--quiet", "--clear", "--python", str(interpreter(peer.python)), str(folder))
    _run(uv, "pip", "install", "--quiet", "--python", str(python), peer.package)
    (folder / "ready").touch()
    return python


def interpreter(minor: int) -> Path:
    """An interpreter of Python 3.`minor` or newer that is on this machine. Raises PeerError."""
    found = next((path for path in _interpreters(minor) if _is(path, minor)), None)
    if found is None:
        raise PeerError(f"it needs Python 3.{minor}, and no interpreter that new was found")
    return found


def _interpreters(minor: int) -> Iterator[Path]:
    yield Path(sys.executable)
    versions = range(minor, minor + 8)
    yield from (Path(found) for each in versions if (found := shutil.which(f"python3.{each}")))
    # Behind pyenv's own commands, which stand for nothing where no version is chosen.
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(root.glob("versions/3.*/bin/python3"))


def _is(path: Path, minor: int) -> bool:
    test = f"import sys; sys.exit(sys.version_info < (3, {minor}))"
    return subprocess.run([path, "-c", test], capture_output=True, check=False).returncode == 0


def _run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=PEER_ENVIRONMENT)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()
        raise PeerError(f"{Path(command[0]).name} said: {said[-1][:200]}")
    return done.stdout
