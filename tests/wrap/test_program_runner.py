"""A program that has the terminal: exit codes, signals, and a real pseudo-terminal."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from elision.errors import ElisionError
from elision.wrap.launch_plan import run_program
from tests.wrap.wrapped import TIMEOUT_SECONDS

#: Runs `run_program` on a program's text, in a session whose terminal is standard input.
_RUNNER = """\
import os, sys
from elision.wrap.launch_plan import run_program
if os.isatty(0):
    os.open(os.ttyname(0), os.O_RDWR)
sys.exit(run_program([sys.executable, "-c", sys.argv[1]], os.environ))
"""


@pytest.mark.parametrize(("text", "code"), [("", 0), ("raise SystemExit(7)", 7)])
def test_the_exit_code(text: str, code: int) -> None:
    """It is the program's."""
    assert run_program([sys.executable, "-c", text], os.environ) == code


def test_the_code_of_a_signal() -> None:
    """As shells have it: 128 and the signal's number."""
    text = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run_program([sys.executable, "-c", text], os.environ) == 128 + signal.SIGKILL


def test_what_cannot_be_started(tmp_path: Path) -> None:
    """A sentence names the program."""
    with pytest.raises(ElisionError, match=r"nothing.* cannot be started: No such file"):
        run_program([str(tmp_path / "nothing")], os.environ)


def test_signals_of_before_are_back() -> None:
    """Handlers are ours only while the program runs."""
    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    run_program([sys.executable, "-c", ""], os.environ)
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == before


def test_a_signal_to_us_is_forwarded() -> None:
    """SIGTERM ends the program in its own way, and its exit code is ours."""
    text = (
        "import signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])\n"
        "print('up', flush=True)\n"
        # `pause` would wait for ever if the signal came right before it.
        "signal.sigwait([signal.SIGTERM])\n"
        "sys.exit(9)"
    )
    with subprocess.Popen([sys.executable, "-c", _RUNNER, text], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_SECONDS) == 9


def test_a_real_terminal() -> None:
    """The program has the terminal and its size, and Ctrl-C is the program's to answer."""
    text = (
        "import os, signal, sys\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "print(sys.stdin.isatty(), *os.get_terminal_size(), flush=True)\n"
        # `pause` would wait for ever if the signal came right before it.
        "signal.sigwait([signal.SIGINT])\n"
        "sys.exit(5)"
    )
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    command = [sys.executable, "-c", _RUNNER, text]
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, start_new_session=True) as process:
        os.close(theirs)
        with os.fdopen(ours, "r+b", buffering=0) as terminal:
            assert terminal.readline().split() == [b"True", b"77", b"33"]
            terminal.write(b"\x03")
            assert process.wait(TIMEOUT_SECONDS) == 5


def test_a_stopped_program_stops_us() -> None:
    """A program that stops itself stops us as well, so that the shell takes over; both continue together."""
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nraise SystemExit(6)"
    with subprocess.Popen([sys.executable, "-c", _RUNNER, text]) as process:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        process.send_signal(signal.SIGCONT)
        assert process.wait(TIMEOUT_SECONDS) == 6
