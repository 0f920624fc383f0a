"""Encode a view's messages: unchanged ones keep the client's bytes, the others as many of them as possible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from elision.gateway.json_patch import patch_json
from elision.providers.live.parsed_message import ParsedMessage


@dataclass(slots=True)
class MessageEncoder:
    """Encodes the views of one session. A replaced message keeps its object, so it is encoded once."""

    _encoded: dict[int, tuple[Any, bytes]] = field(default_factory=dict)

    def encode_messages(
        self, view: Sequence[Any], messages: Sequence[ParsedMessage], new: Sequence[tuple[Any, int | None]]
    ) -> list[bytes]:
        """Return the bytes of each message of `view`, which was made of `messages`; `list_new` returns `new`."""
        for message, source in new:
            self._encoded[id(message)] = message, _encode_changed(message, source, messages)
        changed = {id(message): self._encoded[id(message)] for message in view if type(message) is not ParsedMessage}
        self._encoded = changed
        return [message.raw if type(message) is ParsedMessage else changed[id(message)][1] for message in view]

    def list_new(self, view: Sequence[Any], messages: Sequence[ParsedMessage]) -> list[tuple[Any, int | None]]:
        """Return the messages that are to be encoded, each with its source: the index of one of `messages`, or None."""
        unknown = (None, b"")
        new = [
            place
            for place, message in enumerate(view)
            if type(message) is not ParsedMessage and self._encoded.get(id(message), unknown)[0] is not message
        ]
        if not new:
            return []
        sources = _guess_sources(view, messages)
        return [(view[place], sources[place]) for place in new]


def _encode_changed(message: Any, source: int | None, messages: Sequence[ParsedMessage]) -> bytes:
    """Encode a replaced message: what it kept of the client's message keeps its bytes."""
    if source is None:
        return msgspec.json.encode(message)
    own = messages[source]
    return patch_json(own.raw, own.json, message)


def _guess_sources(view: Sequence[Any], messages: Sequence[ParsedMessage]) -> list[int | None]:
    """Return for each message of a view the client's message that it was probably made of.

    Between two unchanged messages, the others are matched from the end: a summary, which has no source, comes first. A
    wrong guess only costs bytes that could have been kept.
    """
    places = {id(message.untagged or message): place for place, message in enumerate(messages)}
    found: list[int | None] = []
    following = len(messages)
    for message in reversed(view):
        following = places.get(id(message), following - 1)
        found.append(following if following >= 0 else None)
    found.reverse()
    return found
