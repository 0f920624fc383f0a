"""Programs that are not in this environment: LiteLLM's process, agents from npm, and how they are kept on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-clients" / "bin" / "python"
OPENHANDS = ROOT / ".venv-openhands" / "bin" / "python"
AGENTS = ROOT / ".node-clients" / "node_modules"
HERE = Path(__file__).parent
#: Seconds that a program may take for a whole run.
PATIENCE = 120.0


def plain_environment(home: Path, **more: str) -> dict[str, str]:
    """What a program sees of ours: where programs are, and a home that is a test's own."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {name: os.environ[name] for name in ("PATH", "SSL_CERT_FILE")}
    return {**kept, "HOME": str(home), "LANG": "C.UTF-8", **more}


class LiteLLM:
    """The process of `litellm_driver.py`: `do` asks it for something."""

    def __init__(self, home: Path) -> None:
        environment = plain_environment(
            home,
            LITELLM_LOCAL_MODEL_COST_MAP="True",
            MSWEA_SILENT_STARTUP="1",
            MSWEA_COST_TRACKING="ignore_errors",
            MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT="1",
            MSWEA_GLOBAL_CONFIG_DIR=str(home),
        )
        self._log = (home / "stderr.txt").open("w+", encoding="utf-8")
        self._process = subprocess.Popen(
            [PYTHON, HERE / "litellm_driver.py"],
            env=environment,
            cwd=home,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            encoding="utf-8",
        )

    def do(self, name: str, **arguments: Any) -> Any:
        """What `name` of the driver gives. Raises AssertionError with its traceback where it failed or hung."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": name, **arguments}) + "\n")
        self._process.stdin.flush()
        watch = threading.Timer(PATIENCE, self._process.kill)
        watch.start()
        line = self._process.stdout.readline()
        watch.cancel()
        answer = json.loads(line or json.dumps({"error": self._said()}))
        assert "error" not in answer, answer["error"]
        return answer["got"]

    def close(self) -> None:
        """End it."""
        self._process.communicate()
        self._log.close()

    def _said(self) -> str:
        self._log.seek(0)
        return f"the driver ended: {self._log.read()[-4_000:]}"


@dataclass(slots=True)
class Outside:
    """A proxy to nowhere: what a program wanted from beyond this machine, in the first lines of its requests."""

    asked: list[str] = field(default_factory=list)
    _listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    def environment(self) -> dict[str, str]:
        """Variables that lead programs here."""
        url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
        return {**dict.fromkeys(names, url), "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}

    def __enter__(self) -> Outside:
        threading.Thread(target=self._serve, name="outside", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        # Closing alone does not wake who waits in `accept`.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5.0)
                self.asked.append(connection.recv(4_096).decode("latin-1").partition("\r\n")[0])


def run(command: list[str | Path], environment: Mapping[str, str], folder: Path) -> str:
    """What a program prints. Raises AssertionError where it fails."""
    done = subprocess.run(
        command,
        env=dict(environment),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    return done.stdout
