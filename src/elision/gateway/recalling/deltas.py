"""Pieces of a message, put together as they come: texts joined, lists by their entries' `index`, null says nothing.

As the SDK's accumulator does (openai 3.54), but that what a server repeats in each piece (ids, types) stays single, and
that texts are joined once, at the end.
"""

from __future__ import annotations

from typing import Any

from elision.gateway.recalling.json_values import as_int
from elision.gateway.recalling.rounds import Json

#: Fields whose text is whole each time.
_WHOLE = frozenset(("id", "type", "role", "index", "format"))


class _TextPieces(list[str]):
    """A text in pieces."""


class _IndexedEntries(dict[int, Json]):
    """Entries of a list by their index."""


def merge_delta(message: Json, delta: Json) -> None:
    """Adds a piece to what was gathered so far."""
    for key, value in delta.items():
        message[key] = _merge_value(key, message.get(key), value)


def assemble_value(value: Any) -> Any:
    """What was gathered, as JSON."""
    if isinstance(value, _TextPieces):
        return "".join(value)
    if isinstance(value, _IndexedEntries):
        return [assemble_value(value[index]) for index in sorted(value)]
    if isinstance(value, dict):
        return {key: assemble_value(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [assemble_value(inner) for inner in value]
    return value


def _merge_value(key: str, old: Any, new: Any) -> Any:
    if new is None or (key in _WHOLE and old):
        return old
    if isinstance(new, str) and key not in _WHOLE:
        return _append_text(key, old, new)
    if isinstance(new, list):
        return _merge_list(old, new)
    if isinstance(new, dict):
        gathered = old if isinstance(old, dict) else {}
        merge_delta(gathered, new)
        return gathered
    return new


def _append_text(key: str, old: Any, new: str) -> Any:
    if isinstance(old, _TextPieces):
        # Some servers repeat a tool's name in each piece.
        if key != "name" or "".join(old) != new:
            old.append(new)
        return old
    # Content that began as parts goes on in parts.
    if isinstance(old, list):
        return [*old, {"type": "text", "text": new}]
    return _TextPieces((new,))


def _merge_list(old: Any, new: list[Any]) -> Any:
    if not new and old is not None:
        return old
    if not is_indexed_list(new):
        if isinstance(old, _TextPieces) and any(old):
            begun = [{"type": "text", "text": "".join(old)}]
        else:
            begun = old
        if isinstance(begun, list) and not isinstance(begun, _TextPieces):
            return [*begun, *new]
        return list(new)
    slots = old if isinstance(old, _IndexedEntries) else _IndexedEntries()
    for entry in new:
        merge_delta(slots.setdefault(as_int(entry["index"]) or 0, {}), entry)
    return slots


def is_indexed_list(value: object) -> bool:
    """Whether it is a list of objects that say where each belongs."""
    return isinstance(value, list) and bool(value) and all(isinstance(e, dict) and "index" in e for e in value)
