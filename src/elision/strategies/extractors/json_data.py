"""JSON and tables: their shape, and the word that decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elision.strategies.extractors.arguments import named, tool_of, words_of
from elision.strategies.extractors.command import SHELLS, command_of
from elision.strategies.extractors.envelope import Envelope, json_in, opened
from elision.strategies.extractors.outcome import Outcome, counted, one_line
from elision.trajectory.turn import Action, Observation

_ERROR_KEYS = ("error", "errors", "error_message", "errorMessage", "exception")
_VERDICT_KEYS = ("status", "state", "success", "ok", "result", "message")
_PSQL = re.compile(r"^\((\d{1,12}) rows?\)\s*\Z", re.MULTILINE)
_RULE = re.compile(r"[\s|:+=-]{3,2000}\Z")
_NAME = re.compile(r"[\"']?[A-Za-z_][\w .()/%#-]{0,60}[\"']?\Z")
_START = re.compile(r"\s{0,50}(?:\{\s{0,50}\"[^\"\n]{1,100}\"\s{0,5}:|\[\s{0,50}[\[{\"\d-])")


def json_value(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """An answer that is one JSON object or array."""
    envelope = opened(observation.text)
    # A shell's JSON may be the envelope; any other tool's may hold an `output` beside what tells more.
    shell = named(tool_of(action, observation), SHELLS)
    for whole in (envelope.body,) if shell else (envelope.body, observation.text):
        if (value := json_in(whole)) is not None:
            return Outcome(_label(action, observation), _with_exit(envelope, _shape(value)))
    if len(envelope.body) > 1_000_000 and _START.match(envelope.body[:300]):
        if envelope.body.lstrip()[:1] == "{":
            kind = "object"
        else:
            kind = "array"
        return Outcome(_label(action, observation), _with_exit(envelope, f"{kind}, {counted(envelope.lines, 'line')}"))
    return None


def table(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A psql, markdown, CSV or TSV table."""
    envelope = opened(observation.text)
    lines = [line for line in envelope.body.split("\n") if line.strip()]
    found = _ruled(lines, envelope) or _separated(lines)
    if found is None:
        return None
    rows, columns = found
    names = [name.strip().strip("\"'") for name in columns]
    shape = f"{counted(rows, 'row')} x {counted(len(names), 'column')}: {', '.join(names)}"
    return Outcome(_label(action, observation), _with_exit(envelope, shape))


def _label(action: Action | None, observation: Observation) -> str:
    if named(tool_of(action, observation), SHELLS):
        command = command_of(action, observation)
    else:
        command = None
    if command:
        return command.label
    return words_of(action)


def _with_exit(envelope: Envelope, said: str) -> str:
    if envelope.failed:
        return f"exit {envelope.exit}, {said}"
    return said


def _shape(value: Any) -> str:
    if isinstance(value, list):
        first = value[0] if value else None
        if isinstance(first, dict):
            keys = f" of {_keys(first)}"
        else:
            keys = ""
        return counted(len(value), "item") + keys
    verdict = _verdict(value)
    if verdict.startswith(("error", "message")):
        return verdict
    if len(value) == 1 and isinstance(inner := next(iter(value.values())), dict | list) and inner:
        if isinstance(inner, list):
            shape = f"{counted(len(inner), 'item')}"
        else:
            shape = _keys(inner)
        return f"{one_line(next(iter(value)), 30)}: {shape}"
    if verdict:
        return f"{verdict}; {_keys(value)}"
    return _keys(value)


def _keys(value: Mapping[str, Any]) -> str:
    names = [one_line(name, 30) for name in list(value)[:4]]
    more = ", …" if len(value) > 4 else ""
    if value:
        return f"{counted(len(value), 'key')}: {', '.join(names)}{more}"
    return "no keys"


def _verdict(value: Mapping[str, Any]) -> str:
    """The error or the status that the object states at its top."""
    for key in _ERROR_KEYS:
        if problem := value.get(key):
            if isinstance(problem, dict):
                message = problem.get("message", problem)
            else:
                message = problem
            if isinstance(message, str):
                return f"error: {one_line(message, 90)}"
            return f"{key}: {_kind(message)}"
    for key in _VERDICT_KEYS:
        said = value.get(key)
        if isinstance(said, bool) or (isinstance(said, str) and said.strip()):
            return f"{key} {one_line(str(said), 60)}"
    return ""


def _kind(value: Any) -> str:
    if isinstance(value, list | dict):
        return counted(len(value), "item")
    return one_line(str(value)[:200], 40)


def _ruled(lines: list[str], envelope: Envelope) -> tuple[int, list[str]] | None:
    """A table with a ruled line under its header: psql, mysql, markdown."""
    for position in (1, 2):
        if len(lines) > position and "|" in lines[position - 1] and _is_rule(lines[position]):
            columns = [cell for cell in lines[position - 1].strip().strip("|").split("|") if cell.strip()]
            stated = _PSQL.search(envelope.tail[-200:])
            if stated:
                rows = int(stated[1])
            else:
                rows = sum("|" in line and not _is_rule(line) for line in lines[position + 1 :])
            if len(columns) > 1:
                return (rows, columns)
            return None
    return None


def _is_rule(line: str) -> bool:
    return "--" in line[:200] and bool(_RULE.match(line[:2_000]))


def _separated(lines: list[str]) -> tuple[int, list[str]] | None:
    """A table of values between tabs, commas or semicolons, under a header of names."""
    if len(lines) < 3:
        return None
    for separator in ("\t", ",", ";"):
        columns = lines[0].split(separator)
        sample = lines[1:50]
        named = 2 <= len(columns) <= 100 and all(_NAME.match(name.strip()) for name in columns)
        if named and all(line.count(separator) == len(columns) - 1 for line in sample):
            return len(lines) - 1, columns
    return None
