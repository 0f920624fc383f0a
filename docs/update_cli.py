"""Writes docs/reference/cli.md from what the commands say of themselves: `python docs/update_cli.py`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from elision.cli.app import app

PAGE = Path(__file__).parent / "reference" / "cli.md"

_INTRODUCTION = """\
# Command line

`docs/update_cli.py` writes this page from `elision --help`. The guides show the commands at work:
[replay](../start/replay.md), [tune, audit, calibrate, outcomes](../guides/measure.md),
[sessions, show, recall, view](../guides/dashboard.md), [prices](../concepts/schedules.md#prices),
[settings](settings.md), [stores](../guides/stores.md).

The exit code is 0 on success, 2 with one sentence on standard error if a command could not do what you asked, and 130
if you interrupted it. `elision serve --check` exits with 1 if a check fails. If part of a file cannot
be read, the command reports it and continues.
"""


#: An option of so many commands is explained once.
SHARED = 4


def reference() -> str:
    """The whole page."""
    group: Any = app
    commands = dict(_list_commands("elision", group))
    uses = Counter(_describe(item) for command in commands.values() for item in _list_options(command))
    shared = [line for line, count in uses.items() if count >= SHARED]
    everywhere = {line for line, count in uses.items() if count == len(commands)} | {
        "- `--help-all`: Show every option."
    }
    sections = [_command(name, command, shared, everywhere) for name, command in commands.items()]
    general = [
        "Every command has these, and `--help-all` if `--help` leaves out some options:",
        "",
        *sorted(everywhere),
    ]
    several = ["Several commands have these:", "", *(line for line in shared if line not in everywhere)]
    return "\n".join([_INTRODUCTION, "## Shared options", "", *general, "", *several, "", *sections])


def _list_commands(front: str, group: Any) -> Iterator[tuple[str, Any]]:
    """The commands of a group; those of a group within it have two names."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _list_commands(f"{front} {name}", command)
        else:
            yield f"{front} {name}", command


def _list_options(command: Any) -> list[Any]:
    return [item for item in command.params if item.param_type_name == "option" and item.name != "help"]


def _command(name: str, command: Any, shared: Sequence[str], everywhere: Collection[str]) -> str:
    arguments = [item for item in command.params if item.param_type_name == "argument"]
    lines = [f"## {name}", "", *_paragraphs(command.help or "")]
    if arguments:
        lines += ["```text", " ".join([name, "[OPTIONS]", *map(_usage, arguments)]), "```", ""]
    described = map(_describe, [*arguments, *_list_options(command)])
    lines += [line for line in described if line not in shared]
    options = [(_names(item), _describe(item)) for item in _list_options(command)]
    also = [name for name, line in options if line in shared and line not in everywhere]
    if also:
        lines.append(f"- {', '.join(also)}: [shared](#shared-options)")
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.strip().split("\n\n"):
        yield " ".join(paragraph.split())
        yield ""


def _usage(argument: Any) -> str:
    name = (argument.metavar or argument.name.upper()).strip("[].") + ("…" if argument.nargs != 1 else "")
    return name if argument.required else f"[{name}]"


def _describe(item: Any) -> str:
    return f"- {_names(item)}: {' '.join((item.help or '').split())}{_default(item)}"


def _names(item: Any) -> str:
    if item.param_type_name == "argument":
        return f"`{_usage(item)}`"
    value = "" if item.is_flag else " …"
    return ", ".join(f"`{name}{value}`" for name in item.opts)


def _default(item: Any) -> str:
    if item.required:
        return " Required."
    # Click has a value of its own for no default.
    if item.default in (None, False, "") or item.default is click.core.UNSET:
        return ""
    return f" Default: `{item.default}`."


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
