"""JSON of any size, decoded in pieces, and written so that what is unchanged keeps its bytes.

Where strings are long, no call of C decodes more than a piece: other threads, and so other clients, wait for each call.
msgspec decodes 5 MB of code in 17 ms.

Numbers beyond a float, escapes and unknown fields survive in a message of which one part was hidden. How parts of the
two values are matched only decides what is kept; the result always means `after`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from secrets import token_hex
from typing import Any, Final

import msgspec

from elision.errors import ElisionError
from elision.trajectory.foreign_text import PIECE

#: Values in one text, and bytes of one string. A call of C that makes more of them stops everything else meanwhile; a
#: request of a million tokens has a few ten thousand values, and the largest images of providers are smaller.
MAX_VALUES: Final = 200_000
MAX_STRING_BYTES: Final = 8 * 1024 * 1024
#: Bytes between two strings: white space, numbers, brackets.
_MAX_GAP_BYTES: Final = 1024 * 1024
_BACKSLASH: Final = ord("\\")
#: Bytes for each string in a text, on average, from which on it is decoded in pieces: strings are looked at one by one.
_LONG_STRING_BYTES: Final = 4 * 1024
#: Bytes of a long string that stay when it is shortened.
_BEGINNING_BYTES: Final = 4 * 1024
#: Characters of a string as JSON has them, escapes and surrogate pairs whole.
_CHARACTERS: Final = re.compile(
    rb'(?:[^"\\]++|\\u[dD][89abAB].{2}\\u[dD][c-fC-F].{2}|\\u(?![dD][89abAB]).{4}|\\[^u])*+', re.DOTALL
)
#: Bytes of a surrogate pair's escapes.
_LONGEST_CHARACTER: Final = 12
#: Places where a cut is tried, before all characters of a piece are read.
_MOST_TRIED: Final = 64
#: Stands for a long string, with its number. No text can say it.
_MARK: Final = f"elision-{token_hex(16)}-"
#: What tells two content blocks of one type apart.
_IDENTIFYING_FIELDS: Final = ("type", "id", "tool_use_id", "call_id", "tool_call_id")
#: Elements that are looked at for one that was made of them.
_MAX_LOOKAHEAD: Final = 100
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST: Final = msgspec.json.Decoder(list[msgspec.Raw])


class UnreadableBody(ElisionError):  # noqa: N818 - reads as what it is at the call site
    """Bytes that cannot be parsed here; they pass unchanged."""


def decode_json(raw: bytes) -> Any:
    """Return a JSON value. Raises UnreadableBody, also for values that Python lacks: 1e400, a lone surrogate."""
    try:
        if len(raw) > 4 * PIECE and _has_long_strings(raw):
            return _decode_in_pieces(raw)
        return msgspec.json.decode(raw)
    except (ValueError, RecursionError) as error:
        raise UnreadableBody(f"JSON that cannot be read: {error}") from error


def shorten_strings(raw: bytes) -> bytes:
    """Return a JSON text with only the beginning of each long string; the very text where most strings are short."""
    if len(raw) <= 4 * PIECE or not _has_long_strings(raw):
        return raw
    short: list[bytes] = []
    copied = 0
    for start, end in _find_long_strings(raw, len(raw)):
        short.append(raw[copied : _find_cut(raw, start, start + _BEGINNING_BYTES)])
        copied = end
    return b"".join([*short, raw[copied:]])


def check_size(raw: bytes, start: int = 0) -> None:
    """Raise UnreadableBody where the JSON text after `start` has too many values, or too long a string.

    For large bodies, before a C parser takes them in one call. Text that is no JSON needs no error here.
    """
    values = 0
    at = start
    while at < len(raw):
        quote = raw.find(b'"', at)
        gap_end = quote if quote >= 0 else len(raw)
        if gap_end - at > _MAX_GAP_BYTES:
            raise UnreadableBody(f"more than {_MAX_GAP_BYTES} bytes stand between two strings")
        if gap_end - at > 4:
            values += 1 + sum(raw.count(mark, at, gap_end) for mark in (b",", b"[", b"{"))
        else:
            values += 2
        if values > MAX_VALUES:
            raise UnreadableBody(f"more than {MAX_VALUES} values")
        if quote < 0:
            return
        at = find_string_end(raw, quote + 1) + 1


def find_string_end(raw: bytes, start: int, longest: int = MAX_STRING_BYTES) -> int:
    """Return where the string ends whose first character is at `start`.

    Raises UnreadableBody where it has more than `longest` bytes.
    """
    at = start
    while at < len(raw):
        end = min(at + PIECE, len(raw))
        quote = raw.find(b'"', at, end)
        if raw[(quote if quote > at else end) - 1] == _BACKSLASH and quote != at:
            # Backslashes come in pairs but for one that escapes what is behind it, perhaps in the next piece.
            piece = raw[at:end].replace(rb"\\", b"  ").replace(rb"\"", b"  ")
            place = piece.find(b'"')
            quote = at + place if place >= 0 else -1
            end -= piece.endswith(b"\\")
        if quote >= 0:
            end = quote
        if end - start > longest:
            raise UnreadableBody(f"a string has more than {longest} bytes")
        if quote >= 0 or end == at:
            return end
        at = end
    return at


def _has_long_strings(raw: bytes) -> bool:
    left = len(raw) // _LONG_STRING_BYTES
    at = 0
    # To look for the next quote is twenty times faster than to count them, and long strings have few.
    while (quote := _find_quote(raw, at)) >= 0:
        at = quote + 1
        if raw[quote - 1 : quote] != b"\\":
            left -= 1
            if left <= 0:
                return False
    return True


def _find_long_strings(raw: bytes, longest: int = MAX_STRING_BYTES) -> Iterator[tuple[int, int]]:
    """Yield where the characters of each long string begin, and where they end."""
    at = 0
    while (quote := _find_quote(raw, at)) >= 0:
        end = find_string_end(raw, quote + 1, longest)
        if end - quote > PIECE:
            yield quote + 1, end
        at = end + 1


def _find_quote(raw: bytes, at: int) -> int:
    for start in range(at, len(raw), PIECE):
        if (quote := raw.find(b'"', start, start + PIECE)) >= 0:
            return quote
    return -1


def _decode_in_pieces(raw: bytes) -> Any:
    """Decode the text without its long strings, and put those in their places."""
    short: list[bytes] = []
    long: list[str] = []
    copied = 0
    for start, end in _find_long_strings(raw):
        short += (raw[copied:start], f"{_MARK}{len(long)}".encode())
        long.append("".join(_decode_string(raw, start, end)))
        copied = end
    return _put_back(msgspec.json.decode(b"".join([*short, raw[copied:]])), long)


def _decode_string(raw: bytes, start: int, end: int) -> Iterator[str]:
    """Yield pieces of the string whose first character is at `start`, and whose quote is at `end`."""
    at = start
    while at < end:
        stop = min(at + PIECE, end)
        if stop < end:
            stop = _find_cut(raw, at, stop)
        if stop <= at:
            # No character: the decoder says what is wrong.
            stop = end
        piece: str = msgspec.json.decode(b'"%b"' % raw[at:stop], type=str)
        yield piece
        at = stop


def _find_cut(raw: bytes, at: int, stop: int) -> int:
    """Return a place at or before `stop` where a string can be cut whose character at `at` is whole."""
    for place in range(stop, max(at + _LONGEST_CHARACTER, stop - _MOST_TRIED), -1):
        if raw.rfind(b"\\", place - _LONGEST_CHARACTER, place) < 0 and not 0x80 <= raw[place] < 0xC0:
            return place
    # Escapes all over: they are read from the first on.
    found = _CHARACTERS.match(raw, at, stop)
    stop = found.end() if found else at
    while 0x80 <= raw[stop] < 0xC0:
        # Within the bytes of one character.
        stop -= 1
    return stop


def _put_back(value: Any, long: list[str]) -> Any:
    if isinstance(value, str):
        return long[int(value[len(_MARK) :])] if value.startswith(_MARK) else value
    if isinstance(value, list):
        return [_put_back(each, long) for each in value]
    if isinstance(value, dict):
        return {_put_back(key, long): _put_back(each, long) for key, each in value.items()}
    return value


# -- changed values ---------------------------------------------------------------------------------------------------


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
