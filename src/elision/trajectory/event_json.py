"""Events, turns and heads as JSON objects and back: what stores and exports keep.

The structs say how their JSON looks. What has its default is left out; keys that are not known are passed over. A
turn's fields stand beside those of the event that adds it, and a head's too. Every event bears the version of its form.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, get_args

import msgspec

from elision.errors import StoreError
from elision.trajectory.content import Opaque, Part, Text
from elision.trajectory.events import Event, HeadSet, RecallExchanged, TurnAdded, TurnAmended
from elision.trajectory.turn import Head, Observation, Turn

#: Version of the form of a record. A record that names none has version 1.
RECORD_VERSION: Final = 1
_EVENT_TYPES: Final[dict[str, Any]] = {str(kind.__struct_config__.tag): kind for kind in get_args(Event)}
for _kind in (*_EVENT_TYPES.values(), Turn, Observation, Text):
    # msgspec reads a class's annotations at its first use: here, as it crashed where several threads did so at once.
    msgspec.json.Decoder(_kind)


def encode_event(event: Event) -> dict[str, Any]:
    """Return `event` as a JSON object: `e` names it, `v` is the version of its form."""
    value = _convert_to_json(event)
    if isinstance(event, TurnAdded | TurnAmended):
        value.update(value.pop("turn"))
        _sort_tags(value)
    elif isinstance(event, HeadSet):
        value.update(value.pop("head"))
    elif isinstance(event, RecallExchanged):
        # As parts of a message are written, so that stores keep what is large in them once.
        for name in {"messages", "results"} & value.keys():
            value[name] = [{"text": text} for text in value[name]]
    value["v"] = RECORD_VERSION
    return value


def decode_event(value: dict[str, Any]) -> Event:
    """Return the event that `encode_event` wrote. `value` is used up.

    Raises ValueError naming the field that is wrong, StoreError for a version that a newer Elision wrote.
    """
    check_version(value)
    kind = str(value.get("e"))
    if kind not in _EVENT_TYPES:
        raise ValueError(f"unknown event {kind[:40]!r}: written by a newer Elision?")
    if kind == "exchanged":
        texts = {name: msgspec.convert(value.get(name, []), list[Text]) for name in ("messages", "results")}
        value = value | {name: [part.text for part in parts] for name, parts in texts.items()}
    else:
        _decode_parts(value)
    if kind in ("turn", "amended"):
        value = {"e": kind, "node": value.get("node", ""), "turn": value}
    elif kind == "head":
        value = {"e": kind, "head": value}
    # By its own type: msgspec would study the union of all of them anew at each call.
    event: Event = msgspec.convert(value, _EVENT_TYPES[kind])
    return event


def check_version(value: Mapping[str, Any]) -> None:
    """Raise StoreError for the JSON of an event that a newer Elision wrote."""
    version = value.get("v", 1)
    if isinstance(version, int) and version > RECORD_VERSION:
        raise StoreError(
            f"a record has version {version}, and this Elision reads versions up to {RECORD_VERSION}: a newer Elision "
            "wrote it; update elision"
        )


def encode_turn(turn: Turn) -> dict[str, Any]:
    value = _convert_to_json(turn)
    _sort_tags(value)
    return value


def decode_turn(value: dict[str, Any]) -> Turn:
    """Return the turn that `encode_turn` wrote. `value` is used up. Raises ValueError naming the wrong field."""
    _decode_parts(value)
    return msgspec.convert(value, Turn)


def decode_observation(value: dict[str, Any]) -> Observation:
    """Return one of the `observations` of `encode_turn`. `value` is used up. Raises ValueError."""
    _decode_parts(value)
    return msgspec.convert(value, Observation)


def encode_head(head: Head) -> dict[str, Any]:
    return _convert_to_json(head)


def decode_head(value: dict[str, Any]) -> Head:
    """Return the head that `encode_head` wrote. `value` is used up. Raises ValueError naming the wrong field."""
    _decode_parts(value)
    return msgspec.convert(value, Head)


def find_parts(value: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield where content parts are in the JSON of an event, a turn or a head: an object, and its field with them."""
    if value.get("e") == "exchanged":
        holders = [(value, "messages"), (value, "results")]
    else:
        holders = [(value, "content")]
        for name in ("observations", "interjections", "messages"):
            items = value.get(name)
            if isinstance(items, (list, tuple)):
                holders += [(item, "content") for item in items if isinstance(item, dict)]
    for holder, name in holders:
        if isinstance(holder.get(name), (list, tuple)):
            yield holder, name


def simplify_foreign(value: object) -> object:
    """Return a client's own kind of text, number or mapping as the plain one. Raises TypeError or ValueError."""
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    return dict(value)  # type: ignore[call-overload]


def _decode_parts(value: dict[str, Any]) -> None:
    for holder, name in find_parts(value):
        holder[name] = tuple(map(_decode_part, holder[name]))


def _decode_part(value: Mapping[str, Any]) -> Part:
    if isinstance(value, dict) and "opaque" in value:
        return msgspec.convert(value, Opaque)
    return msgspec.convert(value, Text)


def _convert_to_json(value: msgspec.Struct) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value, enc_hook=simplify_foreign)
    return found


def _sort_tags(turn: dict[str, Any]) -> None:
    for observation in turn.get("observations", ()):
        if "tags" in observation:
            observation["tags"] = sorted(observation["tags"])
