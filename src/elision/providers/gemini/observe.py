"""What a response of generateContent reports on its way by."""

from __future__ import annotations

from typing import Final

from elision.providers.shared.json_reading import Json, mappings_in, text_in
from elision.providers.streaming.response_findings import ApiObserver, ResponseFindings
from elision.providers.streaming.sse import SseFrame
from elision.trajectory.foreign_json import parse_object


def is_useful_frame(found: ResponseFindings, raw: bytes) -> bool:
    """Return whether it is the first chunk, has the end or an error. Every chunk has counts; the last has all."""
    return not found.response_id or b'"finishReason"' in raw or b'"error"' in raw or b'"promptFeedback"' in raw


def read_event(found: ResponseFindings, frame: SseFrame) -> None:
    """Add what one event of a stream reports."""
    chunk = parse_object(frame.data)
    if chunk is None:
        return
    if chunk.get("error") is not None:
        found.failure = chunk
    read_body(found, chunk)


def read_body(found: ResponseFindings, body: Json) -> None:
    """Add what a whole response, or a chunk of one, reports."""
    found.add_counts(body.get("usageMetadata"))
    found.response_id = text_in(body.get("responseId")) or found.response_id
    found.model = text_in(body.get("modelVersion")) or found.model
    reasons = [text_in(each.get("finishReason")) for each in mappings_in(body.get("candidates"))]
    # A prompt that was blocked has no candidates.
    reasons.append(text_in(_get_block_reason(body)))
    if any(reasons):
        found.stop_reason = next(filter(None, reasons))
        found.has_ended = True


def _get_block_reason(body: Json) -> object:
    feedback = body.get("promptFeedback")
    return feedback.get("blockReason") if isinstance(feedback, dict) else None


OBSERVER: Final = ApiObserver(is_useful_frame, read_event, read_body)
