"""Words of a query, and the line of a text around them."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Characters of an excerpt.
WIDTH = 160
_WORD = re.compile(r"\w+")


def split_words(query: str) -> list[str]:
    """Return the words of `query`, casefolded: the runs of letters, digits and underscores.

    Folding comes first: a folded text then contains a word exactly where one of its own words does.
    """
    return _WORD.findall(query.casefold())


def make_excerpt(text: str, words: Sequence[str], width: int = WIDTH) -> str:
    """Return one line of `text` around the longest of `words`, the rarest as a rule, at most `width` characters."""
    # Folding may change lengths; a place that is a little off only moves the excerpt.
    middle = max(0, text.casefold().find(max(words, key=len, default="")))
    first = max(0, middle - width // 3)
    cut = " ".join(text[first : first + width].split())
    return f"{'…' if first else ''}{cut}{'…' if first + width < len(text) else ''}"
