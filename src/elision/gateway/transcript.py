"""What one client has sent so far, message by message: which of a new request is known, and the objects it was read to.

A message is known by its bytes (a comparison in C), and where those differ by what it says, so moved cache markers,
dropped nulls and new ids are no change. A known message keeps the object it was decoded to, which is how the library
tells in O(1) that it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import eq, ne
from typing import Any

from elision.dialects.live.pieces import LiveDialect, Piece, chain_digest, digest_pieces
from elision.gateway.body import decoded


class Arrived:
    """The messages of one request, each read at most once however many sessions are asked whether they know it.

    Raises Unreadable where one that is looked at is no JSON object.
    """

    def __init__(self, dialect: LiveDialect, raws: Sequence[bytes]) -> None:
        self.dialect = dialect
        self.raws = raws
        self._read: dict[int, tuple[dict[str, Any], list[Piece]]] = {}
        self._says: dict[tuple[int, bool], bytes] = {}
        #: The messages as a whole line of a conversation, where they were read as one ahead.
        self.line: Sequence[Entry] = ()

    def __len__(self) -> int:
        return len(self.raws)

    def read_ahead(self, line: Transcript) -> None:
        """Read them all now, behind what `line` has of them; its seed must be that of whoever takes them."""
        line.take(self)
        self.line = line.entries

    def json(self, place: int) -> dict[str, Any]:
        """Message `place` as an object."""
        return self._taken_apart(place)[0]

    def says(self, place: int, *, inside: bool) -> bytes:
        """What it says, b"" for nothing; inside: whether it stands behind the head."""
        key = place, inside
        if key not in self._says:
            self._says[key] = digest_pieces(self._taken_apart(place)[1], is_behind_head=inside)
        return self._says[key]

    def is_assistants(self, place: int) -> bool:
        """Whether the assistant says it."""
        return any(piece.kind == "assistant" for piece in self._taken_apart(place)[1])

    def _taken_apart(self, place: int) -> tuple[dict[str, Any], list[Piece]]:
        if place not in self._read:
            json = decoded(self.raws[place])
            self._read[place] = json, self.dialect.split_message(json, place)
        return self._read[place]


@dataclass(frozen=True, slots=True)
class Entry:
    """One message. says: its name by content, b"" if it says nothing. node: the name of the history that it ends.

    ahead: whether what comes behind it stands behind the head.
    """

    raw: bytes
    json: dict[str, Any]
    says: bytes
    node: bytes
    assistant: bool
    ahead: bool


@dataclass(slots=True)
class Transcript:
    """The messages of one conversation. seed: what names are made from; families with different seeds share no name."""

    dialect: LiveDialect
    seed: bytes
    entries: list[Entry] = field(default_factory=list)
    #: The same messages' bytes, so that a whole history is compared at once.
    raws: list[bytes] = field(default_factory=list)

    @classmethod
    def of_family(cls, dialect: LiveDialect, family: str) -> Transcript:
        """An empty one."""
        return cls(dialect, family.encode("utf-8", "surrogatepass"))

    def __len__(self) -> int:
        return len(self.entries)

    def copy(self) -> Transcript:
        """As it stands now, for another thread to read."""
        return replace(self, entries=list(self.entries), raws=list(self.raws))

    @property
    def newest(self) -> int:
        """Where the newest message of the assistant stands; -1 if it said nothing yet."""
        return next((place for place in range(len(self) - 1, -1, -1) if self.entries[place].assistant), -1)

    @property
    def head(self) -> int:
        """Messages before the assistant's first."""
        return next((place for place, entry in enumerate(self.entries) if entry.assistant), len(self))

    def spoken(self, arrived: Arrived, known: int) -> list[bool]:
        """Which of the messages of a request the assistant said; so many of them are known.

        Raises Unreadable where a message is no object.
        """
        return [
            *(entry.assistant for entry in self.entries[:known]),
            *map(arrived.is_assistants, range(known, len(arrived))),
        ]

    @property
    def node(self) -> bytes:
        """The name of the whole history."""
        if self.entries:
            return self.entries[-1].node
        return self.seed

    def common(self, arrived: Arrived) -> int:
        """How many leading messages of a request say what is known."""
        raws = arrived.raws
        if raws[: len(self)] == self.raws:
            return len(self)
        same = map(eq, self.raws, raws)
        for place, equal in enumerate(same):
            if not equal and arrived.says(place, inside=self._inside(place)) != self.entries[place].says:
                return place
        return min(len(self), len(raws))

    def take(self, arrived: Arrived) -> None:
        """The request is this one's: forget what is not in it, read what is new.

        Raises Unreadable where a message is no object.
        """
        kept = self.common(arrived)
        raws = arrived.raws
        del self.entries[kept:], self.raws[kept:]
        for place in list(compress(range(kept), map(ne, raws, self.raws))):
            # It says the same in other bytes, and those are to be sent. A request under way keeps its own.
            self.entries[place] = replace(self.entries[place], raw=raws[place], json=arrived.json(place))
            self.raws[place] = raws[place]
        if arrived.line:
            # A name of a history comes from its seed and from what it says, so they are the same.
            self.entries += arrived.line[kept:]
            self.raws += raws[kept:]
            return
        for place in range(kept, len(raws)):
            self._append(arrived, place)

    def answers(self, first: int) -> int:
        """How many times the assistant spoke from message `first` on; what it says in a row is one answer."""
        spoken = [entry.assistant for entry in self.entries[max(first - 1, 0) :]]
        before = spoken.pop(0) if first else False
        return sum(now and not then for then, now in zip([before, *spoken], spoken, strict=False))

    def said(self) -> set[bytes]:
        """What the messages behind the head say."""
        return {entry.says for entry in self.entries[self.head :] if entry.says}

    def after(self, entries: Sequence[Entry], messages: Sequence[dict[str, Any]]) -> bytes:
        """The name of the history `entries`, as it stood here once, with `messages` behind it."""
        node = entries[-1].node if entries else self.seed
        for place, message in enumerate(messages, start=len(entries)):
            says = digest_pieces(self.dialect.split_message(message, place), is_behind_head=True)
            node = chain_digest(node, says)
        return node

    def _append(self, arrived: Arrived, place: int) -> None:
        inside = self._inside(place)
        assistant = arrived.is_assistants(place)
        says = arrived.says(place, inside=inside)
        self.entries.append(
            Entry(
                raw=arrived.raws[place],
                json=arrived.json(place),
                says=says,
                node=chain_digest(self.node, says),
                assistant=assistant,
                ahead=inside or assistant,
            ),
        )
        self.raws.append(arrived.raws[place])

    def _inside(self, place: int) -> bool:
        return place > 0 and self.entries[place - 1].ahead


def answers(spoken: Sequence[bool]) -> int:
    """How often the assistant spoke; what it says in a row is one answer."""
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))
