"""What the two SQL stores write differently, statements by name and values; and what both write for people.

`list_changes` is the one writer of `agent_context_turns` and its like: what people read with SQL, made from events, not
read back. `reasoning`, `said`, `action` and `observation` are whole texts, unless the URL of a PostgreSQL store has
`turns=short`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, TypeAlias

from elision.trajectory.events import Event, PassDecided, TurnAdded, TurnAmended, UsageReported
from elision.trajectory.plan import Edit, Summary
from elision.trajectory.turn import Turn

#: A statement, by name, with its parameters.
TableChange: TypeAlias = tuple[str, Mapping[str, Any]]

#: Characters of a text that is cut.
SHOWN: Final = 2_000
#: The largest whole number of our tables. A position in a list of PostgreSQL is an integer.
_BIGGEST: Final = 2**63 - 1
_FURTHEST: Final = 2**31 - 1
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
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


# -- the tables for people --------------------------------------------------------------------------------------------


def list_changes(
    dialect: SqlDialect,
    event: Event,
    *,
    id: int,
    session: str,
    record: int,
    at: float | None,
    shows_whole: bool = True,
) -> Iterator[TableChange]:
    """Yield what `event`, record `record` of session `id`, changes in the tables.

    session: its name. at: seconds since the epoch, for a turn without a time of its own; None where nobody knows.
    shows_whole: whether texts are shown whole.
    """
    base = {"id": id, "session": make_readable(session), "record": record}
    if isinstance(event, TurnAdded | TurnAmended):
        turn = event.turn
        place = {**base, "turn": turn.index}
        when = at if turn.at is None else turn.at
        yield (
            "put_turn",
            {
                **place,
                "at": None if when is None else dialect.convert_time(when),
                **describe_texts(turn, shows_whole=shows_whole),
                "results": len(turn.observations),
                "model": make_readable(turn.model),
                "input": turn.usage and min(turn.usage.prompt, _BIGGEST),
                "output": turn.usage and min(turn.usage.output, _BIGGEST),
                **dialect.describe_turn(event),
            },
        )
        yield "clear_turn", place
        for words in dialect.list_words(turn):
            yield "add_words", {**place, **words}
    elif isinstance(event, PassDecided):
        call = {**base, "call": event.call}
        for edit in event.edits:
            yield from _list_edit_changes(dialect, edit, call)
        if event.summary is not None:
            summary = {**call, **describe_summary(event.summary)}
            yield "summarize", summary
            yield "put_summary", summary
    elif isinstance(event, UsageReported):
        counts = {"input": min(event.usage.prompt, _BIGGEST), "output": min(event.usage.output, _BIGGEST)}
        usage = {**base, "call": event.call, **counts}
        yield "answer_turn", usage
        yield "answer_session", usage


def _list_edit_changes(dialect: SqlDialect, edit: Edit, call: Mapping[str, Any]) -> Iterator[TableChange]:
    turn, position = edit.key
    if 1 <= position <= _FURTHEST and 1 <= turn <= _BIGGEST:
        place = {**call, "turn": turn, "position": position, "text": make_readable(edit.text)}
        for statement in dialect.edits[edit.kind]:
            yield statement, place


def describe_texts(turn: Turn, *, shows_whole: bool = True) -> dict[str, str | None]:
    """Return the texts of `turn` by column. Without `shows_whole` they are cut, and two columns are empty."""
    if not shows_whole:
        return {
            "reasoning": shorten_text(turn.reasoning),
            "said": shorten_text(turn.text),
            "action": None,
            "observation": None,
        }
    return {
        "reasoning": make_readable(turn.reasoning),
        "said": make_readable(turn.text),
        "action": make_readable(join_actions(turn)),
        # Two line ends stand between two results.
        "observation": make_readable("\n\n".join(observation.text for observation in turn.observations)),
    }


def describe_summary(summary: Summary) -> dict[str, Any]:
    """Return the columns of `summary`: what the model wrote, and the message that is sent."""
    return {
        "covers": min(summary.covers, _BIGGEST),
        "summary": make_readable(summary.text),
        "block": make_readable(summary.block),
        "route": summary.route,
    }


def join_actions(turn: Turn) -> str:
    """Return the calls of `turn`, one a line: the text that was given, or the tool and its arguments as written."""
    texts = []
    for action in turn.actions:
        text = action.given_text
        texts.append(f"{action.name} {action.arguments}".strip() if text is None else text)
    return "\n".join(texts)


def shorten_text(text: str) -> str:
    """Return at most SHOWN characters of `text`, readable."""
    if len(text) > SHOWN:
        text = f"{text[: SHOWN - 1]}…"
    return make_readable(text)


def make_readable(text: str) -> str:
    """Return `text` as a database keeps it, character by character: a NUL is ␀, a lone surrogate is \ufffd."""
    return _SURROGATE.sub("\ufffd", text.replace("\0", "␀"))
