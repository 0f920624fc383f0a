"""What a chat completion reports on its way by."""

from __future__ import annotations

import re
from typing import Final

from elision.providers.shared.json_reading import Json, mappings_in, text_in
from elision.providers.streaming.response_findings import ApiObserver, ResponseFindings
from elision.providers.streaming.sse import SseFrame
from elision.trajectory.foreign_json import parse_object

#: With `stream_options.include_usage` every chunk has `"usage":null`, most of them at their end.
_COUNTED: Final = re.compile(rb'"usage"\s*:\s*\{')


def is_useful_frame(found: ResponseFindings, raw: bytes) -> bool:
    """Return whether it is the first chunk, or has counts, a finish reason, an error or the end.

    Text inside a chunk has its quotes escaped, so it matches none of these.
    """
    if not found.response_id or b'"error"' in raw:
        return True
    counts = not raw.endswith(b'"usage":null}\n\n') and b'"usage"' in raw and _COUNTED.search(raw) is not None
    return counts or not (b'finish_reason":null' in raw or b'finish_reason": null' in raw)


def read_event(found: ResponseFindings, frame: SseFrame) -> None:
    """Add what one event of a stream reports."""
    chunk = parse_object(frame.data)
    if chunk is None:
        found.has_ended = found.has_ended or frame.data.startswith(b"[DONE]")
        return
    found.add_response(chunk)
    if chunk.get("error") is not None:
        found.failure = chunk
    read_body(found, chunk)


def read_body(found: ResponseFindings, body: Json) -> None:
    """Add what a whole response, or its last event, reports."""
    reasons = [text_in(choice.get("finish_reason")) for choice in mappings_in(body.get("choices"))]
    if any(reasons):
        found.stop_reason = next(filter(None, reasons))
        found.has_ended = True


OBSERVER: Final = ApiObserver(is_useful_frame, read_event, read_body)
