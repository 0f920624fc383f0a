"""Write a changed JSON value so that every part of it that is unchanged keeps its bytes.

Numbers beyond a float, escapes and unknown fields survive in a message of which one part was hidden. How parts of the
two values are matched only decides what is kept; the result always means `after`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from elision.errors import MissingExtra
from elision.gateway.json_decoding import UnreadableBody

try:
    import msgspec
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

#: What tells two content blocks of one type apart.
_IDENTIFYING_FIELDS: Final = ("type", "id", "tool_use_id", "call_id", "tool_call_id")
#: Elements that are looked at for one that was made of them.
_MAX_LOOKAHEAD: Final = 100

_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])


def patch_json(raw: bytes, before: Any, after: Any) -> bytes:
    """Return the bytes of `after`, with the bytes of `raw` wherever a part equals the part of `before` at its place.

    raw: JSON text of `before`. Raises UnreadableBody where it is no JSON or `after` has no JSON.
    """
    try:
        return raw if _is_same_json(before, after) else _patch_value(raw, before, after)
    except (ValueError, TypeError, RecursionError) as error:
        raise UnreadableBody(f"a value that cannot be rewritten: {error}") from error


def append_elements(raw_array: bytes | None, items: Sequence[bytes]) -> bytes:
    """Return a JSON array with more elements at its end; None and null count as empty. Raises UnreadableBody."""
    try:
        known = _LIST.decode(raw_array or b"null") if raw_array not in (None, b"null") else []
        return b"[%b]" % b",".join([*map(bytes, known), *items])
    except (ValueError, RecursionError) as error:
        raise UnreadableBody(f"no JSON array: {error}") from error


def encode_json(value: Any) -> bytes:
    """Return compact JSON. Raises ValueError or TypeError where `value` has none."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # Half of a surrogate pair has no UTF-8; as an escape it is JSON.
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def _patch_value(raw: bytes, before: Any, after: Any) -> bytes:
    """Return the bytes of a value that has changed."""
    if isinstance(before, dict) and isinstance(after, dict):
        fields = _FIELDS.decode(raw)
        own = fields.keys() & after.keys()
        patched = {
            name: msgspec.Raw(_patch_value(bytes(fields[name]), before[name], after[name]))
            for name in own
            if not _is_same_json(before[name], after[name])
        }
        new = {name: msgspec.Raw(encode_json(value)) for name, value in after.items() if name not in own}
        return msgspec.json.encode({name: value for name, value in (fields | patched | new).items() if name in after})
    if isinstance(before, list) and isinstance(after, list):
        return b"[%b]" % b",".join(_patch_elements([*map(bytes, _LIST.decode(raw))], before, after))
    return encode_json(after)


def _patch_elements(raws: list[bytes], before: list[Any], after: list[Any]) -> list[bytes]:
    """Return the bytes of each element of `after`: what is equal is looked for first, then a block of the same call."""
    patched: list[bytes] = []
    at = 0
    for element in after:
        ahead = range(at, min(len(before), at + _MAX_LOOKAHEAD))
        place = next((each for each in ahead if _is_same_json(before[each], element)), None)
        if place is None:
            place = next((each for each in ahead if _is_same_block(before[each], element)), None)
        if place is None:
            patched.append(encode_json(element))
        else:
            patched.append(patch_json(raws[place], before[place], element))
            at = place + 1
    return patched


def _is_same_json(one: Any, other: Any) -> bool:
    """Return whether both are the same JSON, which `==` does not check: 1, 1.0 and True are equal in Python."""
    if one is other:
        return True
    return bool(one == other) and (isinstance(one, str) or encode_json(one) == encode_json(other))


def _is_same_block(one: Any, other: Any) -> bool:
    return (
        isinstance(one, dict)
        and isinstance(other, dict)
        and all(one.get(name) == other.get(name) for name in _IDENTIFYING_FIELDS)
    )
