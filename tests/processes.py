"""Programs that tests start. Each is ended with everything it started, however its test ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import psutil

#: The variable that every descendant of this test process inherits. Its value is this process's own.
MARK: Final = "ELISION_TEST_PROCESS"
#: Seconds until a killed process must be gone; the machine may be busy.
PATIENCE: Final = 60.0
_CERTIFICATES: Final = Path(__file__).parent / "data" / "nobody.pem"
#: The variable that keeps what the machine had set for its certificates.
_MACHINE: Final = "ELISION_TEST_CERTIFICATES"


@contextmanager
def start_process(command: Sequence[Any], **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run `command` beside the test. At the end of the block what still runs of it is killed. options: of `Popen`."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        kill_process_tree(process)


@contextmanager
def start_processes(commands: Sequence[Sequence[Any]], **options: Any) -> Iterator[list[subprocess.Popen[Any]]]:
    """Run all `commands` at once, each as `start_process` does."""
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(start_process(command, **options)) for command in commands]


def kill_process_tree(process: subprocess.Popen[Any]) -> None:
    """Kill the process and its descendants, where they still run, and close its pipes."""
    if process.poll() is None:
        for each in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
    process.wait(PATIENCE)
    for pipe in (process.stdin, process.stdout, process.stderr):
        close_pipe(pipe)


def close_pipe(pipe: IO[Any] | None) -> None:
    """Close a pipe to a process that has ended: what was not yet written to it is of no use any more."""
    if pipe is not None:
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


def restore_interrupts() -> None:
    """Let SIGINT interrupt this process and its children again.

    A shell starts a job in the background (`make test &`) with SIGINT ignored, and an ignored signal is inherited.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def mark_descendants() -> None:
    """Mark everything that this process will start, so that `kill_leftovers` finds it."""
    os.environ[MARK] = uuid.uuid4().hex


def leave_out_certificates() -> None:
    """Let every TLS context read one certificate, that of nobody, and not the machine's, which takes 20 ms.

    Each client of a provider makes a context, and each gateway two. None of them leaves this machine.
    """
    os.environ.setdefault(_MACHINE, os.environ.get("SSL_CERT_FILE", ""))
    os.environ["SSL_CERT_FILE"] = str(_CERTIFICATES)


def make_index_environment() -> dict[str, str]:
    """Our environment with the machine's certificates, for a program that asks a package index."""
    environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_FILE"}
    return {**environment, "SSL_CERT_FILE": os.environ[_MACHINE]} if os.environ.get(_MACHINE) else environment


def kill_leftovers(mark: str) -> list[str]:
    """Kill every process that bears `mark`; return their command lines. What `multiprocessing` starts is left alone."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            ours = process.environ().get(MARK) == mark and process.pid != os.getpid()
            if ours and "multiprocessing" not in command and "execnet" not in command:
                process.kill()
                found.append(command)
    return found
