"""Decode JSON of any size, of which no call of C decodes more than a piece where its strings are long.

Other threads, and so other clients, wait for each call. msgspec decodes 5 MB of code in 17 ms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from secrets import token_hex
from typing import Any, Final

import msgspec

from elision.errors import ElisionError
from elision.trajectory.text_pieces import PIECE

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
