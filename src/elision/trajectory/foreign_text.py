"""Text of others, such as models, clients, servers and recorders: cleaned, read as JSON, and taken piece by piece.

No text of theirs raises. JSON is read by the parser of the standard library: it keeps integers of any size and lone
surrogates, which servers send when they cut a text in two, and reads `NaN`. Of a name that an object has twice the
last value counts. A large text is taken piece by piece, since one call of C over all of it would let no other thread
run until it returns.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

#: Terminal sequences, and the control characters of ASCII and Latin-1 but tab, line feed and carriage return.
_UNSENDABLE: Final = re.compile("\x1b\\[[0-?]{0,40}[ -/]{0,10}[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
#: Characters or bytes of a piece: less than half a millisecond's work for most calls. With four times as many, others
#: wait twice as long; with a quarter, the work itself takes longer.
PIECE: Final = 16 * 1024
# CSI sequences; OSC, DCS, SOS, PM and APC strings; two-letter escapes.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
# Control characters but newline and tab, and what turns the direction of writing.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def escape_controls(text: str) -> str:
    """`text` without anything that a terminal would act on but newlines; tabs are four letters wide."""
    clean = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROLS.sub("", clean).encode("utf-8", "replace").decode("utf-8").expandtabs(4)


def make_visible(text: str) -> str:
    """`text` with a sign for everything that a terminal would act on, and newlines and tabs as they are."""

    def picture_control(found: re.Match[str]) -> str:
        """Unicode's picture of a control character; others by their number."""
        code = ord(found[0])
        if code < 0x20 or code == 0x7F:
            return chr(0x2421 if code == 0x7F else 0x2400 + code)
        return f"<U+{code:04X}>"

    clean = _CONTROLS.sub(picture_control, text.replace("\r\n", "\n"))
    return clean.encode("utf-8", "replace").decode("utf-8")


def make_encodable(text: str) -> str:
    """Return `text` as UTF-8 can carry it: two halves of a surrogate pair joined, a lone half replaced by U+FFFD."""
    if text.isascii():
        return text
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def remove_controls(text: str) -> str:
    """Return `text` without terminal sequences and control characters (NUL, ESC ...); tabs and line ends stay."""
    if text.isprintable():
        return text
    return _UNSENDABLE.sub("", text)


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


def split_text(text: str, size: int = PIECE) -> Iterable[str]:
    """Return `text` in pieces of `size` characters."""
    if len(text) <= size:
        return (text,)
    return (text[start : start + size] for start in range(0, len(text), size))


def encode_pieces(text: str) -> Iterable[bytes]:
    """Return the UTF-8 of `text` in pieces; lone surrogates are encoded as well."""
    if len(text) <= PIECE:
        return (text.encode("utf-8", "surrogatepass"),)
    return (piece.encode("utf-8", "surrogatepass") for piece in split_text(text))


def join_pieces(pieces: list[bytes]) -> bytes:
    """Return `pieces` as one, and let go of them one by one: to free many megabytes in one call takes milliseconds."""
    whole = b"".join(pieces)
    while pieces:
        del pieces[-1]
    return whole


def digest_text(text: str) -> bytes:
    """Return a digest (16 bytes) of `text`."""
    digest = blake2b(digest_size=16)
    for data in encode_pieces(text):
        digest.update(data)
    return digest.digest()


def search_pieces(pattern: re.Pattern[str], text: str, longest: int) -> re.Match[str] | None:
    """Return a match of `pattern` in `text`, or None. longest: characters that a match may have."""
    for start in range(0, max(len(text), 1), PIECE):
        if found := pattern.search(text, start, start + PIECE + longest):
            return found
    return None


def iter_line_matches(pattern: re.Pattern[str], text: str, start: int) -> Iterator[re.Match[str]]:
    """Yield the matches of `pattern` from `start` on; each begins with "\n" and has no other."""
    while start < len(text):
        end = text.find("\n", start + PIECE)
        end = len(text) if end < 0 else end
        yield from pattern.finditer(text, start, end)
        start = end
