"""What one client has sent so far: which messages of a request are known, and the objects that they were decoded to.

A message is known by its bytes (a comparison in C), and where those differ by its content, so moved cache markers,
dropped nulls and new ids are no change. A known message keeps its object, which is how the library recognises it in
constant time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from operator import eq, ne
from typing import Any

from elision.gateway.json_patch import patch_json
from elision.gateway.request_body import decode_message
from elision.providers.live.pieces import LiveDialect, Piece, chain_digest, digest_pieces
from elision.providers.shared.message_tags import take_tags


class IncomingMessages:
    """The messages of one request. Each is parsed at most once, for all sessions that compare it.

    Methods raise UnreadableBody where the message is no JSON object.
    """

    def __init__(self, dialect: LiveDialect, raws: Sequence[bytes]) -> None:
        self.dialect = dialect
        self.raws = raws
        self._parsed: dict[int, tuple[dict[str, Any], list[Piece], UntaggedMessage | None]] = {}
        self._digests: dict[tuple[int, bool], bytes] = {}
        #: The messages as a whole line of a conversation, where they were read as one ahead.
        self.entries: Sequence[TranscriptEntry] = ()

    def __len__(self) -> int:
        return len(self.raws)

    def read_all(self, transcript: ClientTranscript) -> None:
        """Parse all messages now, after those that `transcript` has; its seed must be that of the later session."""
        transcript.adopt_messages(self)
        self.entries = transcript.entries

    def decode_message(self, index: int) -> dict[str, Any]:
        """Return message `index` as an object."""
        return self._parse_message(index)[0]

    def find_untagged(self, index: int) -> UntaggedMessage | None:
        """Return message `index` without its tags; None where it has none."""
        return self._parse_message(index)[2]

    def digest_content(self, index: int, *, past_head: bool) -> bytes:
        """Return the digest of its content, b"" for none. past_head: whether it comes after the head."""
        key = index, past_head
        if key not in self._digests:
            self._digests[key] = digest_pieces(self._parse_message(index)[1], is_behind_head=past_head)
        return self._digests[key]

    def is_from_assistant(self, index: int) -> bool:
        """Return whether the assistant said it."""
        return any(piece.kind == "assistant" for piece in self._parse_message(index)[1])

    def _parse_message(self, index: int) -> tuple[dict[str, Any], list[Piece], UntaggedMessage | None]:
        if index not in self._parsed:
            json = decode_message(self.raws[index])
            bare, tags = take_tags(json)
            untagged = None
            if tags is not None:
                untagged = UntaggedMessage(dict(bare), patch_json(self.raws[index], json, bare))
            # No name of a history depends on tags.
            self._parsed[index] = json, self.dialect.split_message(bare, index), untagged
        return self._parsed[index]


@dataclass(frozen=True, slots=True)
class UntaggedMessage:
    """A message without the tags that the client gave it: as an object, and its bytes."""

    json: dict[str, Any]
    raw: bytes


@dataclass(frozen=True, slots=True)
class TranscriptEntry:
    """One message. content_digest: a digest of its content, b"" if it has none.

    node: the name of the history that ends with it. is_past_head: whether the next message is past the head.
    untagged: the message without its tags; None where it has none.
    """

    raw: bytes
    json: dict[str, Any]
    content_digest: bytes
    node: bytes
    is_from_assistant: bool
    is_past_head: bool
    untagged: UntaggedMessage | None = None


@dataclass(slots=True)
class ClientTranscript:
    """The messages of one conversation. seed: part of every history's name; other seeds give other names."""

    dialect: LiveDialect
    seed: bytes
    entries: list[TranscriptEntry] = field(default_factory=list)
    #: The same messages' bytes, so that a whole history is compared at once.
    raws: list[bytes] = field(default_factory=list)

    @classmethod
    def for_family(cls, dialect: LiveDialect, family: str) -> ClientTranscript:
        """Return an empty transcript."""
        return cls(dialect, family.encode("utf-8", "surrogatepass"))

    def __len__(self) -> int:
        return len(self.entries)

    def copy(self) -> ClientTranscript:
        """Return a copy for another thread."""
        return replace(self, entries=list(self.entries), raws=list(self.raws))

    @property
    def newest_answer_index(self) -> int:
        """Return the index of the assistant's newest message; -1 if there is none."""
        return next((place for place in range(len(self) - 1, -1, -1) if self.entries[place].is_from_assistant), -1)

    @property
    def head_length(self) -> int:
        """Return how many messages come before the assistant's first."""
        return next((place for place, entry in enumerate(self.entries) if entry.is_from_assistant), len(self))

    def flag_assistant_messages(self, incoming: IncomingMessages, known: int) -> list[bool]:
        """Return for each message of a request whether the assistant said it. known: how many of them are here.

        Raises UnreadableBody where a message is no object.
        """
        return [
            *(entry.is_from_assistant for entry in self.entries[:known]),
            *map(incoming.is_from_assistant, range(known, len(incoming))),
        ]

    @property
    def node(self) -> bytes:
        """Return the name of the whole history."""
        if self.entries:
            return self.entries[-1].node
        return self.seed

    def count_shared(self, incoming: IncomingMessages) -> int:
        """Count the leading messages of a request that have the same content here."""
        raws = incoming.raws
        if raws[: len(self)] == self.raws:
            return len(self)
        same = map(eq, self.raws, raws)
        for place, equal in enumerate(same):
            if (
                not equal
                and incoming.digest_content(place, past_head=self._is_past_head(place))
                != self.entries[place].content_digest
            ):
                return place
        return min(len(self), len(raws))

    def adopt_messages(self, incoming: IncomingMessages) -> None:
        """Take the messages of a request: drop what is not in it, parse what is new.

        Raises UnreadableBody where a message is no object.
        """
        kept = self.count_shared(incoming)
        raws = incoming.raws
        del self.entries[kept:], self.raws[kept:]
        for place in list(compress(range(kept), map(ne, raws, self.raws))):
            # It says the same in other bytes, and those are to be sent. A request under way keeps its own.
            self.entries[place] = replace(
                self.entries[place],
                raw=raws[place],
                json=incoming.decode_message(place),
                untagged=incoming.find_untagged(place),
            )
            self.raws[place] = raws[place]
        if incoming.entries:
            # A name of a history comes from its seed and from what it says, so they are the same.
            self.entries += incoming.entries[kept:]
            self.raws += raws[kept:]
            return
        for place in range(kept, len(raws)):
            self._append_message(incoming, place)

    def count_answers_from(self, first: int) -> int:
        """Count the assistant's answers from message `first` on; its messages in a row are one answer."""
        spoken = [entry.is_from_assistant for entry in self.entries[max(first - 1, 0) :]]
        before = spoken.pop(0) if first else False
        return sum(now and not then for then, now in zip([before, *spoken], spoken, strict=False))

    def collect_digests(self) -> set[bytes]:
        """Return the digests of all messages after the head."""
        return {entry.content_digest for entry in self.entries[self.head_length :] if entry.content_digest}

    def name_history(self, entries: Sequence[TranscriptEntry], messages: Sequence[dict[str, Any]]) -> bytes:
        """Return the name of the history `entries`, once part of this transcript, with `messages` after it."""
        node = entries[-1].node if entries else self.seed
        for place, message in enumerate(messages, start=len(entries)):
            says = digest_pieces(self.dialect.split_message(message, place), is_behind_head=True)
            node = chain_digest(node, says)
        return node

    def _append_message(self, incoming: IncomingMessages, place: int) -> None:
        inside = self._is_past_head(place)
        assistant = incoming.is_from_assistant(place)
        says = incoming.digest_content(place, past_head=inside)
        self.entries.append(
            TranscriptEntry(
                raw=incoming.raws[place],
                json=incoming.decode_message(place),
                content_digest=says,
                node=chain_digest(self.node, says),
                is_from_assistant=assistant,
                is_past_head=inside or assistant,
                untagged=incoming.find_untagged(place),
            ),
        )
        self.raws.append(incoming.raws[place])

    def _is_past_head(self, place: int) -> bool:
        return place > 0 and self.entries[place - 1].is_past_head


def count_answers(spoken: Sequence[bool]) -> int:
    """Count the assistant's answers; its messages in a row are one answer."""
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))
