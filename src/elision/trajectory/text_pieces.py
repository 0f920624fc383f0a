"""Large texts, piece by piece: one call of C over all of a text would let no other thread run until it returns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final

#: Characters or bytes of a piece: less than half a millisecond's work for most calls. With four times as many, others
#: wait twice as long; with a quarter, the work itself takes longer.
PIECE: Final = 16 * 1024


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


def iter_line_matches(pattern: re.Pattern[str], text: str, start: int = 0) -> Iterator[re.Match[str]]:
    """Yield the matches of `pattern` from `start` on; each begins with "\n" and has no other."""
    while start < len(text):
        end = text.find("\n", start + PIECE)
        end = len(text) if end < 0 else end
        yield from pattern.finditer(text, start, end)
        start = end
