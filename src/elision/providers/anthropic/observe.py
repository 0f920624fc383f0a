"""What an Anthropic message reports on its way by."""

from __future__ import annotations

from typing import Final

from elision.providers.shared.json_reading import Json, mapping_in, text_in
from elision.providers.streaming.response_findings import ApiObserver, ResponseFindings
from elision.providers.streaming.sse import SseFrame
from elision.trajectory.foreign_json import parse_object

_EVENTS: Final = frozenset(("message_start", "message_delta", "message_stop", "error"))


def is_useful_frame(found: ResponseFindings, raw: bytes) -> bool:
    """Return whether a frame may report something, by its bytes."""
    return b"message_" in raw or b"error" in raw


def read_event(found: ResponseFindings, frame: SseFrame) -> None:
    """Add what one event of a stream reports. Clients know events by their names, so they have them."""
    if frame.event not in _EVENTS or (event := parse_object(frame.data)) is None:
        return
    match frame.event:
        case "message_start":
            found.add_response(mapping_in(event.get("message")))
        case "message_delta":
            # Counts and edits are in the event itself, the stop reason in its delta.
            found.add_response(event)
            found.stop_reason = text_in(mapping_in(event.get("delta")).get("stop_reason")) or found.stop_reason
        case "message_stop":
            found.has_ended = True
        case "error":
            found.failure = event


def read_body(found: ResponseFindings, body: Json) -> None:
    """Add what a whole response, or its last event, reports."""
    found.stop_reason = text_in(body.get("stop_reason"))
    found.has_ended = True


OBSERVER: Final = ApiObserver(is_useful_frame, read_event, read_body)
