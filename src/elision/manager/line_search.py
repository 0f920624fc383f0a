"""Which lines of a text match a regular expression: linear time and bounded memory, for the pattern is a model's text.

The engine is RE2. What it has not (look-around, back-references, possessive repeats) is refused with a reason.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any, Final

from elision.errors import UnknownHandle

#: Longest pattern, in characters.
LONGEST_PATTERN: Final = 1_000
#: Bytes that one compiled pattern may take. RE2 refuses what needs more, before it is built.
PATTERN_BYTES: Final = 1 << 20
#: Seconds after which no further line is searched.
SEARCH_SECONDS: Final = 1.0
#: Most instructions × bytes of a single line, which cannot be interrupted: 6 ns each in the worst case.
LINE_WORK: Final = 400_000_000

#: An escape, or what begins or ends a class; so that `\w` inside of `[...]` is told from one outside.
_PIECE: Final = re.compile(r"\\.|\[:\^?\w+:\]|\[\^?\]?|\]", re.DOTALL)
#: RE2's `\w` and `\s` know ASCII alone: the same of Unicode, inside a class.
_UNICODE: Final = {r"\w": r"\p{L}\p{M}\p{N}_", r"\s": r"\s\p{Z}"}


def find_matching_lines(lines: Sequence[str], pattern: str) -> list[int]:
    """Return the 0-based numbers of `lines` in which `pattern` is found, in order.

    Raises UnknownHandle, in words for the model, for a pattern that is refused or takes too long.
    """
    search = _compile(pattern, is_ascii=all(map(str.isascii, lines)))
    end = time.monotonic() + SEARCH_SECONDS
    found: list[int] = []
    for number, line in enumerate(lines):
        # Lone surrogates are no UTF-8; RE2 takes any bytes.
        data = line.encode("utf-8", "surrogatepass")
        if time.monotonic() >= end or search.programsize * len(data) > LINE_WORK:
            raise _refuse(pattern, "it takes too long here")
        if search.search(data) is not None:
            found.append(number)
    return found


def _compile(pattern: str, *, is_ascii: bool) -> Any:
    if len(pattern) > LONGEST_PATTERN:
        raise _refuse(pattern, f"it has more than {LONGEST_PATTERN:,} characters")
    import re2  # only a recall with a pattern needs it

    options = re2.Options()
    options.max_mem = PATTERN_BYTES
    options.log_errors = False
    # Groups are not asked for, and thousands of them would take memory in each search.
    options.never_capture = True
    try:
        return re2.compile(_translate(pattern, is_ascii=is_ascii).encode("utf-8", "surrogatepass"), options)
    except re2.error as error:
        reason = error.args[0]
        raise _refuse(pattern, reason.decode("utf-8", "replace") if isinstance(reason, bytes) else reason) from error


def _translate(pattern: str, *, is_ascii: bool) -> str:
    r"""Return `pattern` in RE2's words: `\Z` is `\z`, and classes mean Unicode unless the text is ASCII.

    Two cases stay ASCII: `\b`, and `\W` or `\S` inside of `[...]`.
    """
    is_inside = False

    def replace(match: re.Match[str]) -> str:
        nonlocal is_inside
        piece = match[0]
        if piece == "]":
            is_inside = False
        elif piece.startswith("[") and not is_inside:
            is_inside = True
        elif piece == r"\Z" and not is_inside:
            return r"\z"
        elif piece.startswith("\\") and not is_ascii:
            return _widen(piece, is_inside=is_inside)
        return piece

    return _PIECE.sub(replace, pattern)


def _widen(escape: str, *, is_inside: bool) -> str:
    if escape.lower() == r"\d":
        if escape == r"\d":
            return r"\p{Nd}"
        return r"\P{Nd}"
    members = _UNICODE.get(escape.lower())
    if members is None:
        return escape
    if escape.islower():
        if is_inside:
            return members
        return f"[{members}]"
    if is_inside:
        return escape
    return f"[^{members}]"


def _refuse(pattern: str, reason: str) -> UnknownHandle:
    return UnknownHandle(
        f"pattern {pattern[:60]!r} cannot be used: {reason}. "
        "Give a simpler one or plain words; look-around and back-references are not supported"
    )
