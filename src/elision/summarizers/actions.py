"""What an agent's call says: its command, and one line that names it."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from elision.summarizers.prose import ELLIPSIS, clip, one_line
from elision.trajectory.turn import Action

_COMMAND_KEYS = ("command", "cmd", "script", "bash_command")
PATH_KEYS = ("path", "file_path", "filePath", "filename", "file", "absolute_path", "notebook_path", "target_file")
# What agents wrap around a command without changing what it does.
_PRELUDE = re.compile(r"^\s*cd\s+\S+\s*(?:&&|;)\s*")
_PAGER = re.compile(r"\s*(?:2>&1\s*)?(?:\|\s*(?:head|tail)(?:\s+-n?\s*\d+|\s+-\d+)?\s*)?$")
_HEREDOC = re.compile(r"(<<-?\s*['\"]?(\w+)['\"]?[^\n]*)\n.*?(?:\n\2\b|\Z)", re.DOTALL)
#: Characters of a call in one line.
WIDTH = 90


def path_of(action: Action) -> str:
    """The file a structured call names; "" if it names none."""
    return _first(action.decoded, PATH_KEYS)


@lru_cache(maxsize=128)
def command_of(action: Action) -> str:
    """The shell command of `action`; "" if it is no shell call.

    The small cache serves the sections of a digest, each of which looks at the same calls again.
    """
    if action.implicit and not action.decoded:
        return action.arguments
    decoded = action.decoded
    if _first(decoded, PATH_KEYS):
        return ""
    words = next((decoded[key] for key in _COMMAND_KEYS if isinstance(decoded.get(key), list)), None)
    if words is not None:
        return " ".join(map(str, words))
    return _first(decoded, _COMMAND_KEYS)


def command_line(action: Action) -> str:
    """The command of `action` without the bodies of here-documents: what is run, not what is written."""
    return _HEREDOC.sub(r"\1", command_of(action))


def call(action: Action, width: int = WIDTH) -> str:
    """One line that names `action`: its command, or the tool with its arguments."""
    if command := command_line(action):
        return f"`{clip(command, width)}`"
    return clip(f"{action.name}({_arguments(action)})", width)


def same_call(action: Action) -> str:
    """A line that two calls share exactly if they do the same: spacing, `cd` and paging aside.

    What is not shown in full (long calls, bodies of here-documents) is there as a checksum, so that two long scripts
    do not pass for one.
    """
    command = command_of(action)
    if command:
        whole = _PAGER.sub("", _PRELUDE.sub("", command))
    else:
        whole = f"{action.name}({_arguments(action)})"
    shown = clip(_HEREDOC.sub(r"\1", whole), WIDTH).replace(" -> ", "->")
    if shown != one_line(whole).replace(" -> ", "->"):
        shown += f"~{zlib.crc32(one_line(whole).encode('utf-8', 'replace')) & 0xFFFF:04x}"
    if command:
        return f"`{shown}`"
    return shown


def is_code(action: Action) -> bool:
    """Whether `action` is of the kind only coding agents use: a command, or a file."""
    return bool(command_of(action) or path_of(action))


def _first(decoded: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((value for key in keys if isinstance(value := decoded.get(key), str) and value.strip()), "")


def _arguments(action: Action) -> str:
    decoded = action.decoded
    if not decoded:
        if action.arguments.strip() in ("", "{}"):
            return ""
        return one_line(action.arguments)
    return ", ".join(f"{key}={_value(value)}" for key, value in decoded.items())


def _value(value: Any) -> str:
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False)
    if len(text) <= 2 * WIDTH:
        return clip(text, 2 * WIDTH)
    return f"{clip(text, WIDTH)}{ELLIPSIS}{len(text)} chars"
