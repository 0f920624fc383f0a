"""Text in the pieces in which it is streamed."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: Characters of a delta; providers send a few tokens at a time.
LONGEST = 24

_PIECE = re.compile(rf".{{1,{LONGEST}}}", re.DOTALL)


def pieces(text: str) -> Iterator[str]:
    """`text` in pieces of at most `LONGEST` characters; together they are `text`."""
    return (found[0] for found in _PIECE.finditer(text))
