"""What an agent's call says: its command, and one line that names it."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from elision.summarizers.prose import ELLIPSIS, clip_line, join_lines
from elision.trajectory.turn import Action

_COMMAND_KEYS = ("command", "cmd", "script", "bash_command")
PATH_KEYS = ("path", "file_path", "filePath", "filename", "file", "absolute_path", "notebook_path", "target_file")
# What agents wrap around a command without changing what it does.
_PRELUDE = re.compile(r"^\s*cd\s+\S+\s*(?:&&|;)\s*")
_PAGER = re.compile(r"\s*(?:2>&1\s*)?(?:\|\s*(?:head|tail)(?:\s+-n?\s*\d+|\s+-\d+)?\s*)?$")
_HEREDOC = re.compile(r"(<<-?\s*['\"]?(\w+)['\"]?[^\n]*)\n.*?(?:\n\2\b|\Z)", re.DOTALL)
#: Characters of a call in one line.
WIDTH = 90


def find_path(action: Action) -> str:
    """The file a structured call names; "" if it names none."""
    return _find_first(action.decoded, PATH_KEYS)


@lru_cache(maxsize=128)
def find_command(action: Action) -> str:
    """The shell command of `action`; "" if it is no shell call.

    The small cache serves the sections of a digest, each of which looks at the same calls again.
    """
    if action.implicit and not action.decoded:
        return action.arguments
    decoded = action.decoded
    if _find_first(decoded, PATH_KEYS):
        return ""
    words = next((decoded[key] for key in _COMMAND_KEYS if isinstance(decoded.get(key), list)), None)
    if words is not None:
        return " ".join(map(str, words))
    return _find_first(decoded, _COMMAND_KEYS)


def find_command_line(action: Action) -> str:
    """The command of `action` without the bodies of here-documents: what is run, not what is written."""
    return _HEREDOC.sub(r"\1", find_command(action))


def describe_call(action: Action, width: int = WIDTH) -> str:
    """One line that names `action`: its command, or the tool with its arguments."""
    if command := find_command_line(action):
        return f"`{clip_line(command, width)}`"
    return clip_line(f"{action.name}({_format_arguments(action)})", width)


def identify_call(action: Action) -> str:
    """A line that two calls share exactly if they do the same: spacing, `cd` and paging aside.

    What is not shown in full (long calls, bodies of here-documents) is there as a checksum, so that two long scripts
    do not pass for one.
    """
    command = find_command(action)
    if command:
        whole = _PAGER.sub("", _PRELUDE.sub("", command))
    else:
        whole = f"{action.name}({_format_arguments(action)})"
    shown = clip_line(_HEREDOC.sub(r"\1", whole), WIDTH).replace(" -> ", "->")
    if shown != join_lines(whole).replace(" -> ", "->"):
        shown += f"~{zlib.crc32(join_lines(whole).encode('utf-8', 'replace')) & 0xFFFF:04x}"
    if command:
        return f"`{shown}`"
    return shown


def is_coding_action(action: Action) -> bool:
    """Whether `action` is of the kind only coding agents use: a command, or a file."""
    return bool(find_command(action) or find_path(action))


def _find_first(decoded: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((value for key in keys if isinstance(value := decoded.get(key), str) and value.strip()), "")


def _format_arguments(action: Action) -> str:
    decoded = action.decoded
    if not decoded:
        if action.arguments.strip() in ("", "{}"):
            return ""
        return join_lines(action.arguments)
    return ", ".join(f"{key}={_format_value(value)}" for key, value in decoded.items())


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False)
    if len(text) <= 2 * WIDTH:
        return clip_line(text, 2 * WIDTH)
    return f"{clip_line(text, WIDTH)}{ELLIPSIS}{len(text)} chars"
