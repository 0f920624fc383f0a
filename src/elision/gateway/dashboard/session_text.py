"""What people know a session and a tool result by: the API of its client, the command that was run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Final

from elision.providers.provider_table import PROVIDERS
from elision.trajectory.plan import Key
from elision.trajectory.turn import Action, Turn

#: Characters of a command that the API gives.
MAX_COMMAND_CHARS: Final = 400

#: Arguments that are the command by themselves.
_COMMANDS: Final = ("command", "cmd", "code", "query", "path", "file_path")


def describe_api(dialect: str) -> str:
    """Return the name of the API that the client speaks; "" if the log does not say."""
    if dialect in PROVIDERS:
        return PROVIDERS[dialect].title
    return ""


def find_command(turns: Sequence[Turn], key: Key) -> str:
    """Return what the tool was called with, in one line; "" if the log does not say."""
    number, position = key
    if not 1 <= number <= len(turns):
        return ""
    turn = turns[number - 1]
    if turn.index != number or not 1 <= position <= len(turn.observations):
        return ""
    action = turn.find_action(turn.observations[position - 1])
    if action is None:
        return ""
    return _cut(" ".join(_describe_arguments(action).split()), MAX_COMMAND_CHARS)


def _describe_arguments(action: Action) -> str:
    """Return the command alone if there is one; otherwise names and values."""
    arguments: Mapping[str, Any] = action.decoded_arguments
    if not arguments:
        return action.arguments[: 4 * MAX_COMMAND_CHARS].strip().removeprefix("{}")
    for name in _COMMANDS:
        value = arguments.get(name)
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            value = " ".join(value)
        if isinstance(value, str) and value:
            others = {other: each for other, each in arguments.items() if other != name}
            return " ".join(filter(None, (value[: 4 * MAX_COMMAND_CHARS], _list_values(others))))
    return _list_values(arguments)


def _list_values(arguments: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_write_value(value)}" for name, value in islice(arguments.items(), 20))


def _write_value(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return _cut(" ".join(text[:400].split()), 80)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[: most - 1]}…"
