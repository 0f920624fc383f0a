"""Pieces of a message, put together as they come: texts joined, lists by their entries' `index`, null says nothing.

As the SDK's accumulator does (openai 3.54), but that what a server repeats in each piece (ids, types) stays single, and
that texts are joined once, at the end.
"""

from __future__ import annotations

from typing import Any

from elision.gateway.recalling.json_text import number
from elision.gateway.recalling.outcome import Json

#: Fields whose text is whole each time.
_WHOLE = frozenset(("id", "type", "role", "index", "format"))


class _Text(list[str]):
    """A text in pieces."""


class _Slots(dict[int, Json]):
    """Entries of a list by their index."""


def add(message: Json, delta: Json) -> None:
    """Adds a piece to what was gathered so far."""
    for key, value in delta.items():
        message[key] = _joined(key, message.get(key), value)


def plain(value: Any) -> Any:
    """What was gathered, as JSON."""
    if isinstance(value, _Text):
        return "".join(value)
    if isinstance(value, _Slots):
        return [plain(value[index]) for index in sorted(value)]
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value


def _joined(key: str, old: Any, new: Any) -> Any:
    if new is None or (key in _WHOLE and old):
        return old
    if isinstance(new, str) and key not in _WHOLE:
        return _text(key, old, new)
    if isinstance(new, list):
        return _list(old, new)
    if isinstance(new, dict):
        gathered = old if isinstance(old, dict) else {}
        add(gathered, new)
        return gathered
    return new


def _text(key: str, old: Any, new: str) -> Any:
    if isinstance(old, _Text):
        # Some servers repeat a tool's name in each piece.
        if key != "name" or "".join(old) != new:
            old.append(new)
        return old
    # Content that began as parts goes on in parts.
    if isinstance(old, list):
        return [*old, {"type": "text", "text": new}]
    return _Text((new,))


def _list(old: Any, new: list[Any]) -> Any:
    if not new and old is not None:
        return old
    if not indexed(new):
        if isinstance(old, _Text) and any(old):
            begun = [{"type": "text", "text": "".join(old)}]
        else:
            begun = old
        if isinstance(begun, list) and not isinstance(begun, _Text):
            return [*begun, *new]
        return list(new)
    slots = old if isinstance(old, _Slots) else _Slots()
    for entry in new:
        add(slots.setdefault(number(entry["index"]) or 0, {}), entry)
    return slots


def indexed(value: object) -> bool:
    """Whether it is a list of objects that say where each belongs."""
    return isinstance(value, list) and bool(value) and all(isinstance(e, dict) and "index" in e for e in value)
