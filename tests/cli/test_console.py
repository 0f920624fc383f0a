"""What commands print where no terminal is."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from elision.cli.app import app
from elision.cli.outputs import ProgressMeter
from tests.processes import start_process

RUN = str(Path(__file__).parents[2] / "examples" / "runs" / "swe-agent-sympy-20801.traj.gz")


@pytest.mark.parametrize(
    "command",
    [
        ("replay", RUN, "-s", "raw", "-s", "masking"),
        ("doctor", "--prices"),
        ("doctor", "--settings", "--all"),
        ("view", RUN),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("width", ["60", "80", "140"])
def test_no_line_that_is_piped_ends_with_blanks(command: tuple[str, ...], width: str) -> None:
    """Tables and paragraphs are filled up in a terminal only, on both outputs."""
    result = CliRunner(env={"COLUMNS": width}).invoke(app, list(command))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines() + result.stderr.splitlines()
    assert len(lines) > 3
    assert [line for line in lines if line.endswith(" ")] == []


def test_a_view_is_paged_in_a_terminal() -> None:
    """The user's pager gets it; without a terminal it is printed as it is (above)."""
    reader, terminal = os.openpty()
    environment = {**os.environ, "PAGER": "sed s/^/PAGED/", "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-m", "elision", "view", RUN, "--call", "3"]
    with start_process(command, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, env=environment) as process:
        os.close(terminal)
        shown = b""
        # A terminal whose other side is closed gives an error instead of an end.
        with suppress(OSError):
            while piece := os.read(reader, 65_536):
                shown += piece
        os.close(reader)
        assert process.wait() == 0
    assert shown.count(b"PAGED") > 10


def ticks(*moments: float) -> Iterator[float]:
    yield from moments


def test_elsewhere_a_line_every_ten_seconds() -> None:
    """Of what comes within ten seconds nothing is printed, and text of a recording acts on no terminal."""
    output = io.StringIO()
    clock = ticks(90.0, 99.0, 100.0, 109.9, 110.0, 119.0, 121.0)
    with ProgressMeter(Console(file=output, width=40), "replaying", clock=lambda: next(clock)) as meter:
        for number in range(6):
            meter.show(f"run {number} of \x1b[31m{'long ' * 20}", number / 6)
    lines = output.getvalue().splitlines()
    assert [line[:5] for line in lines] == ["run 1", "run 3", "run 5"]
    assert "\x1b" not in output.getvalue()


def test_on_a_terminal_one_meter_and_nothing_that_stays() -> None:
    """It changes in place, and is gone at the end; no line is printed beside it."""
    output = io.StringIO()
    console = Console(file=output, force_terminal=True, width=80)
    with ProgressMeter(console, "replaying") as meter:
        meter.show("3 of [bold]16[/bold] replays finished", 0.2)
    text = output.getvalue()
    assert "replaying: 3 of [bold]16[/bold] replays finished" in text
    assert text.endswith("\x1b[2K")  # The line is erased.


def test_a_quiet_command_says_nothing() -> None:
    output = io.StringIO()
    for is_terminal in (True, False):
        with ProgressMeter(Console(file=output, force_terminal=is_terminal, quiet=True), "replaying") as meter:
            meter.show("3 of 16")
    assert output.getvalue() == ""
