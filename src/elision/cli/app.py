"""The command line as typer knows it: its options, its commands, and how it ends."""

from __future__ import annotations

from typing import Annotated

import typer

from elision.cli.command_group import CommandGroup

app = typer.Typer(
    name="elision",
    cls=CommandGroup,
    help="Context management for LLM agents: price it on recorded runs, serve it as a gateway, see what it hid.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: the boxed one cuts names of options off in narrow terminals.
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        # It reads e-mail headers: slow to import, and no command needs it.
        from importlib.metadata import version

        typer.echo(f"elision {version('elision')}")
        raise typer.Exit


@app.callback()
def elision(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Context management for LLM agents: price it on recorded runs, serve it as a gateway, see what it hid."""


#: What the user mistyped. typer brings its own copy of click and names this class nowhere else.
_UsageError: type[Exception] = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")


def run_app() -> int:
    """Run the command that the arguments name; the exit code. What the user mistyped is one sentence."""
    try:
        code: object = app(standalone_mode=False)
    except typer.Abort:
        raise KeyboardInterrupt from None
    except _UsageError as error:
        # Without arguments the "error" is the help itself.
        text = error.format_message() if hasattr(error, "format_message") else str(error)
        typer.echo(text if type(error).__name__ == "NoArgsIsHelpError" else f"elision: {text}", err=True)
        return 2
    return code if isinstance(code, int) else 0
