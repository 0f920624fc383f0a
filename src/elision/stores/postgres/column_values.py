"""Values as PostgreSQL keeps them: names, dates, calls and results as JSON, and the words that are searched.

Its text has no NUL and no lone surrogates. Names (keys, families, nodes) must come back letter for letter and stay
readable, so only what it cannot hold is written as an escape; texts that people read have replacement characters
instead. Texts inside JSON are shown up to SHOWN characters. `texts` of a result: addresses of what is kept apart.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from elision.stores.packing import LARGE_IN_TURN, hash_text
from elision.stores.readable_tables import SHOWN, make_readable, shorten_text
from elision.stores.text_search import split_words
from elision.trajectory.assistant_text import join_argument_text
from elision.trajectory.content import Content, Text
from elision.trajectory.events import Event, TurnAdded, TurnAmended
from elision.trajectory.turn import Action, Observation, Turn

#: Largest distance from the epoch, in seconds, that PostgreSQL takes as a date.
_ERAS: Final = 6e10
_ODD: Final = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPE: Final = re.compile(r"\\(\\|0|u[0-9a-f]{4})")


def escape_name(name: str) -> str:
    r"""Return `name` without NUL and lone surrogates: `\0`, `\ud800`; a backslash is doubled.

    `unescape_name` reverses it.
    """
    return _ODD.sub(_escape_character, name)


def unescape_name(name: str) -> str:
    """Return what `escape_name` was given."""
    return _ESCAPE.sub(_unescape_character, name)


def is_escaped_name(name: str) -> bool:
    """Return whether `escape_name` returns `name` for some name. It returns no other."""
    return escape_name(unescape_name(name)) == name


def _escape_character(match: re.Match[str]) -> str:
    letter = match[0]
    return {"\\": r"\\", "\0": r"\0"}.get(letter) or f"\\u{ord(letter):04x}"


def _unescape_character(match: re.Match[str]) -> str:
    mark = match[1]
    return {"\\": "\\", "0": "\0"}.get(mark) or chr(int(mark[1:], 16))


def convert_time(at: float) -> float | None:
    """Return `at`, seconds since the epoch, if the server takes it as a date."""
    if math.isfinite(at) and abs(at) < _ERAS:
        return at
    return None


def describe_turn(event: TurnAdded | TurnAmended) -> dict[str, Any]:
    """Return the columns that SQLite's table of turns does not have, and a shorter name of the model."""
    turn = event.turn
    return {
        "node": escape_name(event.node),
        "actions": _encode_json([_describe_action(action) for action in turn.actions]),
        "observations": _encode_json([_describe_observation(each) for each in turn.observations]),
        "model": shorten_text(turn.model),
    }


def list_words(turn: Turn) -> Iterator[dict[str, Any]]:
    """Yield the words of the assistant's text and calls, then of each result.

    words: of texts within the record. texts: the addresses of those apart.
    """
    calls = [join_argument_text(action) for action in turn.actions if not action.implicit]
    pieces: list[tuple[Sequence[str], Content]] = [([turn.reasoning, *calls], turn.content)]
    pieces.extend(((), observation.content) for observation in turn.observations)
    for position, (inside, parts) in enumerate(pieces):
        small = (part.text for part in parts if isinstance(part, Text) and len(part.text) < LARGE_IN_TURN)
        texts = [_hash_text(text) for text in _list_large_texts(parts)]
        yield {"position": position, "words": join_words(*inside, *small), "texts": texts}


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


def _describe_action(action: Action) -> dict[str, Any]:
    return {
        "id": shorten_text(action.id),
        "tool": shorten_text(action.name),
        "arguments": _describe_arguments(action),
    }


def _describe_arguments(action: Action) -> Any:
    """Return arguments decoded, for queries like `actions -> 0 -> 'arguments' ->> 'path'`; long ones as text."""
    if len(action.arguments) > SHOWN:
        return shorten_text(action.arguments)
    try:
        decoded = _clean_value(dict(action.decoded_arguments))
        json.dumps(decoded, allow_nan=False)
    except (ValueError, RecursionError):
        return shorten_text(action.arguments)
    return decoded or shorten_text(action.arguments)


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
        "tool": shorten_text(observation.tool),
        "error": observation.error,
        "chars": len(text),
        "text": shorten_text(text),
        "texts": [_hash_text(each).hex() for each in _list_large_texts(observation.content)],
    }


def _list_large_texts(content: Content) -> Iterator[str]:
    return (part.text for part in content if isinstance(part, Text) and len(part.text) >= LARGE_IN_TURN)


def _hash_text(text: str) -> bytes:
    return hash_text(text.encode("utf-8", "surrogatepass"))


def _encode_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
