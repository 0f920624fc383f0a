"""Writes docs/reference/cli.md from what the commands say of themselves: `python docs/update_cli.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elision.cli.app import app

PAGE = Path(__file__).parent / "reference" / "cli.md"

_INTRODUCTION = """\
# Command line

`docs/update_cli.py` writes this page from `elision --help`. The guides show the commands at work:
[replay](../start/replay.md), [tune](../guides/tuning.md), [view](../guides/view.md),
[calibrate](../guides/calibrate.md), [prices](../concepts/prices.md), [settings](settings.md),
[stores](../guides/stores.md).

Every command ends with 0 if all went well, with 2 and one sentence on standard error if it could not do what was asked,
and with 130 if it was interrupted; `elision serve --check` with 1 where something failed that it tried. What could not
be read of a file that holds more is reported, and is no failure.
"""


def reference() -> str:
    """The whole page."""
    group: Any = app
    return "\n".join([_INTRODUCTION, *_commands("elision", group)])


def _commands(front: str, group: Any) -> Iterator[str]:
    """The sections of a group's commands; those of a group within it have two names."""
    for name, command in group.commands.items():
        inner = hasattr(command, "commands")
        yield from _commands(f"{front} {name}", command) if inner else (_command(f"{front} {name}", command),)


def _command(name: str, command: Any) -> str:
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    options = [item for item in command.params if item.param_type_name == "option" and item.name != "help"]
    usage = " ".join([name, "[OPTIONS]", *map(_usage, arguments)])
    lines = [f"## {name}", "", *_paragraphs(command.help or ""), "```text", usage, "```", ""]
    lines += ["| | meaning | default |", "|---|---|---|", *map(_row, [*arguments, *options])]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""


def _usage(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()) + ("…" if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _row(item: Any) -> str:
    return f"| {_names(item)} | {_cell(item.help or '')} | {_default(item)} |"


def _names(item: Any) -> str:
    if item.param_type_name == "argument":
        return f"`{_usage(item)}`"
    value = "" if item.is_flag else " …"
    return ", ".join(f"`{name}{value}`" for name in item.opts)


def _default(item: Any) -> str:
    if item.required:
        return "needed"
    return "" if item.default is None or item.default is False or item.default == "" else f"`{item.default}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
