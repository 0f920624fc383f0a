"""Views as the client's own messages with gaps: follows one session, work O(what changed).

Each output message is either the client's own (held as its index, so that the newest object is the one that is sent)
or one of ours: a result with another text, a summary, a user message of which only some blocks are left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from elision.dialects import Json
from elision.dialects.live.conversation import Sources
from elision.dialects.live.pieces import LiveDialect, Spot
from elision.trajectory.plan import Key
from elision.trajectory.turn import Message, Observation, Turn
from elision.trajectory.view import Segment, View

#: A message to send: an index into the client's messages, or one of our own.
Entry: TypeAlias = int | dict[str, Any]
_OURS = -1


@dataclass(slots=True)
class _Group:
    """What of one client message is sent. place: its index, or ours.

    whole: the message in other words; None for the client's own. blocks: which of its blocks, with another in their
    place or None; empty where the message goes as a whole.
    """

    place: int
    whole: dict[str, Any] | None = None
    blocks: list[tuple[int, dict[str, Any] | None]] = field(default_factory=list)


class Splice:
    """One session's messages.

    read: JSON of every message that was read so far, by index; shared with whoever reads them.
    """

    def __init__(self, dialect: LiveDialect, read: Sequence[Json]) -> None:
        self.dialect = dialect
        self._read = read
        self._head: list[Spot | None] = []
        self._turns: dict[int, Sources] = {}
        self._view: View | None = None
        self._groups: list[_Group] = []
        #: For each segment: groups up to and with it, and blocks of the last of them.
        self._ends: list[tuple[int, int]] = []
        self._entries: list[Entry] = []
        #: For each entry: the first group that is in it.
        self._starts: list[int] = []
        #: Client messages of which something of ours was made, and that where nothing else is in it.
        self._made: dict[int, dict[str, Any] | None] = {}

    def head(self, spots: Sequence[Spot | None]) -> None:
        """Where the head's messages stand, in order; None for one that is given apart."""
        self._head = list(spots)

    def turn(self, index: int, sources: Sources) -> None:
        """Where turn `index` stands."""
        self._turns[index] = sources

    def changed(self, place: int) -> None:
        """Message `place` says the same in another form (ids, cache markers): what was made of it is made anew."""
        if place in self._made:
            self.forget()

    def sent(self, place: int) -> dict[str, Any] | None:
        """What was sent instead of message `place`; None if it went as it was."""
        return self._made.get(place)

    def places(self, keys: Iterable[Key]) -> Iterator[int]:
        """The messages that hold observations."""
        return (self._turns[turn].observations[position - 1].place for turn, position in keys)

    def forget(self) -> None:
        """What was rendered before counts no more."""
        self._view = None
        self._made.clear()
        self._ends.clear()
        self._groups.clear()
        self._entries.clear()
        self._starts.clear()

    def entries(self, view: View) -> list[Entry]:
        """The messages of `view`."""
        kept = view.common(self._view)
        if kept < len(self._ends):
            self._go_back(kept)
        self._view = view
        if self._entries and len(self._ends) == view.length:
            return self._entries.copy()
        settled = len(self._groups)
        for segment in view.track.segments[len(self._ends) : view.length]:
            self._say(segment)
            self._ends.append((len(self._groups), len(self._groups[-1].blocks) if self._groups else 0))
        self._finish(settled)
        return self._entries.copy()

    def last_block(self, mark: int) -> tuple[int, int] | None:
        """(message, block) of the last block in front of segment `mark` of the newest view; None if none is."""
        if 0 < mark <= len(self._ends):
            groups, blocks = self._ends[mark - 1]
        else:
            groups, blocks = (0, 0)
        if not groups:
            return None
        entry = bisect_right(self._starts, groups - 1) - 1
        before = sum(self._count(self._groups[place]) for place in range(self._starts[entry], groups - 1))
        return entry, before + (blocks or self._count(self._groups[groups - 1])) - 1

    def _count(self, group: _Group) -> int:
        """Content blocks of what is sent of a client message."""
        if group.blocks:
            return len(group.blocks)
        message = group.whole if group.whole is not None else self._read[group.place]
        return max(1, len(self.dialect.blocks(message) or ()))

    def _go_back(self, place: int) -> None:
        del self._ends[place:]
        if self._ends:
            groups, blocks = self._ends[-1]
        else:
            groups, blocks = (0, 0)
        del self._groups[groups:]
        if self._groups:
            del self._groups[-1].blocks[blocks:]
        self._drop(groups)

    # -- segments ------------------------------------------------------------------------------------------------

    def _say(self, segment: Segment) -> None:
        match segment.source:
            case Turn():
                for spot in self._turns[segment.turn].said:
                    self._put(spot, None)
            case Observation():
                spot = self._turns[segment.turn].observations[segment.index - 1]
                self._put(spot, None if segment.kind == "observation" else segment.text)
            case Message():
                known = self._head if segment.kind == "head" else self._turns[segment.turn].interjections
                if (found := known[segment.index - 1]) is not None:
                    self._put(found, None)
            case _ if segment.kind == "summary":
                self._groups.append(_Group(_OURS, self.dialect.spoken(segment.text)))

    def _put(self, spot: Spot, text: str | None) -> None:
        """Send what stands at `spot`, saying `text` instead if that is given."""
        message = self._read[spot.place]
        if spot.parts is None:
            if text is None:
                whole = None
            else:
                whole = self._told(message, text)
            self._groups.append(_Group(spot.place, whole))
            return
        if not self._groups or self._groups[-1].place != spot.place:
            self._groups.append(_Group(spot.place))
        blocks = self.dialect.blocks(message) or []
        # Of several blocks that were one observation (a text protocol) the first says what stands for them all.
        for part in spot.parts if text is None else spot.parts[:1]:
            if text is None:
                told = None
            else:
                told = self.dialect.hidden(blocks[part], text)
            self._groups[-1].blocks.append((part, told))

    def _told(self, message: Json, text: str) -> dict[str, Any]:
        """A whole message that says `text`: a result, or, in a text protocol, the user's words."""
        if self.dialect.in_blocks:
            return {**message, "content": [{"type": "text", "text": text}]}
        return self.dialect.hidden(message, text)

    # -- messages ------------------------------------------------------------------------------------------------

    def _finish(self, settled: int) -> None:
        """Make messages of the groups; the last of the `settled` ones anew, for blocks may have joined it."""
        self._drop(settled)
        first = 0
        if self._starts:
            first = self._starts.pop()
            self._entries.pop()
        for place in range(first, len(self._groups)):
            self._append(place)

    def _drop(self, groups: int) -> None:
        """Forget the entries that begin behind the first `groups` groups."""
        while self._starts and self._starts[-1] >= groups:
            self._starts.pop()
            self._entries.pop()

    def _append(self, place: int) -> None:
        entry = self._entry(self._groups[place])
        last = self._entries[-1] if self._entries else None
        if not isinstance(entry, int):
            self._made[self._groups[place].place] = entry
        if last is not None and self._joins(last, entry):
            self._made |= {each: None for each in (last, entry) if isinstance(each, int)}
            self._entries[-1] = self._joined(last, entry)
            return
        self._entries.append(entry)
        self._starts.append(place)

    def _entry(self, group: _Group) -> Entry:
        if group.whole is not None:
            return group.whole
        if not group.blocks:
            return group.place
        message = self._read[group.place]
        blocks = self.dialect.blocks(message) or []
        kept = sorted(group.blocks, key=lambda block: block[0])
        if len(kept) == len(blocks) and all(told is None for _, told in kept):
            return group.place
        return {**message, "content": [blocks[part] if told is None else told for part, told in kept]}

    def _joins(self, last: Entry, entry: Entry) -> bool:
        """Whether both must be one message, since roles take turns; what the client itself sent so stays as it is."""
        if not self.dialect.in_blocks or (isinstance(last, int) and isinstance(entry, int)):
            return False
        return self._json(last).get("role") == self._json(entry).get("role") == "user"

    def _joined(self, last: Entry, entry: Entry) -> dict[str, Any]:
        one = self._json(last)
        other = self._json(entry)
        return {**one, "content": [*_blocks(one.get("content")), *_blocks(other.get("content"))]}

    def _json(self, entry: Entry) -> Json:
        if isinstance(entry, int):
            return self._read[entry]
        return entry


def _blocks(content: object) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}]


def own(entries: Iterable[Entry], messages: Sequence[Any]) -> list[Any]:
    """What is sent for `entries`: the client's objects, and ours."""
    # Every message, at every call: nothing is called in here.
    return [messages[entry] if type(entry) is int else entry for entry in entries]


def as_json(entry: Entry, read: Sequence[Json]) -> Mapping[str, Any]:
    """The same as JSON."""
    if isinstance(entry, int):
        return read[entry]
    return entry
