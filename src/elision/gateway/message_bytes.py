"""Encode a view's messages: unchanged ones keep the client's bytes, the others as many of them as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from operator import is_not
from typing import Any, Final

import msgspec

from elision.gateway.hidden_rounds import UpstreamMessage, count_shared_objects
from elision.gateway.json_patch import patch_json

#: Messages on either side in which parts of a message of ours are looked for.
_BESIDE: Final = 4


@dataclass(slots=True)
class MessageEncoder:
    """Encodes the views of one session. A replaced message keeps its object, so it is encoded once.

    The part of a view that equals the previous one is not compared again.
    """

    _encoded: dict[int, tuple[Any, bytes]] = field(default_factory=dict)
    #: The newest view, and its messages' bytes.
    _previous_view: list[Any] = field(default_factory=list)
    _previous_bytes: list[bytes] = field(default_factory=list)

    def encode_messages(self, view: Sequence[Any], messages: Sequence[UpstreamMessage]) -> list[bytes]:
        """Return the bytes of each message of `view`, which was made of `messages`."""
        # The very object has the very bytes: a message that came in other bytes was read to another object.
        shared = count_shared_objects(view, self._previous_view)
        out = self._extend_previous(view, shared, messages) or self._encode_all(view, messages)
        self._previous_view = list(view)
        self._previous_bytes = out
        return out

    def _extend_previous(
        self, view: Sequence[Any], shared: int, messages: Sequence[UpstreamMessage]
    ) -> list[bytes] | None:
        """Do the same where the view is a start of the previous one and the client's newest messages; else None."""
        new = view[shared:]
        if not shared or len(new) > len(messages):
            return None
        newest = messages[len(messages) - len(new) :]
        if any(map(is_not, new, (each.json for each in newest))):
            return None
        return [*self._previous_bytes[:shared], *(each.raw for each in newest)]

    def _encode_all(self, view: Sequence[Any], messages: Sequence[UpstreamMessage]) -> list[bytes]:
        own = {id(each.json): place for place, each in enumerate(messages)}
        places = [own.get(id(message)) for message in view]
        written: dict[int, tuple[Any, bytes]] = {}
        out: list[bytes] = []
        for message, place, source in zip(view, places, _guess_sources(places, len(messages)), strict=True):
            if place is not None:
                out.append(messages[place].raw)
                continue
            known = self._encoded.get(id(message))
            if known is not None and known[0] is message:
                raw = known[1]
            else:
                raw = _encode_changed(message, source, messages)
            written[id(message)] = message, raw
            out.append(raw)
        self._encoded = written
        return out


def _encode_changed(message: Any, source: int | None, messages: Sequence[UpstreamMessage]) -> bytes:
    """Encode a replaced message: what it kept of the client's message keeps its bytes."""
    if source is None:
        return msgspec.json.encode(message)
    # What joins a message (user messages behind a summary) stood beside it.
    beside = messages[max(0, source - _BESIDE) : source + _BESIDE + 1]
    return patch_json(messages[source].raw, messages[source].json, message, [(each.json, each.raw) for each in beside])


def _guess_sources(places: Sequence[int | None], count: int) -> Iterator[int | None]:
    """Return for each message of a view the client's message that it was probably made of.

    Between two unchanged messages, the others are matched from the end: a summary, which has no source, comes first. A
    wrong guess only costs bytes that could have been kept.
    """
    found: list[int | None] = []
    following = count
    for place in reversed(places):
        if place is not None:
            following = place
        else:
            following = following - 1
        found.append(following if following >= 0 else None)
    return reversed(found)
