"""What an Anthropic message reports on its way by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from elision.providers.shared.json_reading import Json, mapping_in, text_in
from elision.providers.streaming.response_findings import ApiObserver, ResponseFindings
from elision.providers.streaming.sse import SseFrame
from elision.trajectory.foreign_json import parse_object


def is_useful_frame(found: ResponseFindings, raw: bytes) -> bool:
    """Return whether a frame may report something, by its bytes."""
    return b"message_" in raw or b"error" in raw


def read_event(found: ResponseFindings, frame: SseFrame) -> None:
    """Add what one event of a stream reports."""
    read = _EVENTS.get(frame.event)
    if read is not None and (event := parse_object(frame.data)) is not None:
        read(found, event)


def _read_message_start(found: ResponseFindings, event: Json) -> None:
    found.add_response(mapping_in(event.get("message")))


def _read_message_delta(found: ResponseFindings, event: Json) -> None:
    """Read `message_delta`: counts and edits are in the event itself, the stop reason in its delta."""
    found.add_response(event)
    found.stop_reason = text_in(mapping_in(event.get("delta")).get("stop_reason")) or found.stop_reason


def _read_message_stop(found: ResponseFindings, event: Json) -> None:
    found.has_ended = True


def _read_error(found: ResponseFindings, event: Json) -> None:
    found.failure = event


#: Its clients know events by their names, so they have them.
_EVENTS: Final[Mapping[str, Callable[[ResponseFindings, Json], None]]] = {
    "message_start": _read_message_start,
    "message_delta": _read_message_delta,
    "message_stop": _read_message_stop,
    "error": _read_error,
}


def read_body(found: ResponseFindings, body: Json) -> None:
    """Add what a whole response, or its last event, reports."""
    found.stop_reason = text_in(body.get("stop_reason"))
    found.has_ended = True


OBSERVER: Final = ApiObserver(is_useful_frame, read_event, read_body)
