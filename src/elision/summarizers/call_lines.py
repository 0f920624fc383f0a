"""Calls of an agent in short: what was called, in one line, and how it ended."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from elision.strategies.extractors import BUILT_IN
from elision.strategies.extractors.failure import (
    find_complaint,
    find_error_line,
    find_exception_line,
    find_informative_line,
)
from elision.strategies.extractors.test_reports import describe_test_run
from elision.strategies.extractors.wrappers import unwrap_output
from elision.summarizers.prose import ELLIPSIS, clip_line, join_lines
from elision.trajectory.turn import Action, Observation, Turn

_COMMAND_KEYS = ("command", "cmd", "script", "bash_command")
_PATH_KEYS = ("path", "file_path", "filePath", "filename", "file", "absolute_path", "notebook_path", "target_file")
# What agents wrap around a command without changing what it does.
_PRELUDE = re.compile(r"^\s*cd\s+\S+\s*(?:&&|;)\s*")
_PAGER = re.compile(r"\s*(?:2>&1\s*)?(?:\|\s*(?:head|tail)(?:\s+-n?\s*\d+|\s+-\d+)?\s*)?$")
_HEREDOC = re.compile(r"(<<-?\s*['\"]?(\w+)['\"]?[^\n]*)\n.*?(?:\n\2\b|\Z)", re.DOTALL)
#: Characters of a call in one line.
CALL_WIDTH = 90


def find_path(action: Action) -> str:
    """Return the file a structured call names; "" if it names none."""
    return _find_first(action.decoded_arguments, _PATH_KEYS)


@lru_cache(maxsize=128)
def find_command(action: Action) -> str:
    """Return the shell command of `action`; "" if it is no shell call.

    The small cache serves the sections of a digest, each of which looks at the same calls again.
    """
    decoded = action.decoded_arguments
    if action.implicit and not decoded:
        return action.arguments
    if _find_first(decoded, _PATH_KEYS):
        return ""
    for key in _COMMAND_KEYS:
        words = decoded.get(key)
        if isinstance(words, list):
            return " ".join(map(str, words))
    return _find_first(decoded, _COMMAND_KEYS)


def find_command_line(action: Action) -> str:
    """Return the command of `action` without the bodies of here-documents: what is run, not what is written."""
    return _HEREDOC.sub(r"\1", find_command(action))


def describe_call(action: Action, width: int = CALL_WIDTH) -> str:
    """Return one line that names `action`: its command, or the tool with its arguments."""
    if command := find_command_line(action):
        return f"`{clip_line(command, width)}`"
    return clip_line(f"{action.name}({_format_arguments(action)})", width)


@lru_cache(maxsize=128)
def identify_call(action: Action) -> str:
    """Return a line that two calls share exactly if they do the same: spacing, `cd` and paging aside.

    A checksum stands for what is not shown in full (long calls, bodies of here-documents), so that two long scripts
    differ.
    """
    command = find_command(action)
    if command:
        whole = _PAGER.sub("", _PRELUDE.sub("", command))
    else:
        whole = f"{action.name}({_format_arguments(action)})"
    line = clip_line(_HEREDOC.sub(r"\1", whole), CALL_WIDTH).replace(" -> ", "->")
    if line != join_lines(whole).replace(" -> ", "->"):
        line += f"~{zlib.crc32(join_lines(whole).encode('utf-8', 'replace')) & 0xFFFF:04x}"
    if command:
        return f"`{line}`"
    return line


def is_coding_action(action: Action) -> bool:
    """Return whether `action` is of the kind only coding agents use: a command, or a file."""
    return bool(find_command(action) or find_path(action))


def _find_first(decoded: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    """Return the first argument of `keys` that is a text and not blank; "" if none is."""
    for key in keys:
        value = decoded.get(key)
        if isinstance(value, str) and value.strip():
            return value
    return ""


def _format_arguments(action: Action) -> str:
    decoded = action.decoded_arguments
    if not decoded:
        if action.arguments.strip() in ("", "{}"):
            return ""
        return join_lines(action.arguments)
    return ", ".join(f"{key}={_format_value(value)}" for key, value in decoded.items())


def _format_value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= 2 * CALL_WIDTH:
        return clip_line(text, 2 * CALL_WIDTH)
    return f"{clip_line(text, CALL_WIDTH)}{ELLIPSIS}{len(text)} chars"


#: Characters of an error or result line.
RESULT_WIDTH = 110

# Refusals of editors and of environments that state neither an exit status nor an error.
_REFUSED = re.compile(
    r"\s*(?:error|invalid|no replacement|string to replace|no match|could not|your (?:proposed )?edit has introduced"
    r"|usage of command|unknown command|permission denied|.{1,60}: command not found)",
    re.I,
)
_FAILING = re.compile(
    r"""
      ^(?:FAILED|ERROR)\ (\S+::\S+|\S+\.py)
    | ^(?:FAIL|ERROR):\ (\w+\ \([\w.]+\))
    | ^\s*---\ FAIL:\ (\S+)
    | ^test\ (\S+)\ \.\.\.\ FAILED
    | ^\s{0,6}(?:●|✕|×)\ +(\S.{0,80})
    """,
    re.MULTILINE | re.VERBOSE,
)


@lru_cache(maxsize=128)
def find_failure(observation: Observation) -> str | None:
    """Return the error line if the call failed ("" if it shows none), None if it did not.

    A traceback or a bare complaint counts even beside exit status 0: `command | head` hides the status. The small cache
    serves the sections of a digest, each of which looks at the same results again.
    """
    envelope = unwrap_output(observation.text)
    if observation.error or envelope.has_failed or _REFUSED.match(envelope.body[:200]):
        return clip_line(find_error_line(envelope.head_and_tail) or find_informative_line(envelope.body), RESULT_WIDTH)
    if observation.error is False:
        return None
    return clip_line(find_exception_line(envelope.body) or find_complaint(envelope.body), RESULT_WIDTH) or None


def describe_result(turn: Turn, observation: Observation, width: int = RESULT_WIDTH) -> str:
    """Return a result in one line; that of a failed call begins with "failed"."""
    error = find_failure(observation)
    if error is not None:
        return clip_line(f"failed: {error}" if error else "failed, no output", width)
    return clip_line(BUILT_IN.find_outcome(turn, observation).result or "no output", width)


@lru_cache(maxsize=128)
def find_test_totals(action: Action, observation: Observation) -> str:
    """Return the totals that a test runner printed last, on one line; "" if there are none."""
    found = describe_test_run(action, observation, "")
    if found:
        return found.result.partition(", first: ")[0]
    return ""


def list_failing_tests(text: str) -> tuple[str, ...]:
    """Return the names of failing tests that `text` lists, each once."""
    names = ("".join(filter(None, match.groups())) for match in _FAILING.finditer(text))
    return tuple(dict.fromkeys(names))
