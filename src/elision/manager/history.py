"""A client's conversation as the library follows it: what of the messages is new, and where they diverge.

A message is compared with a copy of its structure from when it was read, which is a comparison in C without hashing. If
that differs, its content is compared, so that moved cache markers, dropped nulls and new ids are no change. The
gateway's messages never change, so they are compared by identity.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, islice, pairwise
from operator import is_, is_not, ne
from typing import Any, Final

from elision.providers.live.client_messages import (
    LiveDialect,
    Location,
    ParsedMessage,
    Piece,
    chain_digest,
    copy_structure,
    digest_pieces,
    is_known,
    parse_message,
    read_client_message,
    tag_pieces,
)
from elision.providers.live.conversation import Conversation, LiveTurns
from elision.providers.live.live_renderer import Entry, LiveRenderer
from elision.providers.shared.json_reading import text_in
from elision.trajectory.turn import Message, ObservationRole

#: What `view.messages` shows in place of a result, with and without a handle.
_PLACEHOLDER: Final = re.compile(r"\[(?:t\d+\.\d+ )?[^\n]{1,1000}; [\d,]+ tokens hidden(?: \| [^\n]*)?\]")
#: Newest messages that are compared at every call.
_ALWAYS_COMPARED: Final = 64
#: First messages that are looked at in every call, as the newest are: clients mark them for the prompt cache.
_FIRST_KEPT: Final = 3
#: Of older ones that are the same objects, one in so many is compared at each call.
_SAMPLE_STRIDE: Final = 16


#: Messages that are compared in looking for what a client trimmed, for each message of the history.
COMPARISONS_PER_MESSAGE: Final = 8


class History(Conversation):
    """A conversation with the turns that its messages form, and what is sent in place of some of them."""

    def __init__(
        self, dialect: LiveDialect, seed: bytes, *, observations: ObservationRole = "auto", tools: bool = False
    ) -> None:
        super().__init__(dialect, seed)
        self.turns = LiveTurns(
            joins_assistant_messages=dialect.joins_assistant_messages, observations=observations, has_tools=tools
        )
        #: Places of messages that have tags, and of those whose role is unknown.
        self.tagged_places: list[int] = []
        self.unknown_places: list[int] = []
        #: Places of messages in whose stead the client gives back what it was shown: a view that became its history.
        self.returned_places: set[int] = set()
        #: Names of the histories that end with the turns that the client dropped before these messages were read.
        self.skipped_nodes: list[str] = []
        #: Whether some result is one of our placeholders.
        self.has_placeholders = False
        self.splice = LiveRenderer(dialect, self.messages)
        #: How many messages of the head the client still sends.
        self.kept_head = sys.maxsize
        #: Head messages, system prompt and tools that the engine has.
        self.ingested_head: tuple[list[Message], Any, Any] | None = None
        #: The client's objects, and a copy of the structure of each from when it was read.
        self._client_objects: list[Any] = []
        self._snapshots: list[Any] = []
        self._sample_offset = 0
        self._skipped_place = 0

    @property
    def node(self) -> bytes:
        """Return the name of the whole history, with the turns that were dropped before it was read."""
        if self.skipped_nodes and len(self) == self._skipped_place:
            return bytes.fromhex(self.skipped_nodes[-1])
        return super().node

    def skip_turns(self, nodes: Sequence[str]) -> None:
        """Have the next message follow turns that the client dropped, named by `nodes`. Only the head is read yet."""
        self.skipped_nodes = list(nodes)
        self._skipped_place = len(self)
        self.turns.skip_turns(len(nodes), len(self))

    def find_turn_at(self, place: int) -> int:
        """Return the turn that begins with message `place`; 0 if none does. Turns are looked at from the newest on."""
        for turn in range(self.turns.turn_count, len(self.skipped_nodes), -1):
            first = self.turns.find_first_message(turn)
            if first <= place:
                return turn if first == place else 0
        return 0

    def find_trim(self, messages: Sequence[Any]) -> range | None:
        """Return the places of the messages that the client left out of `messages`; None where it left out none.

        The client trimmed its history if it has the head, or its beginning, and after that what was read, in order
        and up to the last message.
        """
        last = len(self) - 1
        if last < 0:
            return None
        if len(messages) > last and (
            messages[last] is self._client_objects[last] or self._says_the_same(messages[last], last)
        ):
            return None
        # Cache markers may have moved: then what the messages say is compared.
        return self._find_left_out(messages, self._looks_the_same) or self._find_left_out(messages, self._says_the_same)

    def _find_left_out(self, messages: Sequence[Any], is_same: Callable[[Any, int], bool]) -> range | None:
        """Return which places are left out after the head that is kept if `messages` are what was read, and more."""
        head = 0
        while head < min(len(messages), self.head_length) and is_same(messages[head], head):
            head += 1
        if head == len(messages) or is_same(messages[head], min(self.head_length, len(self) - 1)):
            # What follows the head is still there: where turns repeat, the rest alone would show nothing.
            return None
        behind = max(head, self.head_length) + 1
        left = COMPARISONS_PER_MESSAGE * len(self)
        for first in range(max(behind, len(self) + head - len(messages)), len(self)):
            kept = messages[head : head + min(left, len(self) - first)]
            same = next((at for at, value in enumerate(kept) if not is_same(value, first + at)), len(kept))
            if same == len(self) - first:
                return range(head, first)
            left -= same + 1
            if left <= 0:
                # The same few messages over and over: each place would be compared with all that follow.
                return None
        return None

    def _looks_the_same(self, value: Any, place: int) -> bool:
        """Return whether `value` is message `place`, or says the same in the same form."""
        if isinstance(value, ParsedMessage):
            return self.choose_digest(value, place) == self.get_digest(place)
        return value is self._client_objects[place] or bool(value == self._snapshots[place])

    def _says_the_same(self, value: Any, place: int) -> bool:
        """Return whether `value` says what message `place` says, in whichever form."""
        if self._looks_the_same(value, place):
            return True
        if isinstance(value, ParsedMessage):
            return False
        return self.choose_digest(self._read_message(value, place)[0], place) == self.get_digest(place)

    def name_turns(self, before: str, ends: Sequence[int]) -> Iterator[str]:
        """Yield the names of histories that have the messages between `ends` after a history named `before`."""
        node = bytes.fromhex(before)
        for first, end in pairwise(ends):
            for message in self.messages[first:end]:
                node = chain_digest(node, message.digest)
            yield node.hex()

    def restore_messages(self, messages: Sequence[Any], left_out: range) -> list[Any]:
        """Return `messages` with those that the client left out."""
        kept = self._client_objects[left_out.start : left_out.stop]
        return [*messages[: left_out.start], *kept, *messages[left_out.start :]]

    def list_kept_head(self) -> list[tuple[Message, Location]]:
        """Return the messages of the head that the client still sends, and where they are."""
        head = zip(self.turns.head, self.turns.head_locations, strict=True)
        return [(message, spot) for message, spot in head if spot.message < self.kept_head]

    def select_unseen(self, messages: Sequence[Any]) -> list[Any]:
        """Return those of `messages` that are not the objects that were read at their places."""
        replaced = compress(messages, map(is_not, messages, self._client_objects))
        return [*replaced, *messages[len(self._client_objects) :]]

    def count_common(self, messages: Sequence[Any]) -> int:
        """Return how many leading `messages` have the content that was read.

        Each message is compared, since a client that parses its messages anew has other objects. Where all old ones are
        the objects that were read, only the newest are compared at every call, and of the old ones one in
        `_SAMPLE_STRIDE`, in turn: their owner may have modified one.
        """
        length = min(len(messages), len(self._snapshots))
        old = max(0, length - _ALWAYS_COMPARED)
        if all(map(is_, islice(messages, old), self._client_objects)):
            self._sample_offset = (self._sample_offset + 1) % _SAMPLE_STRIDE
            sample = [*range(self._sample_offset, old, _SAMPLE_STRIDE), *range(old, length)]
            changed = self._find_changed(messages, sample)
            if changed is None:
                return length
            length = changed
        changed = self._find_changed(messages, range(length))
        return length if changed is None else changed

    def _find_changed(self, messages: Sequence[Any], places: Sequence[int]) -> int | None:
        """Return the first of these places at which a message has other content than was read."""
        read = map(self._snapshots.__getitem__, places)
        restated: list[int] = []
        changed = None
        for place in compress(places, map(ne, map(messages.__getitem__, places), read)):
            if not self._is_same_message(messages[place], place, restated):
                changed = place
                break
        # Not before: it forgets what was sent, by which the messages after it are recognized.
        for place in restated:
            self.splice.invalidate_message(place)
        return changed

    def _is_same_message(self, value: Any, place: int, restated: list[int]) -> bool:
        """Return whether `value` has the content of message `place`; if so, use it from now on.

        The places of those that say it in another form are added to `restated`.
        """
        message, pieces = self._read_message(value, place)
        if self._is_ours(pieces, place):
            # The client took our view for its history. What the placeholder hides was read before.
            self._take_snapshot(value, message, place)
            self.returned_places.add(place)
            return True
        if self.choose_digest(message, place) != self.get_digest(place):
            return False
        # What is hidden refers to blocks by their place, so they must have the same places.
        known = self.dialect.split_message(self.messages[place].sent.json, place)
        if [piece.location for piece in pieces] != [piece.location for piece in known]:
            return False
        self._take_snapshot(value, message, place)
        self.returned_places.discard(place)
        self.messages[place] = message
        # The tags that the message came with first hold; what is sent has none of the newer ones either.
        if place in self.tagged_places:
            self.tagged_places.remove(place)
        if message.tags is not None:
            self.tagged_places.append(place)
        restated.append(place)
        # A system prompt is no part of a history's name, but it is sent and counted.
        self.turns.update_system(pieces)
        return True

    def _is_ours(self, pieces: list[Piece], place: int) -> bool:
        """Return whether a message has the content of what was sent in place of message `place`."""
        sent = self.splice.find_replacement(place)
        if sent is None:
            return False
        inside = place > self.head_length
        ours = digest_pieces(self.dialect.split_message(sent, place), is_behind_head=inside)
        return ours == digest_pieces(pieces, is_behind_head=inside)

    def note_returned(self, value: Any, place: int) -> None:
        """Note that the client has `value` as message `place`: another process showed it instead of what was read."""
        self._take_snapshot(value, self.messages[place], place)
        self.returned_places.add(place)

    def _read_message(self, value: Any, place: int) -> tuple[ParsedMessage, list[Piece]]:
        """Return message `place`, and its pieces without tags. Raises DialectError."""
        given = read_client_message(value, place, self.dialect)
        if isinstance(value, ParsedMessage):
            return value, self.dialect.split_message(value.sent.json, place)
        return parse_message(self.dialect, given, place)

    def extend(self, messages: Sequence[Any]) -> int:
        """Read `messages`, which follow those that were read.

        Returns the first turn (1-based) that is new or changed by them; 0 where the head is. Raises DialectError.
        """
        before = self.turns.turn_count
        first = before + 1
        for value in messages:
            place = len(self.messages)
            message, pieces = self._read_message(value, place)
            if message.tags is not None:
                self.tagged_places.append(place)
                pieces = tag_pieces(pieces, message.tags)
            role = message.sent.json.get("role")
            has_known_role = isinstance(role, str) and role in self.dialect.roles
            if not has_known_role and not is_known(message.sent.json, self.dialect):
                self.unknown_places.append(place)
            if self.turns.turn_count == before and any(piece.kind != "assistant" for piece in pieces):
                # The message belongs to the newest turn that was known, or to the head.
                first = before
            self.has_placeholders = self.has_placeholders or holds_placeholder(pieces)
            self.append_message(message)
            self._client_objects.append(value)
            self._snapshots.append(None)
            self._take_snapshot(value, message, place)
            self.turns.add_pieces(pieces)
        # Of messages that are old by now only the bytes are kept.
        oldest = len(self.messages) - len(messages) - _ALWAYS_COMPARED
        for place in range(max(_FIRST_KEPT, oldest), len(self.messages) - _ALWAYS_COMPARED):
            self.messages[place].release_json()
        return first

    def _take_snapshot(self, value: Any, message: ParsedMessage, place: int) -> None:
        """Keep what message `place` looks like now."""
        if value is message:
            self._snapshots[place] = message
            return
        # The message has a copy of it as JSON.
        self._snapshots[place] = message.json if value == message.json else copy_structure(value)

    def truncate(self, turns: int) -> None:
        """Remove everything after turn `turns`."""
        if turns >= self.turns.turn_count:
            return
        first = self.turns.find_first_message(turns + 1)
        self.turns.truncate(turns)
        for place in range(first, len(self.messages)):
            self.splice.invalidate_message(place)
        self.drop_messages(first)
        del self._client_objects[first:], self._snapshots[first:]
        self.tagged_places = [place for place in self.tagged_places if place < first]
        self.unknown_places = [place for place in self.unknown_places if place < first]
        self.returned_places = {place for place in self.returned_places if place < first}

    def count_messages(self, turn: int) -> int:
        """Return the number of messages up to the end of turn `turn`; of the head for 0."""
        if turn >= self.turns.turn_count:
            return len(self.messages)
        return self.turns.find_first_message(turn + 1)

    def get_node(self, turn: int) -> str:
        """Return the name of the history up to the end of turn `turn`; of the head for 0."""
        if 0 < turn <= len(self.skipped_nodes):
            return self.skipped_nodes[turn - 1]
        end = self.count_messages(turn)
        if end == 0:
            return self.seed.hex()
        return self.nodes[end - 1].hex()

    def list_own(self, messages: Sequence[Any], entries: Iterable[Entry]) -> Sequence[Any]:
        """Return the client's messages, which were read, as they are sent where `entries` have nothing of ours.

        Those with tags have none. Those that it gives back as it was shown them are what was read: a fold may name
        lines that are hidden by now.
        """
        if not self.tagged_places and not self.returned_places:
            return messages
        own = list(messages)
        # What something of ours replaces need not be parsed again.
        returned = self.returned_places.intersection(entry for entry in entries if isinstance(entry, int))
        for place in (*self.tagged_places, *returned):
            if place < len(own):
                sent = self.messages[place].sent
                own[place] = sent if sent.raw else sent.json
        return own

    def has_turn(self, turn: int, node: str | None) -> bool:
        """Return whether there is a turn `turn`, and the history up to its end is named `node`."""
        return turn <= self.turns.turn_count and self.get_node(turn) == node

    def list_nodes(self) -> list[str]:
        """Return the names of the histories that end with each turn, shortest first."""
        return [self.get_node(turn) for turn in range(1, self.turns.turn_count + 1)]

    def count_intact_turns(self, common: int) -> int:
        """Return how many leading turns end within the first `common` messages; -1 if not even the head does."""
        turns = self.turns.turn_count
        while turns >= 0 and self.count_messages(turns) > common:
            turns -= 1
        return turns


def find_history_end(dialect: LiveDialect, messages: Sequence[Any]) -> int:
    """Return where the trailing messages of the assistant begin: the beginning of an answer, or calls not yet run."""
    end = len(messages)
    while end and _is_assistant_message(dialect, messages[end - 1], end - 1):
        end -= 1
    return end


def _is_assistant_message(dialect: LiveDialect, value: Any, place: int) -> bool:
    if isinstance(value, ParsedMessage):
        if not value.is_from_assistant:
            return False
    elif isinstance(value, dict) and "type" not in value and text_in(value.get("role")) in dialect.client_roles:
        return False
    pieces = dialect.split_message(read_client_message(value, place, dialect), place)
    return bool(pieces) and all(piece.kind == "assistant" for piece in pieces)


def holds_placeholder(pieces: Iterable[Piece]) -> bool:
    """Return whether a result of a message is one of our placeholders."""
    for piece in pieces:
        if piece.result is None or len(piece.result.content) != 1:
            continue
        text = getattr(piece.result.content[0], "text", "")
        if text.startswith("[") and text.endswith("]") and _PLACEHOLDER.fullmatch(text):
            return True
    return False
