"""`elision ... --help` in narrow terminals."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from elision.cli.app import app
from elision.cli.declarations import list_rare_options


def commands(group: Any, *names: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Each command by its words, those of groups too, and the groups themselves."""
    yield names, group
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *names, name)


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize(("names", "command"), [*commands(app)], ids=str)
def test_nothing_is_cut_off(names: tuple[str, ...], command: Any, width: int) -> None:
    """Every name of an option is there whole, what a command does too, and no line is wider than the terminal."""
    shown = (
        CliRunner()
        .invoke(app, [*names, "--help-all" if list_rare_options(command) else "--help"], terminal_width=width)
        .output
    )
    assert all(len(line) <= width for line in shown.splitlines())
    words = " ".join(shown.split())
    for option in (each for each in command.params if each.name != "help_all"):
        for name in (*option.opts, *option.secondary_opts) if option.param_type_name == "option" else ():
            assert name in shown, name
        # A word that is longer than its column goes on in the next line.
        assert (option.help or "").replace(" ", "") in shown.replace(" ", "").replace("\n", "")
    for inner in getattr(command, "commands", {}).values():
        assert " ".join((inner.help or "").partition("\n\n")[0].split()) in words
