"""What people read in `agent_context_turns`, and what is searched: made from events, not read back into them.

`reasoning`, `said`, `action` and `observation` are whole texts, unless the store's URL has `turns=short`. Texts inside
JSON are shown up to SHOWN characters. `texts` of a result: addresses of what is kept apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elision.stores.packing import LARGE_IN_TURN, hash_text
from elision.stores.postgres.text_escapes import escape_name
from elision.stores.text_search import split_words
from elision.stores.turn_texts import join_actions, join_observations, make_readable
from elision.trajectory.assistant_text import join_argument_text
from elision.trajectory.content import Content, Text
from elision.trajectory.events import Event, PassDecided, TurnAdded, TurnAmended, UsageReported
from elision.trajectory.plan import Edit, Summary
from elision.trajectory.turn import Action, Observation, Turn

#: Characters of a text inside JSON that the tables show.
SHOWN = 2_000
#: What a bigint holds; the largest whole number in our tables. A position in a list of PostgreSQL is an integer.
_BIGGEST = 2**63 - 1
_FURTHEST = 2**31 - 1
#: Largest distance from the epoch, in seconds, that PostgreSQL takes as a date.
_ERAS = 6e10


@dataclass(frozen=True, slots=True)
class TableChange:
    """A statement to run, by name, with its parameters."""

    statement: str
    parameters: Mapping[str, Any]


def list_changes(
    event: Event, *, session: int, record: int, at: float, shows_whole: bool = True
) -> Iterator[TableChange]:
    """Yield what `event`, record `record` of session `session`, changes in the tables for people.

    at: seconds since the epoch, for a turn without a time of its own. shows_whole: whether texts are shown whole.
    """
    base = {"id": session, "record": record}
    if isinstance(event, TurnAdded | TurnAmended):
        texts = describe_texts(event.turn, shows_whole=shows_whole)
        yield TableChange("put_turn", {**base, **_describe_turn(event.turn, event.node, at), **texts})
        yield TableChange("drop_words", {"id": session, "turn": event.turn.index})
        for position, (inside, parts) in enumerate(_split_turn(event.turn)):
            place = {"id": session, "turn": event.turn.index, "position": position}
            yield TableChange("add_words", {**place, **_list_words(inside, parts)})
    elif isinstance(event, PassDecided):
        edited = {**base, "call": event.call}
        for edit in event.edits:
            yield from _list_edit_changes(edit, edited)
        if event.summary is not None:
            yield TableChange("summarize", {**edited, "covers": event.summary.covers})
            yield TableChange("put_summary", {**edited, **describe_summary(event.summary)})
    elif isinstance(event, UsageReported):
        usage = {"id": session, "call": event.call, "input": event.usage.prompt, "output": event.usage.output}
        yield TableChange("answer_turn", {**usage, "record": record})
        yield TableChange("answer_session", usage)


def describe_texts(turn: Turn, *, shows_whole: bool = True) -> dict[str, str | None]:
    """Return the texts of `turn` by column. Without `shows_whole` they are cut, and two columns are empty."""
    if not shows_whole:
        return {
            "reasoning": _shorten_text(turn.reasoning),
            "said": _shorten_text(turn.text),
            "action": None,
            "observation": None,
        }
    return {
        "reasoning": make_readable(turn.reasoning),
        "said": make_readable(turn.text),
        "action": make_readable(join_actions(turn)),
        "observation": make_readable(join_observations(turn)),
    }


def describe_summary(summary: Summary) -> dict[str, Any]:
    """Return the columns of `summary`: what the model wrote, and the message that is sent."""
    return {
        "covers": min(summary.covers, _BIGGEST),
        "summary": make_readable(summary.text),
        "block": make_readable(summary.block),
        "route": summary.route,
    }


def find_words_apart(event: Event) -> dict[bytes, str]:
    """Return the words of each text of `event` that can be searched and is kept apart, by its address."""
    words: dict[bytes, str] = {}
    if isinstance(event, TurnAdded | TurnAmended):
        for parts in (event.turn.content, *(observation.content for observation in event.turn.observations)):
            for text in _list_large_texts(parts):
                words[_hash_text(text)] = join_words(text)
    return words


def join_words(*texts: str) -> str:
    """Return the different words of `texts`, folded, with one blank between two: no word of a query holds a blank."""
    words: dict[str, None] = {}
    for text in texts:
        words.update(dict.fromkeys(split_words(text)))
    return " ".join(words)


def _describe_turn(turn: Turn, node: str, at: float) -> dict[str, Any]:
    when = at if turn.at is None else turn.at
    return {
        "turn": turn.index,
        "node": escape_name(node),
        "actions": _encode_json([_describe_action(action) for action in turn.actions]),
        "observations": _encode_json([_describe_observation(each) for each in turn.observations]),
        "model": _shorten_text(turn.model),
        "input": turn.usage and min(turn.usage.prompt, _BIGGEST),
        "output": turn.usage and min(turn.usage.output, _BIGGEST),
        "at": when if math.isfinite(when) and abs(when) < _ERAS else None,
    }


def _describe_action(action: Action) -> dict[str, Any]:
    return {
        "id": _shorten_text(action.id),
        "tool": _shorten_text(action.name),
        "arguments": _describe_arguments(action),
    }


def _describe_arguments(action: Action) -> Any:
    """Return arguments decoded, for queries like `actions -> 0 -> 'arguments' ->> 'path'`; long ones as text."""
    if len(action.arguments) > SHOWN:
        return _shorten_text(action.arguments)
    try:
        decoded = _clean_value(dict(action.decoded_arguments))
        json.dumps(decoded, allow_nan=False)
    except (ValueError, RecursionError):
        return _shorten_text(action.arguments)
    return decoded or _shorten_text(action.arguments)


def _clean_value(value: Any) -> Any:
    if isinstance(value, str):
        return make_readable(value)
    if isinstance(value, dict):
        return {make_readable(name): _clean_value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_clean_value(inner) for inner in value]
    return value


def _describe_observation(observation: Observation) -> dict[str, Any]:
    text = observation.text
    return {
        "tool": _shorten_text(observation.tool),
        "error": observation.error,
        "chars": len(text),
        "text": _shorten_text(text),
        "texts": [_hash_text(each).hex() for each in _list_large_texts(observation.content)],
    }


def _list_edit_changes(edit: Edit, base: Mapping[str, Any]) -> Iterator[TableChange]:
    turn, position = edit.key
    if not (1 <= position <= _FURTHEST and 1 <= turn <= _BIGGEST):
        return
    place = {**base, "turn": turn, "place": position - 1}
    if edit.kind == "whole":
        yield TableChange("unfold", place)
    else:
        yield TableChange(edit.kind, {**place, "text": make_readable(edit.text)})


def _split_turn(turn: Turn) -> Iterator[tuple[Sequence[str], Content]]:
    """Yield the assistant's text and calls, then each result: texts within the record, and parts that may be apart."""
    calls = [join_argument_text(action) for action in turn.actions if not action.implicit]
    yield [turn.reasoning, *calls], turn.content
    for observation in turn.observations:
        yield (), observation.content


def _list_words(inside: Sequence[str], parts: Content) -> dict[str, Any]:
    """Return the words of texts within the record, and the addresses of the other texts."""
    small = (text for text in _list_texts(parts) if len(text) < LARGE_IN_TURN)
    return {"words": join_words(*inside, *small), "texts": [_hash_text(text) for text in _list_large_texts(parts)]}


def _list_texts(content: Content) -> Iterator[str]:
    return (part.text for part in content if isinstance(part, Text))


def _list_large_texts(content: Content) -> Iterator[str]:
    return (text for text in _list_texts(content) if len(text) >= LARGE_IN_TURN)


def _hash_text(text: str) -> bytes:
    return hash_text(text.encode("utf-8", "surrogatepass"))


def _shorten_text(text: str) -> str:
    if len(text) > SHOWN:
        text = f"{text[: SHOWN - 1]}…"
    return make_readable(text)


def _encode_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
