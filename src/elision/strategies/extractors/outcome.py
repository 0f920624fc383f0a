"""What happened in a masked observation, in a few words; and how texts and a call's arguments become a few words."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeAlias

from elision.trajectory.turn import Action, Observation

LABEL_CHARS = 80
RESULT_CHARS = 100
PATH_CHARS = 48
ELLIPSIS = "…"

PATH_KEYS = (
    "path",
    "file_path",
    "filePath",
    "filepath",
    "file",
    "filename",
    "file_name",
    "target_file",
    "notebook_path",
)
_INFORMATIVE = (
    *PATH_KEYS,
    "url",
    "query",
    "pattern",
    "command",
    "cmd",
    "description",
    "id",
    "name",
    "title",
    "text",
    "q",
)
_SECONDARY = frozenset(
    {"security_risk", "timeout", "thought", "explanation", "include_screenshot", "is_input", "new_tab"}
)

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[ -/]{0,4}[@-~]|[@-_])")


def shorten_to_line(text: str, limit: int) -> str:
    """`text` as a single printable line of at most `limit` characters; only its beginning is looked at."""
    start = text[:10_000].lstrip()[: limit * 6]
    plain = _ESCAPES.sub("", start)
    line = " ".join(plain.split())
    if not line.isprintable():
        line = " ".join("".join(char if char.isprintable() else " " for char in line).split())
    if len(line) <= limit:
        return line
    return line[: limit - 1].rstrip() + ELLIPSIS


def shorten_path(path: str) -> str:
    """`path` with leading folders left out where it is long: the end of a path tells the most."""
    path = path.strip()
    if len(path) <= PATH_CHARS:
        return path
    _, slash, rest = path[-PATH_CHARS:].partition("/")
    if slash and rest:
        return f"{ELLIPSIS}/{rest}"
    return ELLIPSIS + path[-PATH_CHARS:]


def format_count(number: int, noun: str, plural: str = "") -> str:
    """ "1 line", "2 lines"."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The middle of a placeholder. Both texts are made one printable line within their limits, whoever built it.

    label:  the key argument, what was done; at most LABEL_CHARS characters.
    result: what came of it; at most RESULT_CHARS characters; "no output" where nothing printable is left.
    """

    label: str
    result: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", shorten_to_line(self.label, LABEL_CHARS))
        object.__setattr__(self, "result", shorten_to_line(self.result, RESULT_CHARS) or "no output")


#: Reads one observation; None: not mine. The third argument is the assistant's text of the turn (text protocols).
Extractor: TypeAlias = Callable[[Action | None, Observation, str], Outcome | None]


@lru_cache(maxsize=128)
def decode_arguments(action: Action | None) -> Mapping[str, Any]:
    """The decoded arguments; {} where there are none, or they are no JSON object.

    The small cache serves extractors that look at the same call in turn, and the digest, which looks at it again;
    nobody changes the mapping.
    """
    if action is None or action.arguments.lstrip()[:1] != "{":
        return {}
    try:
        return action.decoded_arguments
    except RecursionError:  # nested beyond the interpreter's limit
        return {}


def find_tool_name(action: Action | None, observation: Observation) -> str:
    """The tool's name, "" if unknown."""
    return observation.tool or (action.name if action else "")


@lru_cache(maxsize=1_024)
def matches_tool(tool: str, globs: tuple[str, ...]) -> bool:
    """Whether the name of `tool` fits one of `globs`, in any case."""
    return any(fnmatchcase(tool.lower(), pattern.lower()) for pattern in globs)


def find_text_argument(arguments: Mapping[str, Any], *keys: str) -> str:
    """The first non-empty text that stands at one of `keys`."""
    for key in keys:
        if isinstance(value := arguments.get(key), str) and value.strip():
            return value
    return ""


def find_number_argument(arguments: Mapping[str, Any], *keys: str) -> int | None:
    """The first whole number that stands at one of `keys`."""
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**9:
            return value
    return None


def describe_arguments(action: Action | None) -> str:
    """The arguments in a few words: the only one, all where they are few and short, else the most informative one."""
    if action is None:
        return ""
    arguments = decode_arguments(action)
    if not arguments:
        if action.arguments.strip() in ("", "{}"):
            return ""
        return action.arguments[:10_000].strip().partition("\n")[0]
    simple = {key: _format_argument(key, value) for key, value in arguments.items() if key not in _SECONDARY}
    simple = {key: value for key, value in simple.items() if value}
    if len(simple) == 1:
        return next(iter(simple.values()))
    pairs = ", ".join(f"{key}={value}" for key, value in simple.items())
    if len(pairs) <= 60:
        return pairs
    informative = next((simple[key] for key in _INFORMATIVE if key in simple), "")
    return informative or shorten_to_line(pairs, 60)


def _format_argument(key: str, value: Any) -> str:
    """A value in a few words; "" for what says nothing."""
    if isinstance(value, str):
        if key in PATH_KEYS:
            return shorten_path(value)
        return shorten_to_line(value, 60)
    if isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 10**9):
        return str(value)
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return shorten_to_line(", ".join(value), 40)
        return f"{len(value)} items"
    return ""
