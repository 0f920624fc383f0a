"""Render views as the client's own messages with gaps. Follows one session; work is O(what changed).

Each output message is either the client's own (held as its index, so that the newest object is sent) or one of ours: a
result with another text, a summary, or a user message with some of its blocks left out.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from elision.providers.live.client_messages import LiveDialect, Location, ParsedMessage
from elision.providers.live.conversation import TurnSources
from elision.providers.shared.json_reading import Json
from elision.trajectory.plan import Key
from elision.trajectory.turn import Message, Observation, Turn
from elision.trajectory.view import Segment, View

#: A message to send: an index into the client's messages, or one of our own.
Entry: TypeAlias = int | dict[str, Any]
_NO_INDEX = -1


@dataclass(slots=True)
class _MessageGroup:
    """What of one client message is sent. index: its index, or ours.

    whole: the message in other words; None for the client's own. blocks: which of its blocks, with another in their
    place or None; None where the message goes as a whole.
    """

    index: int
    whole: dict[str, Any] | None = None
    blocks: list[tuple[int, dict[str, Any] | None]] | None = None


class LiveRenderer:
    """One session's messages.

    messages: every message that was read so far, by index; shared with their reader.
    """

    def __init__(self, dialect: LiveDialect, messages: Sequence[ParsedMessage]) -> None:
        self.dialect = dialect
        self._messages = messages
        self._head: list[Location | None] = []
        self._turns: dict[int, TurnSources] = {}
        self._view: View | None = None
        self._groups: list[_MessageGroup] = []
        #: For each segment: groups up to and with it, and blocks of the last of them.
        self._group_ends = array("l")
        self._block_ends = array("l")
        self._entries: list[Entry] = []
        #: For each entry: the client message that it stands for, None where it is all ours.
        self._origins: list[int | None] = []
        #: For each entry: the first group that is in it.
        self._starts: list[int] = []
        #: Client messages of which something of ours was made, and that where nothing else is in it.
        self._replaced: dict[int, dict[str, Any] | None] = {}
        #: What `replace_results` returned: the client's message, what was replaced in it, and the new message.
        self._result_messages: dict[int, tuple[ParsedMessage, list[tuple[Location, str]], dict[str, Any]]] = {}

    def set_head(self, locations: Sequence[Location | None]) -> None:
        """Set where the head's messages are, in order; None for one that is not among the messages."""
        self._head = list(locations)

    def set_turn(self, index: int, sources: TurnSources) -> None:
        """Set where the parts of turn `index` are."""
        self._turns[index] = sources

    def invalidate_message(self, index: int) -> None:
        """Note that message `index` says the same in another form (ids, cache markers); render again what was made of
        it."""
        if index in self._replaced:
            self.forget_rendering()

    def find_replacement(self, index: int) -> dict[str, Any] | None:
        """Return what was sent instead of message `index`; None if it was sent unchanged."""
        return self._replaced.get(index)

    def find_messages(self, keys: Iterable[Key]) -> Iterator[int]:
        """Yield the indexes of the messages that hold observations `keys`."""
        return (self._turns[turn].observations[position - 1].message for turn, position in keys)

    def forget_rendering(self) -> None:
        """Forget everything that was rendered."""
        self._view = None
        self._replaced.clear()
        del self._group_ends[:], self._block_ends[:]
        self._groups.clear()
        self._entries.clear()
        self._origins.clear()
        self._starts.clear()

    def render_entries(self, view: View) -> list[Entry]:
        """Return the messages of `view`."""
        kept = view.count_common(self._view)
        if kept < len(self._group_ends):
            self._rewind_to(kept)
        self._view = view
        if self._entries and len(self._group_ends) == view.length:
            return self._entries.copy()
        settled = len(self._groups)
        for segment in view.track.segments[len(self._group_ends) : view.length]:
            self._add_segment(segment)
            self._group_ends.append(len(self._groups))
            self._block_ends.append(len(self._groups[-1].blocks or ()) if self._groups else 0)
        self._build_entries(settled)
        return self._entries.copy()

    def replace_results(self, texts: Mapping[Key, str]) -> dict[int, dict[str, Any]]:
        """Return by its index each message that holds observations of `texts`, with the texts in their place.

        The messages stay the same objects from call to call.
        """
        by_message: dict[int, list[tuple[Location, str]]] = {}
        for (turn, position), text in texts.items():
            location = self._turns[turn].observations[position - 1]
            by_message.setdefault(location.message, []).append((location, text))
        messages = {}
        for index, replaced in by_message.items():
            known = self._result_messages.get(index)
            if known is None or known[0] is not self._messages[index] or known[1] != replaced:
                known = (self._messages[index], replaced, self._replace_blocks(index, replaced))
                self._result_messages[index] = known
            messages[index] = self._replaced[index] = known[2]
        return messages

    def _replace_blocks(self, index: int, replaced: Sequence[tuple[Location, str]]) -> dict[str, Any]:
        """Return message `index` with other texts in place of results."""
        message = self._messages[index].sent.json
        kept: dict[int, dict[str, Any] | None] = {}
        for location, text in replaced:
            if location.blocks is None:
                return _replace_text(self.dialect, message, text)
            blocks = self.dialect.list_blocks(message) or []
            # As for a view: of several blocks that are one observation the first has the text for them all.
            kept |= dict.fromkeys(location.blocks)
            kept[location.blocks[0]] = self.dialect.replace_result(blocks[location.blocks[0]], text)
        content = [kept.get(number, block) for number, block in enumerate(self.dialect.list_blocks(message) or [])]
        return {**message, self.dialect.content_field: [block for block in content if block is not None]}

    def list_origins(self) -> list[int | None]:
        """Return for each message of the newest view the index of the client's message that it stands for.

        It is None for a summary. A message that joins several stands for the first of the client's.
        """
        return self._origins.copy()

    def find_last_block(self, mark: int) -> tuple[int, int] | None:
        """Return (message, block) of the last block before segment `mark` of the newest view; None if there is none."""
        if not 0 < mark <= len(self._group_ends):
            return None
        groups = self._group_ends[mark - 1]
        blocks = self._block_ends[mark - 1]
        if not groups:
            return None
        entry = bisect_right(self._starts, groups - 1) - 1
        before = sum(self._count_blocks(self._groups[place]) for place in range(self._starts[entry], groups - 1))
        return entry, before + (blocks or self._count_blocks(self._groups[groups - 1])) - 1

    def _count_blocks(self, group: _MessageGroup) -> int:
        """Count the content blocks that are sent of a client message."""
        if group.blocks:
            return len(group.blocks)
        if group.whole is None:
            blocks = self.dialect.list_blocks(self._messages[group.index].sent.json)
        else:
            blocks = self.dialect.list_blocks(group.whole)
        return max(1, len(blocks or ()))

    def _rewind_to(self, place: int) -> None:
        del self._group_ends[place:], self._block_ends[place:]
        groups = self._group_ends[-1] if place else 0
        del self._groups[groups:]
        if self._groups:
            group = self._groups[-1]
            group.blocks = group.blocks[: self._block_ends[-1]] if group.blocks else None
        self._drop_entries(groups)

    # -- segments ------------------------------------------------------------------------------------------------

    def _add_segment(self, segment: Segment) -> None:
        match segment.source:
            case Turn():
                for location in self._turns[segment.turn].assistant:
                    self._add_message(location, None)
            case Observation():
                location = self._turns[segment.turn].observations[segment.index - 1]
                is_raw = segment.kind == "observation"
                self._add_message(location, None if is_raw else segment.text)
            case Message() if segment.kind == "head":
                head_location = self._head[segment.index - 1]
                if head_location is not None:
                    self._add_message(head_location, None)
            case Message():
                self._add_message(self._turns[segment.turn].interjections[segment.index - 1], None)
            case _ if segment.kind == "summary":
                self._groups.append(_MessageGroup(_NO_INDEX, self.dialect.make_user_message(segment.text)))

    def _add_message(self, location: Location, text: str | None) -> None:
        """Send what is at `location`, with `text` in its place if that is given."""
        if location.blocks is None:
            whole = None
            if text is not None:
                whole = _replace_text(self.dialect, self._messages[location.message].sent.json, text)
            self._groups.append(_MessageGroup(location.message, whole))
            return
        if not self._groups or self._groups[-1].index != location.message:
            self._groups.append(_MessageGroup(location.message))
        group = self._groups[-1]
        kept = group.blocks or []
        group.blocks = kept
        if text is None:
            kept += [(number, None) for number in location.blocks]
            return
        blocks = self.dialect.list_blocks(self._messages[location.message].sent.json) or []
        # Of several blocks that were one observation (a text protocol) the first has the text for them all.
        for number in location.blocks[:1]:
            kept.append((number, self.dialect.replace_result(blocks[number], text)))

    # -- messages ------------------------------------------------------------------------------------------------

    def _build_entries(self, settled_groups: int) -> None:
        """Make messages of the groups. The last of the `settled_groups` is made anew, as blocks may have joined it."""
        self._drop_entries(settled_groups)
        first = 0
        if self._starts:
            first = self._starts.pop()
            self._entries.pop()
            self._origins.pop()
        for place in range(first, len(self._groups)):
            self._append_group(place)

    def _drop_entries(self, groups: int) -> None:
        """Forget the entries that begin after the first `groups` groups."""
        while self._starts and self._starts[-1] >= groups:
            self._starts.pop()
            self._entries.pop()
            self._origins.pop()

    def _append_group(self, place: int) -> None:
        entry = self._build_entry(self._groups[place])
        origin = self._groups[place].index
        last = self._entries[-1] if self._entries else None
        if not isinstance(entry, int):
            self._replaced[origin] = entry
        if (
            last is not None
            and self.dialect.alternates_roles
            and not self._follows_directly(place)
            and self._must_join(last, entry)
        ):
            self._replaced |= {each: None for each in (last, entry) if isinstance(each, int)}
            self._entries[-1] = self._join_entries(last, entry)
            if self._origins[-1] is None and origin != _NO_INDEX:
                self._origins[-1] = origin
            return
        self._entries.append(entry)
        self._origins.append(None if origin == _NO_INDEX else origin)
        self._starts.append(place)

    def _build_entry(self, group: _MessageGroup) -> Entry:
        if group.whole is not None:
            return group.whole
        if not group.blocks:
            return group.index
        message = self._messages[group.index].sent.json
        blocks = self.dialect.list_blocks(message) or []
        kept = sorted(group.blocks, key=lambda block: block[0])
        if len(kept) == len(blocks) and all(replacement is None for _, replacement in kept):
            return group.index
        content = [blocks[number] if replacement is None else replacement for number, replacement in kept]
        return {**message, self.dialect.content_field: content}

    def _follows_directly(self, place: int) -> bool:
        """Return whether the client's own messages of groups `place` - 1 and `place` follow each other."""
        before = self._groups[place - 1].index
        return before != _NO_INDEX and self._groups[place].index == before + 1

    def _must_join(self, last: Entry, entry: Entry) -> bool:
        """Return whether both must be one message, where roles alternate. What the client itself sent so stays."""
        if isinstance(last, int) and isinstance(entry, int):
            return False
        return (
            get_entry_json(last, self._messages).get("role")
            == get_entry_json(entry, self._messages).get("role")
            == "user"
        )

    def _join_entries(self, last: Entry, entry: Entry) -> dict[str, Any]:
        """Return one message with the content blocks of both; a text is one block."""
        field = self.dialect.content_field
        blocks: list[Any] = []
        for message in (get_entry_json(last, self._messages), get_entry_json(entry, self._messages)):
            content = message.get(field)
            blocks += content if isinstance(content, list) else [self.dialect.make_block(str(content))]
        return {**get_entry_json(last, self._messages), field: blocks}


def _replace_text(dialect: LiveDialect, message: Json, text: str) -> dict[str, Any]:
    """Return a whole message that says `text`: a result, or, in a text protocol, the user's words."""
    if dialect.has_blocks:
        return {**message, dialect.content_field: [dialect.make_block(text)]}
    return dialect.replace_result(message, text)


def resolve_entries(entries: Iterable[Entry], messages: Sequence[Any]) -> list[Any]:
    """Return what is sent for `entries`: the client's objects, and ours."""
    # Every message, at every call: nothing is called in here.
    return [messages[entry] if type(entry) is int else entry for entry in entries]


def get_entry_json(entry: Entry, messages: Sequence[ParsedMessage]) -> Json:
    """Return `entry` as JSON."""
    if isinstance(entry, int):
        return messages[entry].sent.json
    return entry
