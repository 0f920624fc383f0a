"""The messages of one request, compared with what its client sent before, and parsed only where they are new.

A message is known by its bytes (a comparison in C), and where those differ by its content, so moved cache markers,
dropped nulls and new ids are no change. A known message keeps its object, which is how the library recognizes it in
constant time.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from operator import attrgetter, ne
from typing import Final

from elision.gateway.json_patch import patch_json
from elision.gateway.request_body import decode_message
from elision.providers.live.conversation import Conversation
from elision.providers.live.parsed_message import ParsedMessage, parse_message
from elision.providers.live.pieces import LiveDialect

_RAW: Final = attrgetter("raw")


class IncomingMessages:
    """The messages of one request. Each is parsed at most once, for all conversations that are compared with it.

    known: the messages of a conversation that the request probably continues. Where it begins another one with the
    same bytes, they need not be parsed again. Methods raise UnreadableBody where a message is not a JSON object.
    """

    def __init__(self, dialect: LiveDialect, raws: Sequence[bytes], known: Sequence[ParsedMessage] = ()) -> None:
        self.dialect = dialect
        self.raws = raws
        self._known = known
        self._parsed: dict[int, ParsedMessage] = {}

    def __len__(self) -> int:
        return len(self.raws)

    def is_known(self, place: int) -> bool:
        """Return whether message `place` was parsed for the conversation that the request probably continues."""
        return place < len(self._known) and self._known[place].raw == self.raws[place]

    def parse(self, place: int) -> ParsedMessage:
        """Return message `place`."""
        message = self._parsed.get(place)
        if message is None and self.is_known(place):
            message = self._known[place]
        if message is None:
            raw = self.raws[place]
            message, _ = parse_message(self.dialect, decode_message(raw), place, raw, patch_json)
            self._parsed[place] = message
        return message

    def parse_new(self, conversation: Conversation) -> None:
        """Parse the messages that `conversation` does not have, so that `extend_conversation` is quick."""
        for place in range(self.count_shared(conversation), len(self)):
            self.parse(place)

    def count_shared(self, conversation: Conversation) -> int:
        """Count the leading messages that have the same content in `conversation`."""
        shared = min(len(conversation), len(self))
        for place in compress(range(shared), map(ne, map(_RAW, conversation.messages), self.raws)):
            if conversation.choose_digest(self.parse(place), place) != conversation.get_digest(place):
                return place
        return shared

    def trims_front(self, conversation: Conversation, shared: int) -> bool:
        """Return whether these are the messages of `conversation` without some after the first `shared`, and new ones.

        A client that trims its own history sends that. Messages are compared by their bytes.
        """
        known = [message.raw for message in conversation.messages]
        for first in range(max(shared + 1, len(known) + shared - len(self)), len(known)):
            kept = len(known) - first
            if self.raws[shared] == known[first] and list(self.raws[shared : shared + kept]) == known[first:]:
                return True
        return False

    def extend_conversation(self, conversation: Conversation) -> None:
        """Make `conversation` that of this request: drop what is not in it, and add what is new."""
        shared = self.count_shared(conversation)
        conversation.drop_messages(shared)
        for place in compress(range(shared), map(ne, map(_RAW, conversation.messages), self.raws)):
            # It says the same in other bytes, and those are to be sent. A request under way keeps its own.
            conversation.messages[place] = self.parse(place)
        for place in range(shared, len(self)):
            conversation.append_message(self.parse(place))

    def flag_answers(self, conversation: Conversation, shared: int) -> list[bool]:
        """Return for each message whether the assistant said it. shared: how many of them `conversation` has."""
        known = [message.is_from_assistant for message in conversation.messages[:shared]]
        return known + [self.parse(place).is_from_assistant for place in range(shared, len(self))]
