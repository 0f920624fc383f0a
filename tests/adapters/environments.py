"""Run a framework's scenarios in the environment that has the framework."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.adapters.recording import LegRecord
from tests.processes import start_process

ROOT: Final = Path(__file__).parents[2]
#: Seconds that importing a framework may take, or one scenario, on a machine that has much else to do.
PATIENCE: Final = 300.0

#: Each framework's host, its environment, and the command that makes it.
ENVIRONMENTS: Final = {
    "langchain": (".venv-adapters", "make adapters"),
    "langgraph": (".venv-adapters", "make adapters"),
    "deepagents": (".venv-adapters", "make adapters"),
    "openai_agents": (".venv-adapters", "make adapters"),
    "pydantic_ai": (".venv-adapters", "make adapters"),
    "strands": (".venv-adapters", "make adapters"),
    "google_adk": (".venv-adapters", "make adapters"),
    "agent_framework": (".venv-adapters", "make adapters"),
    "litellm": (".venv-adapters", "make adapters"),
    "llama_index": (".venv-adapters", "make adapters"),
    "agno": (".venv-adapters", "make adapters"),
    "crewai": (".venv-crewai", "make crewai"),
    "inspect_ai": (".venv-adapters", "make adapters"),
    "openhands": (".venv-openhands", "make openhands, with Python 3.12 or newer"),
    "mini_swe_agent": (".venv-adapters", "make adapters"),
    "smolagents": (".venv-adapters", "make adapters"),
    "llm": (".venv-adapters", "make adapters"),
}


@dataclass(slots=True)
class Recordings:
    """What a framework played.

    folder: where each scenario has a folder, with the adapter's store in `elision.db`. versions: of its packages.
    usage:  what the framework tells of a call's usage: `full`, `cached` (not what was written), `prompt` or `nothing`.
    """

    host: str
    folder: Path
    versions: dict[str, str]
    usage: str
    import_seconds: float
    legs: dict[str, list[LegRecord]] = field(default_factory=dict)

    def find_store(self, scenario: str) -> str:
        """Return the URL of the adapter's store in a scenario."""
        return f"sqlite:///{self.folder / scenario / 'elision.db'}"


def find_python(host: str) -> Path:
    """Return the interpreter of the environment that has the framework; it may not exist."""
    return ROOT / ENVIRONMENTS[host][0] / "bin" / "python"


def explain_missing(host: str) -> str:
    """Return why a framework is not tried; "" where it is installed."""
    environment, command = ENVIRONMENTS[host]
    return "" if find_python(host).exists() else f"{host} is not installed in {environment}: {command}"


def run_host(host: str, folder: Path, hook: str = "", only: Sequence[str] = (), damage: str = "") -> Recordings:
    """Play the scenarios of a framework and return what was written down.

    hook: `MODULE:NAME` of the function that makes the adapter; "" for none. only: names of scenarios; all if empty.
    damage: what is done to the adapter's store between two legs: `record`, `file`, or "" for nothing.
    Raises AssertionError where the worker fails or hangs, with the end of what it wrote.
    """
    folder.mkdir(parents=True, exist_ok=True)
    command = [find_python(host), "-m", "tests.adapters.worker", host, folder, "--hook", hook, "--only", ",".join(only)]
    command += ["--damage", damage]
    # The code of this folder, whichever is installed there.
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    environment = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": paths}
    with (folder / "stderr.txt").open("w+", encoding="utf-8") as errors:
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": errors, "text": True, "encoding": "utf-8"}
        with start_process(command, cwd=folder, env=environment, **options) as process:
            assert process.stdout is not None
            lines = []
            while True:
                watch = threading.Timer(PATIENCE, process.kill)
                watch.start()
                line = process.stdout.readline()
                watch.cancel()
                if not line:
                    break
                lines.append(line)
            process.wait(PATIENCE)
        errors.seek(0)
        assert process.returncode == 0, f"the worker of {host} ended: {errors.read()[-4_000:]}"
    made = Recordings(host, folder, **json.loads(lines[0]))
    for line in lines[1:]:
        record = LegRecord.from_json(line)
        made.legs.setdefault(record.scenario, []).append(record)
    return made
