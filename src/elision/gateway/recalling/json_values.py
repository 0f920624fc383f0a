"""JSON values out of responses and back into them."""

from __future__ import annotations

import json
from typing import Any

from elision.gateway.recalling.rounds import Json
from elision.trajectory.foreign_json import parse_object


def parse_arguments(text: str) -> Json | None:
    """Return the JSON object that a model wrote as a call's arguments, {} for nothing; None if it is none."""
    return parse_object(text.strip() or "{}")


def dump_json(value: Any) -> bytes:
    """Return compact JSON in UTF-8, with escapes where UTF-8 has no encoding."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def as_list(value: object) -> list[Any]:
    """Return `value` if it is a list, else []."""
    return value if isinstance(value, list) else []


def as_objects(value: object) -> list[Json]:
    """Return the JSON objects of a list; [] if `value` is no list."""
    return [item for item in as_list(value) if isinstance(item, dict)]


def as_object(value: object) -> Json:
    """Return `value` if it is a JSON object, else {}."""
    return value if isinstance(value, dict) else {}


def as_text(value: object) -> str:
    """Return `value` if it is a string, else ""."""
    return value if isinstance(value, str) else ""


def as_int(value: object) -> int | None:
    """Return `value` if it is an integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None
