"""The commands and their names."""

from __future__ import annotations

from importlib.metadata import version
from inspect import cleandoc
from typing import Annotated

import typer

from lacuna.cli.calibrate import calibrate
from lacuna.cli.config import config
from lacuna.cli.playback import playback
from lacuna.cli.prices import prices
from lacuna.cli.recall import recall
from lacuna.cli.replay import replay
from lacuna.cli.rules import rules
from lacuna.cli.run import run as run_command
from lacuna.cli.serve import serve
from lacuna.cli.sessions import sessions
from lacuna.cli.show import show
from lacuna.cli.store import store
from lacuna.cli.view import view

app = typer.Typer(
    name="lacuna",
    help="Context management for LLM agents: replay recorded runs, price them, see what would be hidden.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: the boxed one cuts names of options off in narrow terminals.
    rich_markup_mode=None,
)
app.command("replay")(replay)
app.command("view")(view)
app.command("calibrate")(calibrate)
app.command("prices")(prices)
app.command("rules")(rules)
app.command("run")(run_command)
app.command("serve")(serve)
app.command("playback")(playback)
app.command("config")(config)
app.command("sessions")(sessions)
app.command("show")(show)
app.command("recall")(recall)
app.add_typer(store, name="store", short_help=store.info.help)


def _flowing(text: str) -> str:
    """Paragraphs without the source's own line breaks, which the help would show where they fell."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in cleandoc(text).split("\n\n"))


for _each in (*app.registered_commands, *store.registered_commands):
    _each.help = _flowing((_each.callback and _each.callback.__doc__) or "")
    # Given by itself it stands whole among the commands.
    _each.short_help = _each.help.partition("\n\n")[0]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"lacuna {version('lacuna-context')}")
        raise typer.Exit


@app.callback()
def lacuna(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")] = False,
) -> None:
    """Context management for LLM agents: replay recorded runs, price them, see what would be hidden."""


#: What the user mistyped. typer brings its own copy of click and names this class nowhere else.
_Mistyped: type[Exception] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def run() -> int:
    """Run the command that the arguments name; the exit code. What the user mistyped is one sentence."""
    try:
        code: object = app(standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except _Mistyped as error:
        # Without arguments the "error" is the help itself.
        text = str(error) if not hasattr(error, "format_message") else error.format_message()
        typer.echo(text if type(error).__name__ == "NoArgsIsHelpError" else f"lacuna: {text}", err=True)
        return 2
    return code if isinstance(code, int) else 0
