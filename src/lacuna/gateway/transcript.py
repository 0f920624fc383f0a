"""What one client has sent so far, message by message: which of a new request is known, and the objects it was read to.

A message is known by its bytes (a comparison in C), and where those differ by what it says, so moved cache markers,
dropped nulls and new ids are no change. A known message keeps the object it was decoded to, which is how the library
tells in O(1) that it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import eq
from typing import Any

from lacuna.dialects.live.pieces import LiveDialect, chained, digest
from lacuna.gateway.body import decoded


@dataclass(slots=True)
class Entry:
    """One message. says: its name by content, b"" if it says nothing. node: the name of the history that it ends."""

    raw: bytes
    json: dict[str, Any]
    says: bytes
    node: bytes
    assistant: bool


@dataclass(slots=True)
class Transcript:
    """The messages of one conversation. seed: what names are made from; families with different seeds share no name."""

    dialect: LiveDialect
    seed: bytes
    entries: list[Entry] = field(default_factory=list)
    #: The same messages' bytes, so that a whole history is compared at once.
    raws: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def newest(self) -> int:
        """Where the newest message of the assistant stands; -1 if it said nothing yet."""
        return next((place for place in range(len(self) - 1, -1, -1) if self.entries[place].assistant), -1)

    @property
    def head(self) -> int:
        """Messages before the assistant's first."""
        return next((place for place, entry in enumerate(self.entries) if entry.assistant), len(self))

    def spoken(self, raws: Sequence[bytes], known: int) -> list[bool]:
        """Which of the messages of a request the assistant said; so many of them are known.

        Raises Unreadable where a message is no object.
        """
        new = (self._read(raw, place, inside=True)[1] for place, raw in enumerate(raws[known:], start=known))
        return [*(entry.assistant for entry in self.entries[:known]), *new]

    @property
    def node(self) -> bytes:
        """The name of the whole history."""
        return self.entries[-1].node if self.entries else self.seed

    def common(self, raws: Sequence[bytes]) -> int:
        """How many leading messages of a request say what is known."""
        if raws[: len(self)] == self.raws:
            return len(self)
        same = map(eq, self.raws, raws)
        for place, equal in enumerate(same):
            if not equal and not self._says(place, raws[place]):
                return place
        return min(len(self), len(raws))

    def _says(self, place: int, raw: bytes) -> bool:
        said, _ = self._read(raw, place, self._inside(place))
        return said[1] == self.entries[place].says

    def take(self, raws: Sequence[bytes]) -> list[dict[str, Any]]:
        """The request is this one's: forget what is not in it, read what is new; its messages as objects.

        Raises Unreadable where a message is no object.
        """
        kept = self.common(raws)
        del self.entries[kept:], self.raws[kept:]
        for place in range(kept):
            if raws[place] != self.raws[place]:
                # It says the same in other bytes, and those are to be sent.
                self.entries[place].raw, self.entries[place].json = raws[place], decoded(raws[place])
                self.raws[place] = raws[place]
        for place in range(kept, len(raws)):
            self._append(raws[place], place)
        return [entry.json for entry in self.entries]

    def answers(self, first: int) -> int:
        """How many times the assistant spoke from message `first` on; what it says in a row is one answer."""
        spoken = [entry.assistant for entry in self.entries[max(first - 1, 0) :]]
        before = spoken.pop(0) if first else False
        return sum(now and not then for then, now in zip([before, *spoken], spoken, strict=False))

    def said(self) -> set[bytes]:
        """What the messages behind the head say."""
        return {entry.says for entry in self.entries[self.head :] if entry.says}

    def after(self, *messages: dict[str, Any]) -> bytes:
        """The name of this history with `messages` behind it."""
        node = self.node
        for place, message in enumerate(messages, start=len(self)):
            says = digest(self.dialect.pieces(message, place), inside=True)
            node = chained(node, says)
        return node

    def _append(self, raw: bytes, place: int) -> None:
        (json, says), assistant = self._read(raw, place, self._inside(place))
        self.entries.append(
            Entry(raw=raw, json=json, says=says, node=chained(self.node, says), assistant=assistant),
        )
        self.raws.append(raw)

    def _inside(self, place: int) -> bool:
        return any(entry.assistant for entry in self.entries[:place])

    def _read(self, raw: bytes, place: int, inside: bool) -> tuple[tuple[dict[str, Any], bytes], bool]:
        json = decoded(raw)
        pieces = self.dialect.pieces(json, place)
        return (json, digest(pieces, inside=inside)), any(piece.kind == "assistant" for piece in pieces)


def answers(spoken: Sequence[bool]) -> int:
    """How often the assistant spoke; what it says in a row is one answer."""
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))
