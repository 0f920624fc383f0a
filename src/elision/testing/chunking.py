"""Split text into the chunks in which it is streamed."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: Characters of a delta; providers send a few tokens at a time.
MAX_CHUNK_LENGTH = 24

_CHUNK = re.compile(rf".{{1,{MAX_CHUNK_LENGTH}}}", re.DOTALL)


def split_text(text: str) -> Iterator[str]:
    """Split `text` into chunks of at most `MAX_CHUNK_LENGTH` characters; together they are `text`."""
    return (found[0] for found in _CHUNK.finditer(text))
