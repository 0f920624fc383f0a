"""Where settings stand: arguments, environment, one TOML file. Names are checked here; each value keeps its place."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

from elision.config.setting_keys import (
    ALIASES,
    ALL_KEYS,
    CONFIG,
    GATEWAY,
    GATEWAY_KEYS,
    KEYS,
    PREFIX,
    SPECIFIED_PREFIX,
    Key,
    resolve_name,
    strip_prefix,
)
from elision.config.setting_readers import conceal_password
from elision.errors import SettingError
from elision.strategies.spec import STRATEGIES
from elision.strategies.strategy import Masking, Strategy
from elision.trajectory.redact import DEFAULT

FILE: Final = "elision.toml"
PROJECT: Final = "pyproject.toml"
#: What the place of an option on a command line begins with.
OPTION: Final = "--"
#: The table of `pyproject.toml`.
TABLE: Final = ("tool", "elision")
#: Variables with our prefix that are no settings: what `elision wrap` sets, and what `elision mcp` reads.
_OTHER_VARIABLES: Final = frozenset({"ELISION_GATEWAY_URL", "ELISION_MCP_TOKEN"})
#: Kubernetes and Docker give each container such a variable for a service called elision-gateway.
_SERVICE_ADDRESS: Final = re.compile(r"(?:tcp|udp|sctp)://\S+")
_CREDENTIAL: Final = re.compile(r"api|key|secret|password|credential|auth", re.IGNORECASE)


class Rank(IntEnum):
    """Who has the last word: the higher one."""

    DEFAULT = 0
    PRESET = 1
    FILE = 2
    ENVIRONMENT = 3
    ARGUMENT = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSetting:
    """A setting that somebody gave. place: variable, file:line or argument, for people."""

    key: Key
    value: Any
    place: str
    rank: Rank


@dataclass(frozen=True, slots=True)
class TypedOption:
    """A value from a command line. option: as it is typed there, such as --upstream-openai."""

    option: str
    value: object


def read_settings(environ: Mapping[str, str], folder: Path, arguments: Mapping[str, object]) -> dict[str, GivenSetting]:
    """What is given, by name: of several sources the one with the last word. Raises SettingError."""
    found: dict[str, GivenSetting] = {}
    for each in (*_read_file(environ, folder), *_read_environment(environ), *_read_arguments(arguments)):
        check_agreement(found.get(each.key.name), each)
        found[each.key.name] = each
    return found


def check_agreement(first: GivenSetting | None, second: GivenSetting) -> None:
    """Raise SettingError where one source says two different things."""
    if first is not None and first.rank == second.rank and first.value != second.value:
        newer, older = _format_given(second), _format_given(first)
        raise SettingError(f"{second.place} says {newer}, but {first.place} says {older}; keep one of them")


def _format_given(given: GivenSetting) -> str:
    """Return the value without what is secret in it."""
    if given.key.secret:
        return "a secret"
    return DEFAULT.redact_text(conceal_password(str(given.value)))


def _read_arguments(arguments: Mapping[str, object]) -> Iterator[GivenSetting]:
    for name, value in arguments.items():
        if isinstance(value, TypedOption):
            place, plain = (value.option, value.value)
        else:
            place, plain = (f"argument {name}", value)
        if plain is not None:
            yield _parse_setting(name, plain, place, Rank.ARGUMENT, str.lower)


def _read_environment(environ: Mapping[str, str]) -> Iterator[GivenSetting]:
    for variable in sorted(environ):
        # An empty variable is how a compose file says that it has nothing to say.
        if variable in _OTHER_VARIABLES or not environ[variable].strip():
            continue
        prefix = next((each for each in (PREFIX, SPECIFIED_PREFIX) if variable.startswith(each)), None)
        if prefix is None or variable == prefix + CONFIG.upper():
            continue
        name = variable.removeprefix(prefix)
        if prefix == PREFIX:
            # What is no setting, nor one mistyped, may be somebody else's.
            if _SERVICE_ADDRESS.fullmatch(environ[variable].strip()):
                continue
            if not get_close_matches(name.lower(), [*ALL_KEYS, *ALIASES], n=1, cutoff=0.85):
                continue
        if name != name.upper():
            raise SettingError(f"{variable}: variables are written in capitals: {prefix}{name.upper()}")
        spell = partial(_spell_variable, prefix)
        yield _parse_setting(name.lower(), environ[variable], variable, Rank.ENVIRONMENT, spell)


def _spell_variable(prefix: str, name: str) -> str:
    return prefix + name.upper()


def _parse_setting(name: str, value: object, place: str, rank: Rank, spelled: Any) -> GivenSetting:
    """The setting `name`, its value read. spelled: how names are written there. Raises SettingError."""
    key = ALL_KEYS.get(resolve_name(name))
    if key is None:
        unknown = "no such setting" if place == spelled(name) else f"no setting {spelled(name)!r}"
        if isinstance(value, Mapping):
            raise SettingError(f"{place}: no table [{name}] is known; only [gateway] has settings in {FILE}")
        raise SettingError(f"{place}: {unknown}; {_explain_unknown(name, spelled)}")
    if name == "strategy" and not isinstance(value, str) and rank is Rank.ARGUMENT:
        return GivenSetting(key=key, value=value, place=place, rank=rank)
    try:
        return GivenSetting(key=key, value=key.read(value), place=place, rank=rank)
    except ValueError as error:
        if key.secret:
            shown = "the value"
        elif isinstance(value, str):
            shown = repr(DEFAULT.redact_text(conceal_password(value))[:60])
        else:
            shown = repr(value)[:60]
        # Whoever typed an option does not know the setting behind it.
        if place.startswith(OPTION):
            wrong = "is not valid"
        else:
            wrong = f"is not a valid {name}"
        raise SettingError(f"{place}: {shown} {wrong}; {error}") from None


def _explain_unknown(name: str, spelled: Any) -> str:
    if name.lower().startswith(f"{GATEWAY}_"):
        family = GATEWAY_KEYS
    else:
        family = KEYS
    near = get_close_matches(strip_prefix(name.lower()), map(strip_prefix, family), n=1, cutoff=0.6)
    if near:
        return f"did you mean {spelled(next(key for key in family if strip_prefix(key) == near[0]))}?"
    kinds: list[type[Strategy]] = [Masking, *STRATEGIES.values()]
    for kind in kinds:
        if name.lower() in {field.name for field in fields(kind)}:
            strategy = f"{kind.name}({name.lower()}=…)"
            return f'it is an option of strategies: {spelled("strategy")} = "{strategy}"'
    if _CREDENTIAL.search(name):
        return "credentials are not settings: the provider's own client reads them"
    return f"there are: {', '.join(spelled(key) for key in family)}"


# -- the file ---------------------------------------------------------------------------------------------------------


def _read_file(environ: Mapping[str, str], folder: Path) -> Iterator[GivenSetting]:
    path, named = _find_file(environ, folder)
    if path is None:
        return
    try:
        text = _read_text(path)
    except SettingError as error:
        raise SettingError(f"{named}: {error}; name a TOML file" if named else str(error)) from None
    document = _parse_toml(text, path)
    inside = TABLE if path.name == PROJECT else ()
    for name, value in _read_table(document, path, named=named).items():
        if name == GATEWAY:
            yield from _read_gateway_table(value, text, _shorten_path(path, folder), inside)
            continue
        place = _format_place(_shorten_path(path, folder), _find_line(text, name, inside))
        if name in GATEWAY_KEYS:
            raise SettingError(
                f"{place}: {name} is written as {strip_prefix(name)} in the table [{'.'.join((*inside, GATEWAY))}]"
            )
        yield _parse_setting(name, value, place, Rank.FILE, str.lower)


def _read_gateway_table(table: Any, text: str, file: str, inside: tuple[str, ...]) -> Iterator[GivenSetting]:
    """The settings of the gateway's own table. Raises SettingError."""
    inner = (*inside, GATEWAY)
    if not isinstance(table, Mapping):
        raise SettingError(
            f"{_format_place(file, _find_line(text, GATEWAY, inside))}: {GATEWAY} is a table: [{'.'.join(inner)}]"
        )
    for name, value in table.items():
        place = _format_place(file, _find_line(text, name, inner))
        if name in KEYS and f"{GATEWAY}_{name}" not in GATEWAY_KEYS:
            raise SettingError(f"{place}: {name} is not a setting of the gateway; write it outside [{'.'.join(inner)}]")
        yield _parse_setting(f"{GATEWAY}_{name}", value, place, Rank.FILE, strip_prefix)


def _format_place(file: str, line: int) -> str:
    return f"{file}:{line}" if line else file


def _find_file(environ: Mapping[str, str], folder: Path) -> tuple[Path | None, str]:
    """Return the file to read, and what named it; None if there is none. Raises SettingError where there are two."""
    variables = [_spell_variable(prefix, CONFIG) for prefix in (PREFIX, SPECIFIED_PREFIX)]
    named = {variable: file for variable in variables if (file := environ.get(variable, "").strip())}
    if len(set(named.values())) > 1:
        first, second = (f"{variable} says {file}" for variable, file in named.items())
        raise SettingError(f"{first}, but {second}; keep one of them")
    for variable, file in named.items():
        return folder / file, variable
    own = folder / FILE
    project = folder / PROJECT
    is_shared = project.is_file() and _has_settings_table(project)
    if own.is_file() and is_shared:
        raise SettingError(f"{own} and [tool.elision] in {project} both have settings; keep one of them")
    if own.is_file():
        return own, ""
    return project if is_shared else None, ""


def _has_settings_table(project: Path) -> bool:
    # Not parsed unless it speaks of us: somebody's broken pyproject.toml is none of our business.
    return bool(re.search(r"^\s*\[?.*\belision\b", _read_text(project), re.MULTILINE)) and bool(
        _find_inner(_parse_toml(_read_text(project), project), TABLE)
    )


#: What the parser says of a key or table that is there twice, with the line of the second one.
_TWICE: Final = re.compile(r"(?:Cannot overwrite|twice|Cannot mutate).*\(at (?:line (?P<line>\d+)|end of document)")


def _parse_toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        if twice := _TWICE.search(str(error)):
            lines = text.rstrip().split("\n")
            line = int(twice["line"] or len(lines))
            name = lines[line - 1].partition("=")[0].strip()
            raise SettingError(f"{path}:{line}: {name} is set twice; keep one of them") from None
        hint = "; a text needs quotes" if str(error).startswith("Invalid value") else ""
        raise SettingError(f"{path}: {error}{hint}") from None


def _find_inner(document: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    table: Any = document
    for name in names:
        table = table.get(name) if isinstance(table, Mapping) else None
    return table


def _read_table(document: dict[str, Any], path: Path, *, named: str) -> Mapping[str, Any]:
    table = _find_inner(document, TABLE) if path.name == PROJECT else document
    if not isinstance(table, Mapping):
        raise SettingError(f"{path}: no table [{'.'.join(TABLE)}] in it{f', which {named} asks for' if named else ''}")
    return table


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise SettingError(f"{path}: not UTF-8, as TOML must be") from None
    except OSError as error:
        raise SettingError(f"{path}: cannot be read: {error.strerror or error}") from None


def _shorten_path(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _find_line(text: str, name: str, inside: tuple[str, ...]) -> int:
    """The line on which `name` is set in the table `inside`; 0 if that cannot be told.

    Looked for as written, and believed where what stands before it is TOML by itself and does not set it yet: so no
    line of a longer text, and no other table, is taken for it.
    """
    lines = text.splitlines(keepends=True)
    written = re.compile(rf"(?:^|[\s.{{,\[])[\"']?{re.escape(name)}[\"']?\s*(?:=|\.|\])")
    for number, line in enumerate(lines):
        if not written.search(line):
            continue
        try:
            before, with_it = (tomllib.loads("".join(lines[:end])) for end in (number, _find_value_end(lines, number)))
        except tomllib.TOMLDecodeError:
            continue
        inner = [_find_inner(part, inside) for part in (before, with_it)]
        if name not in (inner[0] or {}) and name in (inner[1] or {}):
            return number + 1
    return 0


def _find_value_end(lines: list[str], start: int) -> int:
    """Behind the last line of the value that begins on line `start`, counted from 0."""
    for end in range(start + 1, len(lines) + 1):
        try:
            tomllib.loads("".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        return end
    return len(lines)
