"""Values of frameworks as text, for messages that Elision reads."""

from __future__ import annotations

import hashlib
import json


def dump_value(value: object) -> str:
    """Return `value` as text: a string itself, all else as JSON.

    Bytes become their length and digest, what JSON does not know its `repr`.
    """
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=_describe_value)


def _describe_value(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return f"{len(value)} bytes, sha256 {hashlib.sha256(value).hexdigest()[:16]}"
    return repr(value)
