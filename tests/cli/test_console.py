"""What commands print where no terminal is."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from elision.cli.app import app
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
