"""One meter on a terminal, one line every ten seconds elsewhere."""

from __future__ import annotations

import io
from collections.abc import Iterator

from rich.console import Console

from elision.cli.console import ProgressMeter


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
