"""What people read in `agent_context_turns`, and what is searched: made from events, never the other way round.

Texts are shown up to SHOWN characters; the log holds them whole. `texts` of a result: addresses of what is kept apart.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elision.stores.excerpts import words_in
from elision.stores.packing import LARGE, address_of
from elision.stores.postgres.names import kept, shown
from elision.trajectory.content import Content, Text
from elision.trajectory.events import Amended, Answered, Decided, Event, TurnAdded
from elision.trajectory.plan import Clip, Mask
from elision.trajectory.spoken import argument_text
from elision.trajectory.turn import Action, Observation, Turn

#: Characters of a text that the table shows.
SHOWN = 2_000
#: What a bigint holds; the largest whole number in our tables. A position in a list of PostgreSQL is an integer.
_BIGGEST = 2**63 - 1
_FURTHEST = 2**31 - 1
#: Seconds from the epoch, either way, that are a date for PostgreSQL.
_ERAS = 6e10


@dataclass(frozen=True, slots=True)
class Row:
    """A statement to run, by name, with its parameters."""

    statement: str
    given: Mapping[str, Any]


def rows(event: Event, *, session: int, record: int, at: float) -> Iterator[Row]:
    """What `event`, record `record` of session `session`, changes in the tables for people.

    at: seconds since the epoch, for a turn that does not say when it was.
    """
    base = {"id": session, "record": record}
    if isinstance(event, TurnAdded | Amended):
        yield Row("put_turn", {**base, **_turn(event.turn, event.node, at)})
        yield Row("drop_words", {"id": session, "turn": event.turn.index})
        for position, (inside, parts) in enumerate(_pieces(event.turn)):
            place = {"id": session, "turn": event.turn.index, "position": position}
            yield Row("add_words", {**place, **_searched(inside, parts)})
    elif isinstance(event, Decided):
        for name, edits in (("mask", event.masks), ("clip", event.clips)):
            for edit in edits:
                yield from _edited(name, edit, {**base, "call": event.call})
        if event.summary is not None:
            yield Row("summarize", {**base, "call": event.call, "covers": event.summary.covers})
    elif isinstance(event, Answered):
        spent = {"id": session, "call": event.call, "input": event.usage.prompt, "output": event.usage.output}
        yield Row("answer_turn", {**spent, "record": record})
        yield Row("answer_session", spent)


def words_apart(event: Event) -> dict[bytes, str]:
    """The words of each text of `event` that can be searched and is kept apart, by its address."""
    if not isinstance(event, TurnAdded | Amended):
        return {}
    contents = (event.turn.content, *(each.content for each in event.turn.observations))
    return {_address(text): distinct_words(text) for parts in contents for text in _large(parts)}


def distinct_words(*texts: str) -> str:
    """The different words of `texts`, folded, one blank between two: no word of a query holds a blank."""
    return " ".join(dict.fromkeys(word for text in texts for word in words_in(text)))


def _turn(turn: Turn, node: str, at: float) -> dict[str, Any]:
    when = at if turn.at is None else turn.at
    return {
        "turn": turn.index,
        "node": kept(node),
        "reasoning": _cut(turn.reasoning),
        "said": _cut(turn.text),
        "actions": _json([_action(action) for action in turn.actions]),
        "observations": _json([_observation(each) for each in turn.observations]),
        "model": _cut(turn.model),
        "input": turn.usage and min(turn.usage.prompt, _BIGGEST),
        "output": turn.usage and min(turn.usage.output, _BIGGEST),
        "at": when if math.isfinite(when) and abs(when) < _ERAS else None,
    }


def _action(action: Action) -> dict[str, Any]:
    return {"id": _cut(action.id), "tool": _cut(action.name), "arguments": _arguments(action)}


def _arguments(action: Action) -> Any:
    """Decoded, for questions like `actions -> 0 -> 'arguments' ->> 'path'`; the text where that is long or no JSON."""
    if len(action.arguments) > SHOWN:
        return _cut(action.arguments)
    try:
        decoded = _clean(dict(action.decoded))
        json.dumps(decoded, allow_nan=False)
    except (ValueError, RecursionError):
        return _cut(action.arguments)
    return decoded or _cut(action.arguments)


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {shown(name): _clean(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner) for inner in value]
    return value


def _observation(observation: Observation) -> dict[str, Any]:
    text = observation.text
    return {
        "tool": _cut(observation.tool),
        "error": observation.error,
        "chars": len(text),
        "text": _cut(text),
        "texts": [_address(each).hex() for each in _large(observation.content)],
    }


def _edited(name: str, edit: Mask | Clip, given: Mapping[str, Any]) -> Iterator[Row]:
    turn, position = edit.key
    if 1 <= position <= _FURTHEST and 1 <= turn <= _BIGGEST:
        yield Row(name, {**given, "turn": turn, "place": position - 1, "text": shown(edit.text)})


def _pieces(turn: Turn) -> Iterator[tuple[Sequence[str], Content]]:
    """What was said and called, then each result: texts of the record itself, and parts that may stand apart."""
    calls = [argument_text(action) for action in turn.actions if not action.implicit]
    yield [turn.reasoning, *calls], turn.content
    for observation in turn.observations:
        yield (), observation.content


def _searched(inside: Sequence[str], parts: Content) -> dict[str, Any]:
    """Words of what stands in the record, and where the words of the rest are."""
    small = (text for text in _texts(parts) if len(text) < LARGE)
    return {"words": distinct_words(*inside, *small), "texts": [_address(text) for text in _large(parts)]}


def _texts(content: Content) -> Iterator[str]:
    return (part.text for part in content if isinstance(part, Text))


def _large(content: Content) -> Iterator[str]:
    return (text for text in _texts(content) if len(text) >= LARGE)


def _address(text: str) -> bytes:
    return address_of(text.encode("utf-8", "surrogatepass"))


def _cut(text: str) -> str:
    return shown(text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…")


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
