"""`elision serve` as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

#: Seconds until a process must be up, or down again; the machine may be busy.
TIMEOUT_SECONDS = 60.0


class ServeProcess:
    """A gateway; `url` is where it listens. environ: beside the surroundings, of which settings are left out."""

    def __init__(self, folder: Path, *options: str, **environ: str) -> None:
        program = "from elision.cli import main; main()"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AGENT_CONTEXT_")}
        self._log = folder / "log"
        with self._log.open("a") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", program, "serve", "--port", "0", *options],
                cwd=folder,
                env=kept | environ,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.popen.stdout is not None
        self.first_lines = [self.popen.stdout.readline() for _ in range(5)]
        self.url = self.first_lines[1].split()[-1] if self.first_lines[1] else ""

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def memory(self) -> int:
        """Bytes of memory that it holds."""
        pages = Path(f"/proc/{self.popen.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def send_request(self, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        """One request over a connection of its own."""
        connection = HTTPConnection(self.url.removeprefix("http://"), timeout=TIMEOUT_SECONDS)
        try:
            connection.request("GET" if body is None else "POST", path, body, headers)
            got = connection.getresponse()
            return got.status, got.read()
        finally:
            connection.close()

    def list_workers(self) -> set[int]:
        """The processes that it has started, but for the one that multiprocessing has for its own ends."""
        task = Path(f"/proc/{self.popen.pid}/task/{self.popen.pid}/children")
        found = set()
        for each in task.read_text().split():
            # Some end while they are looked at.
            with suppress(FileNotFoundError, ProcessLookupError):
                if b"spawn_main" in Path(f"/proc/{each}/cmdline").read_bytes():
                    found.add(int(each))
        return found

    def wait_for_workers(self, count: int) -> set[int]:
        """The processes, once there are `count` of them. Fails with the log where there will be no more."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while len(found := self.list_workers()) != count:
            assert self.popen.poll() is None, f"it ended with {self.popen.returncode}: {self.first_lines} {self.log}"
            assert time.monotonic() < until, f"workers {found}: {self.first_lines} {self.log}"
            # Whatever runs beside this may need the processor.
            time.sleep(0.01)
        return found

    def wait_until_warm(self) -> None:
        """Wait until the first request after that loads nothing."""
        until = time.monotonic() + TIMEOUT_SECONDS
        while b'"warm": true' not in self.send_request("/readyz")[1]:
            assert time.monotonic() < until, self.log
            # It needs the processor for what it loads.
            time.sleep(0.02)

    def end_process(self, number: int = signal.SIGTERM) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        code = self.popen.wait(TIMEOUT_SECONDS)
        assert self.popen.stdout is not None
        self.popen.stdout.close()
        return code


@contextmanager
def start_serve(folder: Path, *options: str, **environ: str) -> Iterator[ServeProcess]:
    """One that runs, in `folder`; it is killed where the test has not ended it."""
    process = ServeProcess(folder, *options, **environ)
    try:
        yield process
    finally:
        process.end_process(signal.SIGKILL)
