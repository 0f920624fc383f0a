"""The commands by name. A command's module is imported when that command is asked for: all others start fast."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from inspect import cleandoc
from typing import Any, Final

import typer
from typer.core import TyperGroup

#: Command -> what `elision --help` says of it: the first paragraph of its own help. The module `elision.cli.<command>`
#: holds a function of that name, or a typer app where the command is a group.
COMMANDS: Final[dict[str, str]] = {
    "replay": "Replay recorded runs under every strategy and price them as they would be billed.",
    "view": "Show exactly what the model would be sent at a call of a recorded run, and what is masked or summarized "
    "in it.",
    "calibrate": "Put the recorded bill beside the simulated one, and say why they part.",
    "prices": "List what models cost; with MODEL, all that is known of one.",
    "rules": "List what each rule of a strategy matches in recorded runs; hides nothing.",
    "run": "Let an agent work on a task with a shell, in a folder, until it hands in a result.",
    "serve": "Serve as the gateway between agents and their provider: change the base URL, nothing else.",
    "playback": "Play recorded runs as a provider: OpenAI's chat and Responses, Anthropic's messages, streaming "
    "included.",
    "config": "Show every setting in force and where it is from: environment, TOML file, preset or default.",
    "sessions": "List the sessions of a store, the one changed last first, and what hiding saved in each.",
    "show": "Show what was hidden in a session, when and why, and what it saved; with --call, a request as it was "
    "sent.",
    "recall": "Print a result of a session word for word, hidden or not; or where words stand in the session.",
    "store": "Stored sessions: what they take up, retention, checks, moving, export and import.",
}


class LazyCommands(UserDict[str, Any]):
    """Command by name, in the order of `COMMANDS`. Names cost nothing; looking a command up imports its module."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(COMMANDS))

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            self.data[name] = load_command(name)
        return self.data[name]


class CommandGroup(TyperGroup):
    """The group of all commands. Its help is written from `COMMANDS` and imports none of them."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands; no module is imported."""
        return list(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write every command with its line of `COMMANDS`; no module is imported."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def load_command(name: str) -> Any:
    """Import the module of the command `name`; the command as click wants it."""
    found = getattr(import_module(f"elision.cli.{name}"), name)
    holder = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name, short_help=found.info.help)
        registered = found.registered_commands
    else:
        holder.command(name)(found)
        registered = holder.registered_commands
    for each in registered:
        each.help = join_lines((each.callback and each.callback.__doc__) or "")
        # Given by itself it stands whole among the commands.
        each.short_help = each.help.partition("\n\n")[0]
    return typer.main.get_group(holder).commands[name]


def join_lines(text: str) -> str:
    """Return paragraphs without the source's own line breaks, which the help would show where they fell."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in cleandoc(text).split("\n\n"))
