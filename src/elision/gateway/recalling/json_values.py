"""JSON out of answers and back into them.

The standard library's: it keeps numbers of any size and halves of surrogate pairs, which servers do send when they cut
a text between two deltas.
"""

from __future__ import annotations

import json
from typing import Any

from elision.gateway.recalling.rounds import Json


def load_object(data: bytes) -> Json | None:
    """The JSON object that `data` is; None if it is none."""
    try:
        value = json.loads(data) if data else None
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        return value
    return None


def parse_arguments(text: str) -> Json | None:
    """The JSON object that a model wrote as a call's arguments, {} for nothing; None if it is none."""
    return load_object((text.strip() or "{}").encode("utf-8", "surrogatepass"))


def dump_json(value: Any) -> bytes:
    """Compact JSON in UTF-8, escaped where UTF-8 cannot say it."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def as_list(value: object) -> list[Any]:
    """`value` if it is a list, else []."""
    if isinstance(value, list):
        return value
    return []


def as_objects(value: object) -> list[Json]:
    """The JSON objects of a list; [] if it is none."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_object(value: object) -> Json:
    """`value` if it is a JSON object, else {}."""
    if isinstance(value, dict):
        return value
    return {}


def as_text(value: object) -> str:
    """`value` if it is a text, else ""."""
    if isinstance(value, str):
        return value
    return ""


def as_int(value: object) -> int | None:
    """`value` if it is a whole number, else None."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None
