"""Commands made from functions: the annotation of each parameter holds its type, its names and its help.

A parameter whose type is a dataclass stands for an option for each of its fields: what several commands ask for.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import click

#: Type of an option -> what its value is called in help.
_METAVARS: Final[Mapping[type, str]] = {str: "TEXT", Path: "PATH", int: "N", float: "NUMBER"}


class Option:
    """An option of a command. rare: only `--help-all` lists it. without_value: its value where only its name is given.

    min, max: bounds of a number. envvar: the variable that is read where the option is not given.
    """

    def __init__(
        self,
        *names: str,
        help: str,
        rare: bool = False,
        min: int | None = None,
        max: int | None = None,
        envvar: str | None = None,
        without_value: str | None = None,
    ) -> None:
        self.names = names
        self.help = help
        self.rare = rare
        self.min = min
        self.max = max
        self.envvar = envvar
        self.without_value = without_value


@dataclass(frozen=True, kw_only=True)
class Argument:
    """An argument of a command, called `metavar` in its help, or else as its parameter."""

    help: str
    metavar: str | None = None


class CommandWithHelp(click.Command):
    """A command whose `--help` shows its common options, and whose `--help-all` shows every one."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        add_help_all(self)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that the first screen shows, and how many more there are."""
        super().format_options(ctx, formatter)
        name_rare_options(self, ctx, formatter)


def build_command(name: str, function: Callable[..., Any], **settings: Any) -> CommandWithHelp:
    """Return the command `name` that runs `function`; its help is the docstring. settings: of click's context."""
    return CommandWithHelp(
        name,
        params=build_parameters(function),
        callback=gather_options(function),
        help=join_lines(function.__doc__ or ""),
        context_settings={"help_option_names": ["-h", "--help"], **settings},
    )


def build_parameters(function: Callable[..., Any]) -> list[click.Parameter]:
    """Return the arguments and options that the parameters of `function`, or the fields of a dataclass, declare."""
    hints = get_type_hints(function, include_extras=True)
    found: list[click.Parameter] = []
    for each in signature(function).parameters.values():
        if is_dataclass(hints[each.name]):
            found += build_parameters(hints[each.name])
        else:
            found.append(_build_parameter(each, *get_args(hints[each.name])))
    return found


def gather_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` as click calls it, with every option by name; those of a dataclass become its value."""
    groups: dict[str, Any] = {name: kind for name, kind in get_type_hints(function).items() if is_dataclass(kind)}

    def run(**given: Any) -> Any:
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        return function(**given)

    return run


def _build_parameter(parameter: Parameter, annotation: Any, declared: Option | Argument) -> click.Parameter:
    kind, is_list = _read_type(annotation)
    required = parameter.default is Parameter.empty
    settings: dict[str, Any] = {
        "type": click.Path(path_type=Path) if kind is Path else kind,
        "default": None if required else parameter.default,
        "help": declared.help,
        "required": required,
    }
    if is_list:
        settings["callback"] = lambda ctx, parameter, value: list(value) if value else None
    if isinstance(declared, Argument):
        named = (declared.metavar or parameter.name.upper()) + ("..." if is_list else "")
        settings["metavar"] = named if required else f"[{named}]"
        return click.Argument([parameter.name], nargs=-1 if is_list else 1, **settings)
    return _build_option(declared, parameter.name, kind, is_list, settings)


def _read_type(annotation: Any) -> tuple[Any, bool]:
    """Return, of list[Path] | None, the type of one value, and whether there may be several."""
    if get_origin(annotation) in (types.UnionType, Union):
        (annotation,) = (each for each in get_args(annotation) if each is not type(None))
    if get_origin(annotation) is list:
        return get_args(annotation)[0], True
    return annotation, False


def _build_option(declared: Option, name: str, kind: Any, is_list: bool, settings: dict[str, Any]) -> click.Option:
    if (declared.min, declared.max) != (None, None):
        bounded = click.IntRange if kind is int else click.FloatRange
        settings["type"] = bounded(declared.min, declared.max)
    if kind is bool:
        settings |= {"is_flag": True, "flag_value": True}
    else:
        has_default = settings["default"] not in (None, "")
        settings |= {"metavar": _METAVARS[kind], "multiple": is_list, "show_default": has_default}
    if declared.without_value is not None:
        settings |= {"is_flag": False, "flag_value": declared.without_value, "metavar": f"[{_METAVARS[kind]}]"}
    return click.Option(
        [*declared.names, name],
        hidden=declared.rare,
        envvar=declared.envvar,
        show_envvar=declared.envvar is not None,
        **settings,
    )


def add_help_all(command: click.Command) -> None:
    """Give `command` the option `--help-all` if the first screen of its help lacks an option."""

    def print_all(ctx: click.Context, parameter: click.Parameter, is_given: bool) -> None:
        if not is_given:
            return
        rare = list_rare_options(command)
        for each in rare:
            each.hidden = False
        click.echo(ctx.get_help())
        for each in rare:
            each.hidden = True
        ctx.exit()

    if list_rare_options(command):
        option = click.Option(
            ["--help-all", "help_all"],
            is_flag=True,
            is_eager=True,
            expose_value=False,
            hidden=True,
            callback=print_all,
            help="Show every option.",
        )
        command.params.append(option)


def list_rare_options(command: click.Command) -> list[click.Option]:
    """Return the options that `--help` leaves out and `--help-all` shows."""
    options = (each for each in command.params if isinstance(each, click.Option))
    return [each for each in options if each.hidden and each.name != "help_all"]


def name_rare_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write how many options the screen leaves out, if any."""
    if rare := list_rare_options(command):
        formatter.write_paragraph()
        formatter.write_text(f"{len(rare)} more: {ctx.command_path} --help-all")


def join_lines(text: str) -> str:
    """Return paragraphs without the source's own line breaks, which the help would show where they fell."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in cleandoc(text).split("\n\n"))
