"""The command line as click knows it: its commands, and how it ends."""

from __future__ import annotations

import click

from elision.cli.command_group import COMMAND_GROUPS, CommandGroup


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
