"""What the two SQL stores write differently: their statements, by name, and values that no statement converts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from elision.trajectory.events import TurnAdded, TurnAmended
from elision.trajectory.turn import Turn

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_COMMENT = re.compile(r"^ *--.*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlDialect:
    """One database's way to say what all SQL stores say.

    name:           the file of its statements, `sql/{name}_queries.sql`.
    encode_name:    return a key, family or node as it is stored. decode_name: return it again.
    biggest_turn:   the greatest number of a turn that can be asked for.
    edits:          by kind of edit, the statements that show it.
    convert_time:   return seconds since the epoch as a parameter; None for what is no date.
    describe_turn:  return the columns that only this database has in a row of a turn.
    list_words:     return the parameters of each `add_words` of a turn.
    """

    name: str
    encode_name: Callable[[str], Any]
    decode_name: Callable[[Any], str]
    biggest_turn: int
    edits: Mapping[str, tuple[str, ...]]
    convert_time: Callable[[float], Any]
    describe_turn: Callable[[TurnAdded | TurnAmended], Mapping[str, Any]]
    list_words: Callable[[Turn], Iterable[Mapping[str, Any]]]


@cache
def load_statements(dialect: str) -> Mapping[str, Any]:
    """Return the statements of `sql/{dialect}_queries.sql`, by name."""
    _, *pieces = _NAME.split(_read_script(f"{dialect}_queries.sql"))
    return {name: _COMMENT.sub("", text).strip() for name, text in zip(pieces[::2], pieces[1::2], strict=True)}


def split_statements(file: str) -> list[Any]:
    """Return the statements of a script of ours, of which each ends with a semicolon and a line's end.

    Pipelines, and transactions of SQLite, take one statement at a time.
    """
    statements = (piece.strip().removesuffix(";") for piece in _COMMENT.sub("", _read_script(file)).split(";\n"))
    return [statement for statement in statements if statement]


def _read_script(file: str) -> str:
    return files("elision.stores").joinpath("sql", file).read_text(encoding="utf-8")
