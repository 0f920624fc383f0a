"""Run a program with the terminal handed through: its signals, its size, its exit code."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from elision.errors import ElisionError

#: The terminal sends them to the program too: it decides what they mean.
_SHARED_SIGNALS: Final = ("SIGINT", "SIGQUIT")
#: Sent to this process alone: passed on.
_FORWARDED_SIGNALS: Final = ("SIGTERM", "SIGHUP")


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
    if code < 0:
        return 128 - code
    return code


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
