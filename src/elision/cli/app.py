"""The command line as click knows it: the commands by name, and how it ends.

A command's module is imported when that command is asked for: all others start fast.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

import click

from elision.cli.declarations import (
    add_help_all,
    build_command,
    build_parameters,
    gather_options,
    join_lines,
    name_rare_options,
)


class Entry(NamedTuple):
    """A command: `place` is the module and function that run it; `line` is the first paragraph of its help."""

    place: str
    line: str


#: Group -> command -> its entry in `elision --help`.
COMMAND_GROUPS: Final[Mapping[str, Mapping[str, Entry]]] = {
    "Try it on recorded runs": {
        "demo": Entry(
            "demo:demo", "Replay the runs that come with Elision; with --gateway, send one through a gateway."
        ),
        "replay": Entry(
            "replay:replay", "Replay recorded runs under every strategy and price them as they would be billed."
        ),
        "tune": Entry(
            "tune:tune", "Find the window, summaries, schedule, gist and tool rules that suit recorded runs."
        ),
        "audit": Entry(
            "audit:audit", "Divide the bill in agents' logs by cause, and show what could have been avoided."
        ),
        "view": Entry(
            "view:view",
            "Show exactly what the model would be sent at a call of a recorded run, and what is masked or summarized "
            "in it.",
        ),
    },
    "Run agents": {
        "wrap": Entry(
            "wrap:wrap", "Run a coding agent behind a gateway: claude, codex, opencode, pi and others, or any command."
        ),
        "serve": Entry(
            "serve:serve", "Serve as the gateway between agents and their provider: change the base URL, nothing else."
        ),
        "doctor": Entry(
            "doctor:doctor",
            "Check whether agents on this machine reach the gateway, and show how to fix what does not work.",
        ),
    },
    "Look at sessions": {
        "sessions": Entry(
            "sessions:sessions",
            "List the sessions of a store, the one changed last first, and what hiding saved in each.",
        ),
        "mcp": Entry(
            "mcp:mcp",
            "Serve stored sessions to hosts of the Model Context Protocol: search, recall, what they cost and why.",
        ),
    },
    "Research": {
        "lab": Entry("", "Measure strategies: outcomes of runs, recorded runs as a provider, agents in a closed loop."),
    },
}
COMMANDS: Final[Mapping[str, Entry]] = {
    name: entry for group in COMMAND_GROUPS.values() for name, entry in group.items()
}
#: Command -> its subcommands.
SUBCOMMANDS: Final[Mapping[str, Mapping[str, Entry]]] = {
    "sessions": {
        "show": Entry(
            "show:show",
            "Show what was hidden in a session, when and why, and what it saved.",
        ),
        "recall": Entry(
            "recall:recall",
            "Print a tool result of a session in full, hidden or not, or search the session.",
        ),
        "check": Entry("store:check", "Read everything in a store and list damage; nothing changes without --repair."),
        "gc": Entry("store:gc", "Delete old sessions, and release unused space."),
        "copy": Entry("store:copy", "Copy all sessions of one store into another, and compare both."),
        "export": Entry(
            "store:export",
            "Write stored sessions to a file: as runs that `elision replay` reads, or as logs that `import` reads.",
        ),
        "import": Entry("store:import_", "Read logs into a store, and compare both; nothing is overwritten."),
    },
    "lab": {
        "outcomes": Entry(
            "outcomes:outcomes",
            "Join runs with their outcomes by instance id: cost against solve rate, strategy by strategy.",
        ),
        "playback": Entry(
            "playback:playback",
            "Play recorded runs as a provider: OpenAI's chat and Responses, Anthropic's messages, streaming included.",
        ),
        "closed-loop": Entry(
            "closed_loop:closed_loop",
            "Let simulated agents solve tasks under each strategy: how many succeed, and what a solved task costs.",
        ),
    },
}
#: Command -> how its arguments are read, where that is not as usual.
_CONTEXTS: Final[Mapping[str, Mapping[str, Any]]] = {
    # What follows the agent's name is the agent's own, options too.
    "wrap": {"allow_interspersed_args": False},
}


class LazyCommands(UserDict[str, Any]):
    """Command by name, in the order of `entries`. Names cost nothing; looking a command up imports its module."""

    def __init__(self, entries: Mapping[str, Entry]) -> None:
        self._entries = entries
        super().__init__(dict.fromkeys(entries))

    def __getitem__(self, name: str) -> Any:
        if self.data[name] is None:
            self.data[name] = load_command(name, self._entries[name])
        return self.data[name]


class CommandGroup(click.Group):
    """Commands in titled sections. Its help is written from their entries and imports none of them."""

    def __init__(self, name: str, sections: Mapping[str, Mapping[str, Entry]], **attributes: Any) -> None:
        super().__init__(name, **attributes)
        self.sections = sections
        self.commands = LazyCommands({key: entry for group in sections.values() for key, entry in group.items()})
        add_help_all(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands; no module is imported."""
        return list(self.commands)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, how many more there are, and every command; no module is imported."""
        click.Command.format_options(self, ctx, formatter)
        name_rare_options(self, ctx, formatter)
        widest = max(map(len, self.commands))
        for title, commands in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), entry.line) for name, entry in commands.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that `args` begin with. Raises UsageError, which names the group of a subcommand."""
        group = next((name for name, commands in SUBCOMMANDS.items() if args[0] in commands), "")
        if ctx.parent is None and group and args[0] not in self.commands:
            raise click.UsageError(f"elision {args[0]}: the command is elision {group} {args[0]}")
        return super().resolve_command(ctx, args)


def load_command(name: str, entry: Entry) -> click.Command:
    """Import the module of the command `name`; the command as click wants it."""
    function = None
    if entry.place:
        module, _, attribute = entry.place.partition(":")
        function = getattr(import_module(f"elision.cli.{module}"), attribute)
    if name not in SUBCOMMANDS:
        assert function is not None
        return build_command(name, function, **_CONTEXTS.get(name, {}))
    return CommandGroup(
        name,
        {"Commands": SUBCOMMANDS[name]},
        params=build_parameters(function) if function else [],
        callback=_run_unless_subcommand(function) if function else None,
        invoke_without_command=function is not None,
        no_args_is_help=function is None,
        help=join_lines(function.__doc__ or "") if function else entry.line,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def _run_unless_subcommand(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return what runs `function` where no subcommand is named. Raises UsageError for options before a subcommand."""

    gathered = gather_options(function)

    def run(**given: Any) -> Any:
        ctx = click.get_current_context()
        if ctx.invoked_subcommand is None:
            return gathered(**given)
        typed = click.core.ParameterSource.COMMANDLINE
        if any(ctx.get_parameter_source(name) is typed for name in given):
            raise click.UsageError(
                f"options follow the command: {ctx.command_path} {ctx.invoked_subcommand} [OPTIONS]", ctx
            )
        return None

    return run


def _print_version(ctx: click.Context, parameter: click.Parameter, is_given: bool) -> None:
    if is_given:
        # It reads e-mail headers: slow to import, and no command needs it.
        from importlib.metadata import version

        click.echo(f"elision {version('elision')}")
        ctx.exit()


app = CommandGroup(
    "elision",
    COMMAND_GROUPS,
    help="Context management for LLM agents: price it on recorded runs, serve it as a gateway, see what it hid.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    params=[
        click.Option(
            ["--version"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            callback=_print_version,
            help="Show the version.",
        )
    ],
)


def run_app() -> int:
    """Run the command that the arguments name; the exit code. What the user mistyped is one sentence."""
    try:
        code: object = app.main(prog_name="elision", standalone_mode=False)
    except click.Abort:
        raise KeyboardInterrupt from None
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        click.echo(f"elision: {error.format_message()}", err=True)
        return 2
    return code if isinstance(code, int) else 0
