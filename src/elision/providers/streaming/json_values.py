"""JSON values out of responses and back into them."""

from __future__ import annotations

import json
from typing import Any

from elision.trajectory.foreign_json import parse_object


def parse_arguments(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a model wrote as a call's arguments, {} for nothing; None if it is none."""
    return parse_object(text.strip() or "{}")


def dump_json(value: Any) -> bytes:
    """Return compact JSON in UTF-8, with escapes where UTF-8 has no encoding."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
