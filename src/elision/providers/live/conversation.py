"""The messages of one client, and the names of the histories that they form. Gateway and library both use it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elision.providers.live.parsed_message import LiveDialect, ParsedMessage, chain_digest, digest_pieces


class Conversation:
    """The messages that were read, and for each the name of the history that ends with it.

    A name is made of what the messages say, so moved cache markers, new ids and other white space do not change it.

    seed: begins every name, so that clients with different seeds share none.
    """

    def __init__(self, dialect: LiveDialect, seed: bytes) -> None:
        self.dialect = dialect
        self.seed = seed
        self.messages: list[ParsedMessage] = []
        self.nodes: list[bytes] = []
        #: Index of the assistant's first message.
        self._first_answer: int | None = None

    @classmethod
    def for_family(cls, dialect: LiveDialect, family: str) -> Conversation:
        """Return an empty conversation, which has the same names as every other of that family."""
        return Conversation(dialect, family.encode("utf-8", "surrogatepass"))

    def __len__(self) -> int:
        return len(self.messages)

    def copy(self) -> Conversation:
        """Return a copy, for another thread or for a request under way."""
        copied = Conversation(self.dialect, self.seed)
        copied.messages = self.messages.copy()
        copied.nodes = self.nodes.copy()
        copied._first_answer = self._first_answer
        return copied

    @property
    def node(self) -> bytes:
        """Return the name of the whole history."""
        return self.nodes[-1] if self.nodes else self.seed

    @property
    def has_answers(self) -> bool:
        """Return whether it has a message of the assistant."""
        return self._first_answer is not None

    @property
    def head_length(self) -> int:
        """Return how many messages come before the assistant's first."""
        return len(self) if self._first_answer is None else self._first_answer

    @property
    def newest_answer_index(self) -> int:
        """Return the index of the assistant's newest message; -1 if there is none."""
        return next((place for place in range(len(self) - 1, -1, -1) if self.messages[place].is_from_assistant), -1)

    def append_message(self, message: ParsedMessage) -> None:
        """Add the next message."""
        place = len(self)
        digest = self.choose_digest(message, place)
        self.nodes.append(chain_digest(self.node, digest))
        self.messages.append(message)
        if message.is_from_assistant and self._first_answer is None:
            self._first_answer = place

    def drop_messages(self, first: int) -> None:
        """Remove the messages from index `first` on."""
        del self.messages[first:], self.nodes[first:]
        if self._first_answer is not None and self._first_answer >= first:
            self._first_answer = None

    def choose_digest(self, message: ParsedMessage, place: int) -> bytes:
        """Return the digest that `message` has as message `place`."""
        if self._first_answer is None or place <= self._first_answer:
            return message.opening_digest
        return message.digest

    def get_digest(self, place: int) -> bytes:
        """Return the digest of message `place`; b"" where it has no content."""
        return self.choose_digest(self.messages[place], place)

    def collect_digests(self, first: int = 0, end: int | None = None) -> set[bytes]:
        """Return the digests of the messages from `first` to `end`. Messages without content have none."""
        digests = {self.get_digest(place) for place in range(len(self))[first:end]}
        digests.discard(b"")
        return digests

    def count_answers_from(self, first: int) -> int:
        """Count the assistant's answers from message `first` on; its messages in a row are one answer."""
        spoken = [message.is_from_assistant for message in self.messages[max(first - 1, 0) :]]
        before = spoken.pop(0) if first else False
        return sum(now and not then for then, now in zip([before, *spoken], spoken, strict=False))

    def name_continuation(self, messages: Sequence[dict[str, Any]]) -> bytes:
        """Return the name of this history with `messages` after it."""
        node = self.node
        for place, message in enumerate(messages, start=len(self)):
            digest = digest_pieces(self.dialect.split_message(message, place), is_behind_head=True)
            node = chain_digest(node, digest)
        return node


def count_answers(spoken: Sequence[bool]) -> int:
    """Count the assistant's answers; its messages in a row are one answer."""
    return sum(now and not before for before, now in zip([False, *spoken], spoken, strict=False))
