"""What a search shows: the words of a query, and the line of a text where they stand."""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Characters of an excerpt.
WIDTH = 160
_WORD = re.compile(r"\w+")


def split_words(query: str) -> list[str]:
    """The words of `query`, folded for comparison without case; what is no letter, digit or underscore separates.

    Folding comes first: a word then stands in a folded text exactly where it stands in one of the text's own words.
    """
    return _WORD.findall(query.casefold())


def make_excerpt(text: str, words: Sequence[str], width: int = WIDTH) -> str:
    """One line of `text` around the longest of `words`, which tells most, at most `width` characters."""
    # Folding may change lengths; a place that is a little off only moves the excerpt.
    middle = max(0, text.casefold().find(max(words, key=len, default="")))
    first = max(0, middle - width // 3)
    cut = " ".join(text[first : first + width].split())
    return f"{'…' if first else ''}{cut}{'…' if first + width < len(text) else ''}"
