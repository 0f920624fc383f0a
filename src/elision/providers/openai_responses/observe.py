"""What a response of OpenAI Responses reports on its way by."""

from __future__ import annotations

import re
from typing import Final

from elision.providers.shared.json_reading import Json, mapping_in, text_in
from elision.providers.streaming.response_findings import ApiObserver, ResponseFindings
from elision.providers.streaming.sse import SseFrame
from elision.trajectory.foreign_json import parse_object

#: The last event of a stream is one of these. Servers that name no events are known by the bytes of their data.
_LAST: Final = frozenset(("response.completed", "response.incomplete", "response.failed", "error"))
_LAST_TYPE: Final = re.compile(rb'"type"\s*:\s*"(?:response\.(?:completed|incomplete|failed)|error)"')


def is_useful_frame(found: ResponseFindings, raw: bytes) -> bool:
    """Return whether a frame may report something, by its bytes."""
    return b"response.completed" in raw or b"response.incomplete" in raw or b"response.failed" in raw or b"error" in raw


def read_event(found: ResponseFindings, frame: SseFrame) -> None:
    """Add what one event of a stream reports."""
    if frame.event:
        last = frame.event in _LAST
    else:
        last = _LAST_TYPE.search(frame.data) is not None
    event = parse_object(frame.data) if last else None
    if event is None:
        return
    if event.get("type") == "error":
        found.failure = event
        return
    response = mapping_in(event.get("response"))
    found.add_response(response)
    read_body(found, response)


def read_body(found: ResponseFindings, body: Json) -> None:
    """Read `status`, which says how the response ended; one that is queued or in progress did not."""
    status = text_in(body.get("status"))
    found.stop_reason = text_in(mapping_in(body.get("incomplete_details")).get("reason")) or status
    found.has_ended = status in ("completed", "incomplete")
    if status == "failed":
        found.failure = body


OBSERVER: Final = ApiObserver(is_useful_frame, read_event, read_body)
