"""Merge deltas into a message: texts are joined, list entries go by their `index`, null changes nothing.

This follows the SDK's accumulator (openai 3.54), with two differences: what a server repeats in each delta (ids, types)
is kept once, and texts are joined once, at the end.
"""

from __future__ import annotations

from typing import Any

from elision.providers.shared.json_reading import int_in
from elision.providers.streaming.rounds import Json

#: Fields whose text is complete in every delta.
_WHOLE = frozenset(("id", "type", "role", "index", "format"))


class _TextPieces(list[str]):
    """A text in pieces."""


class _IndexedEntries(dict[int, Json]):
    """Entries of a list by their index."""


def merge_delta(message: Json, delta: Json) -> None:
    """Add a delta to what was gathered so far."""
    for key, value in delta.items():
        message[key] = _merge_value(key, message.get(key), value)


def assemble_value(value: Any) -> Any:
    """Return what was gathered as plain JSON."""
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
        # Some servers repeat a tool's name in each delta.
        if key != "name" or "".join(old) != new:
            old.append(new)
        return old
    if isinstance(old, list):
        # Content that began as parts continues in parts.
        return [*old, {"type": "text", "text": new}]
    return _TextPieces((new,))


def _merge_list(old: Any, new: list[Any]) -> Any:
    if not new and old is not None:
        return old
    if is_indexed_list(new):
        entries = old if isinstance(old, _IndexedEntries) else _IndexedEntries()
        for entry in new:
            merge_delta(entries.setdefault(int_in(entry["index"]) or 0, {}), entry)
        return entries
    if isinstance(old, _TextPieces) and any(old):
        return [{"type": "text", "text": "".join(old)}, *new]
    if isinstance(old, list) and not isinstance(old, _TextPieces):
        return [*old, *new]
    return list(new)


def is_indexed_list(value: object) -> bool:
    """Return whether `value` is a list of objects that all have an `index`."""
    return (
        isinstance(value, list) and bool(value) and all(isinstance(entry, dict) and "index" in entry for entry in value)
    )
