"""The processes that are measured: each listens on a port of its own, and tells how much of the processor it took."""

from __future__ import annotations

import compileall
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Final

from benchmarks.peers import PEER_ENVIRONMENT, Peer, PeerError, environment

ROOT: Final = Path(__file__).parents[2]
#: What is measured is what stands beside this file, from whatever folder it runs.
_OURS: Final = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
_TICKS: Final = os.sysconf("SC_CLK_TCK")
#: Seconds in which a side must listen; those that load models take long.
_PATIENCE: Final = 120.0
_ADDRESS: Final = re.compile(r"http://127\.0\.0\.1:(\d+)|^(\d+)$", re.MULTILINE)

LITELLM: Final = Peer(package="litellm[proxy]")
HEADROOM: Final = Peer(package="headroom-ai[proxy]")


@dataclass(frozen=True, slots=True)
class Side:
    """One process. address: where it listens."""

    name: str
    address: tuple[str, int]
    pid: int

    def cpu(self) -> float:
        """Seconds of processor time that it took so far, in all its threads and in children that are over."""
        told = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, told[11:15])) / _TICKS


class Sides:
    """Starts sides in front of one provider; with `with`, which ends them."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._stack = folder, ExitStack()
        self.upstream = ""

    def __enter__(self) -> Sides:
        # An installed package is compiled: its start costs no more than that.
        compileall.compile_dir(ROOT / "src" / "elision", quiet=2)
        self.upstream = f"http://127.0.0.1:{self._instant('provider').address[1]}"
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def control(self) -> Side:
        """A server that is asked nothing but what is measured: the provider's program once more."""
        return self._instant("control")

    def _instant(self, name: str) -> Side:
        return self._started(name, [sys.executable, "-m", "benchmarks.door.instant"], surroundings=_OURS)

    def bare(self) -> Side:
        command = [sys.executable, "-m", "benchmarks.door.bare", self.upstream]
        return self._started("bare pass-through", command, surroundings=_OURS)

    def ours(self, name: str, *options: str) -> Side:
        """`elision serve` with `options`."""
        store = self._folder / f"{name.replace(' ', '-')}.db"
        elision = str(Path(sys.executable).with_name("elision"))
        command = [elision, "serve", "--upstream-openai", self.upstream, "--port", "0"]
        side = self._started(name, [*command, "--store", f"sqlite:///{store}", *options], surroundings=_OURS)
        wait_until_ready(side.address[1])
        return side

    def litellm(self) -> Side:
        """LiteLLM's proxy. Raises PeerError."""
        python, port = environment(LITELLM), _free()
        config = self._folder / "litellm.yaml"
        config.write_text(
            "model_list:\n- model_name: gpt-4.1\n  litellm_params:\n    model: openai/gpt-4.1\n"
            f"    api_base: {self.upstream}/v1\n    api_key: none\n"
        )
        command = [str(python.with_name("litellm")), "--config", str(config), "--host", "127.0.0.1"]
        # On loopback, for as long as the benchmark takes.
        keyless = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
        return self._started("LiteLLM", [*command, "--port", str(port)], port=port, surroundings=keyless)

    def headroom(self) -> Side:
        """Headroom's proxy. Raises PeerError."""
        python, port = environment(HEADROOM), _free()
        # Nothing is fetched but packages, and nothing is told.
        quiet = {"HEADROOM_TELEMETRY": "off", "HEADROOM_OFFLINE": "1", "HF_HUB_OFFLINE": "1"}
        surroundings = {"OPENAI_TARGET_API_URL": self.upstream, "HOME": str(self._folder), **quiet}
        command = [str(python.with_name("headroom")), "proxy", "--port", str(port), "--no-rate-limit"]
        return self._started("Headroom", command, port=port, surroundings=surroundings)

    def _started(
        self, name: str, command: Sequence[str], *, port: int = 0, surroundings: Mapping[str, str] | None = None
    ) -> Side:
        return self._stack.enter_context(_running(name, command, self._folder, port, surroundings or {}))


@contextmanager
def _running(
    name: str, command: Sequence[str], folder: Path, port: int, surroundings: Mapping[str, str]
) -> Iterator[Side]:
    log = folder / f"{name.replace(' ', '-')}.log"
    environ = {key: value for key, value in os.environ.items() if not key.startswith("AGENT_CONTEXT_")}
    environ |= {**PEER_ENVIRONMENT, **surroundings}
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=environ)
    try:
        yield Side(name, ("127.0.0.1", _listening(process, name, log, port)), process.pid)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_until_ready(port: int) -> None:
    """Wait until the gateway at `port` says that it is ready. Raises PeerError."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        connection = HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)
        connection.request("GET", "/readyz")
        status = connection.getresponse().status
        connection.close()
        if status == 200:
            return
        time.sleep(0.05)
    raise PeerError("the gateway does not become ready")


def _listening(process: subprocess.Popen[bytes], name: str, log: Path, port: int) -> int:
    """The port, when somebody listens there. Raises PeerError."""
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if process.poll() is not None:
            break
        said = None if port else _ADDRESS.search(log.read_text(errors="replace"))
        at = port or (int(said[1] or said[2]) if said else 0)
        if at and _answers(at):
            return at
        time.sleep(0.05)
    told = log.read_text(errors="replace").strip().splitlines() or ["nothing"]
    raise PeerError(f"{name} does not listen; it said: {told[-1][:200]}")


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def _free() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        found: int = tried.getsockname()[1]
    return found
