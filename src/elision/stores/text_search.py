"""Search in one turn, the last step of every store's search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elision.stores.excerpts import make_excerpt
from elision.stores.packing import list_texts
from elision.stores.store import Hit
from elision.trajectory.events import TurnAdded
from elision.trajectory.turn import Turn


def find_hits(session: str, turn: Turn, words: Sequence[str]) -> Iterator[Hit]:
    """Yield the pieces of `turn` that contain all of `words` (folded, from `split_words`)."""
    for position, tool, text in list_texts(TurnAdded(turn)):
        folded = text.casefold()
        if all(word in folded for word in words):
            yield Hit(session=session, turn=turn.index, position=position, tool=tool, excerpt=make_excerpt(text, words))
