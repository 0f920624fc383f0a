"""JSON and tables: their shape, and the word that decides."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from elision.strategies.extractors.command import SHELLS, find_command, qualify_count
from elision.strategies.extractors.outcome import (
    Outcome,
    describe_arguments,
    find_tool_name,
    format_count,
    matches_tool,
    shorten_to_line,
)
from elision.strategies.extractors.result_text import UnwrappedOutput, decode_json, unwrap_output
from elision.trajectory.turn import Action, Observation

_ERROR_KEYS = ("error", "errors", "error_message", "errorMessage", "exception")
_VERDICT_KEYS = ("status", "state", "success", "ok", "result", "message")
_PSQL = re.compile(r"^\((\d{1,12}) rows?\)\s*\Z", re.MULTILINE)
_RULE = re.compile(r"[\s|:+=-]{3,2000}\Z")
_NAME = re.compile(r"[\"']?[A-Za-z_][\w .()/%#-]{0,60}[\"']?\Z")
_START = re.compile(r"\s{0,50}(?:\{\s{0,50}\"[^\"\n]{1,100}\"\s{0,5}:|\[\s{0,50}[\[{\"\d-])")

#: How deep lists and tables of counts are looked for, how many keys and objects of a level, and how many are named.
_COLLECTION_DEPTH = 3
_KEYS_LOOKED_AT = 50
_COLLECTIONS_NAMED = 2
#: Fields of an answer that only wraps its data; an object of more is a record.
_ANSWER_KEYS = 8
#: Numbers from here on are ids, times and amounts rather than counts.
_COUNTS_END = 1_000_000


def describe_json(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """An answer that is one JSON object or array."""
    envelope = unwrap_output(observation.text)
    # A shell's JSON may be the envelope; any other tool's may hold an `output` beside what tells more.
    shell = matches_tool(find_tool_name(action, observation), SHELLS)
    for whole in (envelope.body,) if shell else (envelope.body, observation.text):
        if (value := decode_json(whole)) is not None:
            return Outcome(_label_data(action, observation), envelope.state_failure(_describe_shape(value)))
    if len(envelope.body) > 1_000_000 and _START.match(envelope.body[:300]):
        kind = "object" if envelope.body.lstrip()[:1] == "{" else "array"
        return Outcome(
            _label_data(action, observation),
            envelope.state_failure(f"{kind}, {format_count(envelope.line_count, 'line')}"),
        )
    return None


def describe_table(action: Action | None, observation: Observation, text: str) -> Outcome | None:
    """A psql, markdown, CSV or TSV table."""
    envelope = unwrap_output(observation.text)
    lines = [line for line in envelope.body.split("\n") if line.strip()]
    found = _find_ruled_table(lines, envelope) or _find_separated_table(lines)
    if found is None:
        return None
    rows, columns = found
    names = [name.strip().strip("\"'") for name in columns]
    shape = f"{format_count(rows, 'row')} x {format_count(len(names), 'column')}: {', '.join(names)}"
    command = find_command(action, observation)
    if not _PSQL.search(envelope.tail[-200:]):
        shape = qualify_count(shape, envelope.body, command)
    return Outcome(_label_data(action, observation), envelope.state_failure(shape))


def _label_data(action: Action | None, observation: Observation) -> str:
    if matches_tool(find_tool_name(action, observation), SHELLS):
        command = find_command(action, observation)
    else:
        command = None
    if command:
        return command.label
    return describe_arguments(action)


def _describe_shape(value: Any) -> str:
    if isinstance(value, list):
        first = value[0] if value else None
        keys = f" of {_list_keys(first)}" if isinstance(first, dict) else ""
        return format_count(len(value), "item") + keys
    return _describe_object(value)


def _describe_object(value: Mapping[str, Any]) -> str:
    """Return what an object states, then its collections, or else its keys."""
    verdict = _find_verdict(value)
    if verdict.startswith(("error", "message")):
        return verdict
    if _is_table_of_counts(value):
        return _list_counts(value)
    collections = ", ".join(_find_collections(value))
    if len(value) == 1:
        key, inner = next(iter(value.items()))
        if collections:
            return collections
        if isinstance(inner, dict) and inner:
            return f"{shorten_to_line(key, 30)}: {_list_keys(inner)}"
    if verdict:
        return f"{verdict}; {collections or _list_keys(value)}"
    if collections and len(value) <= _COLLECTIONS_NAMED and all(isinstance(inner, list) for inner in value.values()):
        return collections
    if collections:
        return f"{collections}; {_list_keys(value)}"
    return _list_keys(value)


def _find_collections(value: Mapping[str, Any]) -> list[str]:
    """Return the first lists and tables of counts in `value`, each with its path: `data.rows: 40 items`.

    Lists come before tables, the shallowest first; empty lists are named where there is nothing else. A record of many
    fields is told by its fields: only what has more members than it has fields is named of it.
    """
    least = 1 if len(value) <= _ANSWER_KEYS else len(value) + 1
    lists: list[str] = []
    tables: list[str] = []
    empty: list[str] = []
    level: list[tuple[str, Mapping[str, Any]]] = [("", value)]
    for _ in range(_COLLECTION_DEPTH):
        deeper: list[tuple[str, Mapping[str, Any]]] = []
        for path, fields in level:
            for key, inner in list(fields.items())[:_KEYS_LOOKED_AT]:
                place = f"{path}{shorten_to_line(key, 30)}"
                if isinstance(inner, list):
                    size = f"{place}: {format_count(len(inner), 'item')}"
                    if len(inner) >= least:
                        lists.append(size)
                    elif not inner and least == 1:
                        empty.append(size)
                elif isinstance(inner, dict) and _is_table_of_counts(inner):
                    if len(inner) >= least:
                        tables.append(f"{place}: {_list_counts(inner)}")
                elif isinstance(inner, dict):
                    deeper.append((f"{place}.", inner))
        level = deeper[:_KEYS_LOOKED_AT]
    return (lists + tables or empty)[:_COLLECTIONS_NAMED]


def _is_table_of_counts(value: Mapping[str, Any]) -> bool:
    """Return whether `value` counts things by name: `{"passed": 10, "failed": 2}`."""
    return bool(value) and all(
        isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _COUNTS_END for count in value.values()
    )


def _list_counts(value: Mapping[str, int]) -> str:
    counts = [f"{shorten_to_line(name, 30)} {count}" for name, count in list(value.items())[:4]]
    more = ", …" if len(value) > 4 else ""
    return f"{', '.join(counts)}{more}"


def _list_keys(value: Mapping[str, Any]) -> str:
    names = [shorten_to_line(name, 30) for name in list(value)[:4]]
    more = ", …" if len(value) > 4 else ""
    if value:
        return f"{format_count(len(value), 'key')}: {', '.join(names)}{more}"
    return "no keys"


def _find_verdict(value: Mapping[str, Any]) -> str:
    """The error or the status that the object states at its top."""
    for key in _ERROR_KEYS:
        if problem := value.get(key):
            if isinstance(problem, dict):
                message = problem.get("message", problem)
            else:
                message = problem
            if isinstance(message, str):
                return f"error: {shorten_to_line(message, 90)}"
            return f"{key}: {_name_kind(message)}"
    for key in _VERDICT_KEYS:
        summary_line = value.get(key)
        if isinstance(summary_line, bool) or (isinstance(summary_line, str) and summary_line.strip()):
            return f"{key} {shorten_to_line(str(summary_line), 60)}"
    return ""


def _name_kind(value: Any) -> str:
    if isinstance(value, list | dict):
        return format_count(len(value), "item")
    return shorten_to_line(str(value)[:200], 40)


def _find_ruled_table(lines: list[str], envelope: UnwrappedOutput) -> tuple[int, list[str]] | None:
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


def _find_separated_table(lines: list[str]) -> tuple[int, list[str]] | None:
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
