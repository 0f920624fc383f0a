"""Read JSON that models, clients, servers and recorders wrote: it may be anything, and no text of theirs raises.

The standard library's parser: it keeps integers of any size and lone surrogates, which servers send when they cut a
text in two, and reads `NaN`. Of a name that an object has twice the last value counts.
"""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes | bytearray) -> Any:
    """Return the value of a JSON text; None where it is none, or is nested too deeply to read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def parse_object(text: str | bytes | bytearray) -> dict[str, Any] | None:
    """Return the JSON object that `text` is; None if it is none."""
    value = parse_json(text)
    return value if isinstance(value, dict) else None
