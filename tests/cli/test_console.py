"""What commands print where no terminal is."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from elision.cli.app import app

RUN = str(Path(__file__).parents[2] / "examples" / "runs" / "swe-agent-sympy-20801.traj.gz")


@pytest.mark.parametrize(
    "command",
    [("replay", RUN, "-s", "raw", "-s", "masking"), ("calibrate", RUN), ("prices",), ("config",), ("view", RUN)],
    ids=lambda command: command[0],
)
@pytest.mark.parametrize("width", ["60", "80", "140"])
def test_no_line_that_is_piped_ends_with_blanks(command: tuple[str, ...], width: str) -> None:
    """Tables and paragraphs are filled up in a terminal only, on both outputs."""
    result = CliRunner(env={"COLUMNS": width}).invoke(app, list(command))
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines() + result.stderr.splitlines()
    assert len(lines) > 3 or command[0] == "calibrate"
    assert [line for line in lines if line.endswith(" ")] == []
