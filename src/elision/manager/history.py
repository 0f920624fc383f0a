"""The messages of one client, held against those it sent before: what is new, and where it went another way.

A message is compared with what it looked like when it was read (a comparison in C, no hashing); one that looks another
way is compared by what it says, so moved cache markers, dropped nulls and new ids are no change.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import is_, is_not
from typing import Any, Final

from elision.dialects import Json
from elision.dialects.live.client_messages import copy_structure
from elision.dialects.live.client_messages import read_client_message as plain_message
from elision.dialects.live.conversation import LiveConversation
from elision.dialects.live.foreign import is_known
from elision.dialects.live.live_renderer import LiveRenderer
from elision.dialects.live.pieces import LiveDialect, Location, Piece, chain_digest, digest_pieces
from elision.trajectory.text_protocol import ObservationRole
from elision.trajectory.turn import Message

#: Messages at the end that are compared at every call; of those before them one in so many is.
_ALWAYS_COMPARED: Final = 64
_SAMPLE_STRIDE: Final = 16


class History:
    """What was read of a conversation: messages, their names by content, and the turns they make.

    seed: what names are made from; two clients with different seeds share no name.
    """

    def __init__(
        self, dialect: LiveDialect, seed: bytes, *, observations: ObservationRole = "auto", tools: bool = False
    ) -> None:
        self.dialect = dialect
        self.conversation = LiveConversation(
            joins_assistant_messages=dialect.joins_assistant_messages, observations=observations, has_tools=tools
        )
        self.messages: list[Json] = []
        #: Places of messages in no shape that is known.
        self.unknown_places: list[int] = []
        self.splice = LiveRenderer(dialect, self.messages)
        #: Head messages, system prompt and tools as they were when the engine was told of them last.
        self.ingested_head: tuple[list[Message], Any, Any] | None = None
        self._seed = seed
        #: The client's objects as they were given, and what each looked like when it was read.
        self._client_objects: list[Any] = []
        self._snapshots: list[Any] = []
        self._sample_offset = 0
        self._digests: list[bytes] = []
        self._nodes: list[bytes] = []
        self._spots: list[list[Location]] = []

    def __len__(self) -> int:
        return len(self.messages)

    def select_unseen(self, messages: Sequence[Any]) -> list[Any]:
        """Those of `messages` that are not the very objects that were read at their places."""
        return [
            *compress(messages, map(is_not, messages, self._client_objects)),
            *messages[len(self._client_objects) :],
        ]

    def count_common(self, messages: Sequence[Any]) -> int:
        """How many leading `messages` say what was read.

        An object that was read before is looked at again, since its owner may have changed it: each of the newest ones
        at every call, and of the older ones one in `_SAMPLE_STRIDE`, in turn, so that a call costs what is new.
        """
        length = min(len(messages), len(self._snapshots))
        old = max(0, length - _ALWAYS_COMPARED)
        if old and all(map(is_, messages[:old], self._client_objects)):
            self._sample_offset = (self._sample_offset + 1) % _SAMPLE_STRIDE
            part = slice(self._sample_offset, old, _SAMPLE_STRIDE)
            if messages[part] == self._snapshots[part] and messages[old:length] == self._snapshots[old:length]:
                return length
        return self._compare_all(messages, length)

    def _compare_all(self, messages: Sequence[Any], length: int) -> int:
        """The same of the first `length` messages, each of them looked at."""
        if messages[:length] == self._snapshots[:length]:
            self._client_objects[:length] = messages[:length]
            return length
        for place in range(length):
            if messages[place] != self._snapshots[place] and not self._is_same_message(messages[place], place):
                return place
            self._client_objects[place] = messages[place]
        return length

    def _is_same_message(self, message: Any, place: int) -> bool:
        """Whether `message` says what message `place` said; if so, it is what is sent from now on."""
        json = plain_message(message, place)
        pieces = self.dialect.split_message(json, place)
        inside = self.conversation.turn_count > 0 and place >= self.conversation.find_first_message(1)
        if self._is_ours(pieces, place, inside=inside):
            # The client took our view for its history: what stands behind the gap is known here.
            self._snapshots[place] = copy_structure(message)
            return True
        # Its blocks must stand as they stood, too: what is hidden refers to them by place.
        if (
            digest_pieces(pieces, is_behind_head=inside) != self._digests[place]
            or [each.location for each in pieces] != self._spots[place]
        ):
            return False
        self._snapshots[place] = copy_structure(message)
        self.messages[place] = json
        self.splice.invalidate_message(place)
        # A system prompt is no part of a history's name, but of what is sent and counted.
        self.conversation.update_system(pieces)
        return True

    def _is_ours(self, pieces: list[Piece], place: int, *, inside: bool) -> bool:
        """Whether a message says what was sent in place of message `place`."""
        sent = self.splice.find_replacement(place)
        return sent is not None and digest_pieces(
            self.dialect.split_message(sent, place), is_behind_head=inside
        ) == digest_pieces(pieces, is_behind_head=inside)

    def extend(self, messages: Sequence[Any]) -> int:
        """Read `messages` behind what was read.

        Returns the first turn (1-based) that is new or changed by them; 0 where the head is. Raises DialectError.
        """
        before = self.conversation.turn_count
        grown = False
        for value in messages:
            place = len(self.messages)
            json = plain_message(value, place)
            pieces = self.dialect.split_message(json, place)
            if not is_known(json, has_items=self.dialect.joins_assistant_messages):
                self.unknown_places.append(place)
            grown = grown or (
                self.conversation.turn_count == before and any(piece.kind != "assistant" for piece in pieces)
            )
            self._append_message(value, json, pieces)
        if grown:
            return before
        return before + 1

    def _append_message(self, value: Any, json: Json, pieces: list[Piece]) -> None:
        says = digest_pieces(pieces, is_behind_head=self.conversation.turn_count > 0)
        self.messages.append(json)
        self._client_objects.append(value)
        self._snapshots.append(copy_structure(value))
        self._digests.append(says)
        self._spots.append([piece.location for piece in pieces])
        self._nodes.append(chain_digest(self._nodes[-1] if self._nodes else self._seed, says))
        self.conversation.add_pieces(pieces)

    def truncate(self, turns: int) -> None:
        """Forget everything behind turn `turns`."""
        if turns < self.conversation.turn_count:
            first = self.conversation.find_first_message(turns + 1)
            self.conversation.truncate(turns)
            for place in range(first, len(self.messages)):
                self.splice.invalidate_message(place)
            for kept in (self.messages, self._client_objects, self._snapshots, self._digests, self._spots, self._nodes):
                del kept[first:]
            self.unknown_places = [place for place in self.unknown_places if place < first]

    def count_messages(self, turn: int) -> int:
        """Messages up to the end of turn `turn`; of the head for 0."""
        last = turn >= self.conversation.turn_count
        if last:
            return len(self.messages)
        return self.conversation.find_first_message(turn + 1)

    def get_node(self, turn: int) -> str:
        """The name of the history up to the end of turn `turn`; of the head for 0."""
        end = self.count_messages(turn)
        return (self._nodes[end - 1] if end else self._seed).hex()

    def has_turn(self, turn: int, node: str | None) -> bool:
        """Whether there is a turn `turn`, and the history up to its end is named `node`."""
        return turn <= self.conversation.turn_count and self.get_node(turn) == node

    def list_nodes(self) -> list[str]:
        """The names of all histories that end with a turn, shortest first."""
        return [self.get_node(turn) for turn in range(1, self.conversation.turn_count + 1)]

    def collect_digests(self, end: int | None = None) -> set[bytes]:
        """What its messages say, wherever they stand; the first `end` of them if that is given."""
        return {each for each in self._digests[:end] if each}

    def count_intact_turns(self, common: int) -> int:
        """How many leading turns end within the first `common` messages; -1 if not even the head does."""
        turns = self.conversation.turn_count
        whole = next((turn for turn in range(turns, -1, -1) if self.count_messages(turn) <= common), -1)
        return whole


def find_history_end(dialect: LiveDialect, messages: Sequence[Any]) -> int:
    """Where the trailing messages of the assistant begin: a beginning of the next answer, or calls not yet run."""
    end = len(messages)
    while end and _is_assistant_message(dialect, messages[end - 1], end - 1):
        end -= 1
    return end


def _is_assistant_message(dialect: LiveDialect, value: Any, place: int) -> bool:
    # A look at the newest messages alone; what was read before needs no other look.
    pieces = dialect.split_message(plain_message(value, place), place)
    return bool(pieces) and all(piece.kind == "assistant" for piece in pieces)
