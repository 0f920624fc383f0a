"""The commands by name. A command's module is imported when that command is asked for: all others start fast."""

from __future__ import annotations

from collections import UserDict
from importlib import import_module
from inspect import cleandoc
from typing import Any, Final

import typer
from typer.core import TyperGroup

#: Group -> command -> its line in `elision --help`, the first paragraph of its own help. The module
#: `elision.cli.<command>` holds a function of that name, or a typer app where the command is a group.
COMMAND_GROUPS: Final[dict[str, dict[str, str]]] = {
    "Try it on recorded runs": {
        "audit": "Divide the bill that agents' logs record by cause, and say what could have been avoided.",
        "replay": "Replay recorded runs under every strategy and price them as they would be billed.",
        "tune": "Find the window, summaries, schedule, gist and tool rules that suit recorded runs.",
        "view": "Show exactly what the model would be sent at a call of a recorded run, and what is masked or "
        "summarized in it.",
        "rules": "List what each rule of a strategy matches in recorded runs; hides nothing.",
        "calibrate": "Compare the recorded bill with the simulated one, and explain the difference.",
        "outcomes": "Join runs with their outcomes by instance id: cost against solve rate, strategy by strategy.",
        "prices": "List what models cost; with MODEL, all that is known of one.",
        "playback": "Play recorded runs as a provider: OpenAI's chat and Responses, Anthropic's messages, streaming "
        "included.",
    },
    "Run agents": {
        "wrap": "Run a coding agent behind a gateway: claude, codex, opencode, pi and others, or any command.",
        "serve": "Serve as the gateway between agents and their provider: change the base URL, nothing else.",
        "doctor": "Check what is installed, set and answering: whether agents reach the gateway, each finding with its "
        "mend.",
        "run": "Let an agent work on a task with a shell, in a folder, until it returns a result.",
    },
    "Look at sessions": {
        "sessions": "List the sessions of a store, the one changed last first, and what hiding saved in each.",
        "show": "Show what was hidden in a session, when and why, and what it saved; with --call, one request.",
        "recall": "Print a result of a session word for word, hidden or not; or where words occur in the session.",
        "mcp": "Serve stored sessions to hosts of the Model Context Protocol: search, recall, what they cost and why.",
    },
    "Keep": {
        "store": "Stored sessions: their size, retention, checks, moving, export and import.",
        "config": "Show the settings in force and where each is from: environment, TOML file, preset or default.",
    },
}
COMMANDS: Final[dict[str, str]] = {name: line for group in COMMAND_GROUPS.values() for name, line in group.items()}
#: Command -> how its arguments are read, where that is not as usual.
_CONTEXTS: Final[dict[str, dict[str, Any]]] = {
    # What follows the agent's name is the agent's own, options too.
    "wrap": {"allow_interspersed_args": False},
}
#: Type of a parameter -> how its value is called in help.
_METAVARS: Final = {"str": "TEXT", "Path": "PATH", "int": "N", "float": "NUMBER"}


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
        """Write every command with its line, group by group; no module is imported."""
        widest = max(map(len, COMMANDS))
        for title, commands in COMMAND_GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), line) for name, line in commands.items()])


def load_command(name: str) -> Any:
    """Import the module of the command `name`; the command as click wants it."""
    found = getattr(import_module(f"elision.cli.{name}"), name)
    holder = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name, short_help=found.info.help)
        registered = found.registered_commands
    else:
        holder.command(name, context_settings=_CONTEXTS.get(name))(found)
        registered = holder.registered_commands
    for each in registered:
        each.help = join_lines((each.callback and each.callback.__doc__) or "")
        # Given by itself it stands whole among the commands.
        each.short_help = each.help.partition("\n\n")[0]
    command = typer.main.get_group(holder).commands[name]
    for each in (command, *getattr(command, "commands", {}).values()):
        name_values(each)
    return command


def name_values(command: Any) -> None:
    """Give every parameter of `command` a name for its value that is no type of Python: PATHS..., N, TEXT."""
    for parameter in command.params:
        if parameter.metavar is not None or getattr(parameter, "is_flag", False):
            continue
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.name.upper()
            # The name says what it is; typer would print `<list[Path]>` after it.
            parameter.display_type = lambda ctx: ""
        else:
            kind = parameter.bare_type().removeprefix("list[").removesuffix("]")
            parameter.metavar = _METAVARS.get(kind, kind.upper())


def join_lines(text: str) -> str:
    """Return paragraphs without the source's own line breaks, which the help would show where they fell."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in cleandoc(text).split("\n\n"))
