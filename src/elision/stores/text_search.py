"""Search in one turn, the last step of every store's search: words of a query, and the line of a text around them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from elision.stores.store import Hit
from elision.trajectory.assistant_text import join_assistant_text
from elision.trajectory.turn import Turn

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


def list_texts(turn: Turn) -> Iterator[tuple[int, str, str]]:
    """Yield what can be searched in `turn`: (position, tool, text); position 0 is what the assistant wrote."""
    words = join_assistant_text(turn)
    if words:
        yield 0, "", words
    for position, observation in enumerate(turn.observations, start=1):
        yield position, observation.tool, observation.text


def find_hits(session: str, turn: Turn, words: Sequence[str]) -> Iterator[Hit]:
    """Yield the pieces of `turn` that contain all of `words`, which are folded."""
    for position, tool, text in list_texts(turn):
        folded = text.casefold()
        if all(word in folded for word in words):
            yield Hit(session=session, turn=turn.index, position=position, tool=tool, excerpt=make_excerpt(text, words))
