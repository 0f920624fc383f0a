"""Observe a response on its way: its cost, and what the provider reports about the context. Nothing is changed.

Usage, cache misses, applied edits, dropped thinking and the numbers in "prompt is too long" are facts that cost nothing
but reading. So a copy of the response is read, plain or compressed, whole or as a stream of events. Of a stream only
the few events with such facts are decoded, found by name or by a few bytes. Memory is bounded, and nothing is raised:
what cannot be read is skipped.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from elision.gateway.decompression import StreamDecompressor
from elision.gateway.sse import FrameSplitter, SseFrame
from elision.gateway.upstream import UpstreamResponse
from elision.manager.drivers import run_off_loop
from elision.manager.offload import INLINE_BYTES, choose_executor
from elision.manager.reported_usage import find_usage
from elision.providers.anthropic.server_clearing import ClearingReport, parse_clearing_report
from elision.providers.provider import Api
from elision.providers.shared import signals
from elision.providers.shared.json_reading import Json, mapping_in, mappings_in, text_in
from elision.trajectory.foreign_json import parse_object
from elision.trajectory.redact import Redaction
from elision.trajectory.usage import Usage

_log: Final = logging.getLogger("elision.gateway")

#: Bytes of a body, or of one event, that are kept; of a larger one the usage stays unknown.
MAX_KEPT_BYTES: Final = 16 * 1024 * 1024
#: Characters of an error's message that are kept.
MAX_ERROR_CHARS: Final = 500
_REDACTION: Final = Redaction()
#: Bytes of a body, or of one of its fields, that are decoded as they are.
_SMALL: Final = 256 * 1024


class _Choice(msgspec.Struct, gc=False):
    finish_reason: Any = None


_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_CHOICES: Final = msgspec.json.Decoder(list[_Choice])


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFacts:
    """What a response reported.

    usage:            as far as it was reported: of a response that broke off, the prompt usage from its start.
    is_complete:      whether it reached its proper end: no error, neither cut nor unreadable.
    overflow:         the prompt was too long. cache_miss: why it was not read from the cache.
    transformations:  what the provider did with its thinking blocks. cleared: what the provider cleared of the prompt.
    unbound_thinking: the first thinking block that was refused because something before it was edited.
    response_id, model, stop_reason: the provider's words, "" where there are none.
    error:            its error message in one line, cut, without secrets; "" where there was none.
    """

    usage: Usage | None = None
    is_complete: bool = False
    overflow: signals.Overflow | None = None
    cache_miss: signals.CacheMiss | None = None
    transformations: tuple[signals.Transformation, ...] = ()
    cleared: ClearingReport | None = None
    unbound_thinking: str | None = None
    response_id: str = ""
    stop_reason: str = ""
    model: str = ""
    error: str = ""


class ResponseObserver:
    """Observes one response: made with its head, fed with its body, finished at its end.

    status: of HTTP. content_type, encoding: the headers `content-type` and `content-encoding`, "" where absent.
    limit:  bytes that are kept at most. Nothing here raises.
    """

    def __init__(
        self, api: Api | None, *, status: int, content_type: str, encoding: str = "", limit: int = MAX_KEPT_BYTES
    ) -> None:
        self._findings = _Findings(is_refused=status >= 400)
        self._api = api
        self._limit = limit
        self._is_stream = content_type.strip().lower().startswith("text/event-stream")
        self._encoding = encoding
        self._decompressor: StreamDecompressor | None = None
        self._reader: _BodyReader | None = None
        self._is_disabled = False

    @classmethod
    def for_response(cls, api: Api | None, response: UpstreamResponse) -> ResponseObserver:
        """Return an observer for a response of that API."""
        kind = response.get_header(b"content-type") or b""
        encoding = response.get_header(b"content-encoding") or b""
        return cls(
            api, status=response.status, content_type=kind.decode("latin-1"), encoding=encoding.decode("latin-1")
        )

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body."""
        if self._is_disabled or not chunk:
            return
        try:
            if self._encoding:
                self._decompressor = self._decompressor or StreamDecompressor(self._encoding)
                for piece in self._decompressor.feed(chunk):
                    self._feed_plain(piece)
            else:
                self._feed_plain(chunk)
        except Exception as error:  # noqa: BLE001 - an answer may be anything, and passes all the same
            self._disable(error)

    @property
    def held_bytes(self) -> int:
        """Return how many bytes `finish` has yet to read."""
        if self._reader is not None:
            return self._reader.held_bytes
        return 0

    def finish(self) -> ResponseFacts:
        """Return the facts; the body is over, or no more of it will come. A second call returns the same."""
        try:
            if self._reader is not None:
                reader = self._reader
                self._reader = None
                reader.end()
        except Exception as error:  # noqa: BLE001 - an answer may be anything, and passes all the same
            self._disable(error)
        try:
            return self._findings.to_facts()
        except Exception as error:  # noqa: BLE001 - an answer may be anything, and passes all the same
            self._disable(error)
            return ResponseFacts()

    async def finish_async(self) -> ResponseFacts:
        """Do as `finish`; a large body is read in a thread."""
        held = self.held_bytes
        if held <= INLINE_BYTES:
            return self.finish()
        return await run_off_loop(self.finish, choose_executor(held))

    def _feed_plain(self, plain: bytes) -> None:
        if self._reader is None:
            self._reader = self._make_reader(plain)
        self._reader.feed(plain)

    def _make_reader(self, first: bytes) -> _BodyReader:
        """Choose a reader by the body's first bytes: some servers name another type than they send."""
        begun = first.lstrip()[:6]
        stream = begun.startswith((b"data:", b"event:", b":")) or (self._is_stream and not begun.startswith(b"{"))
        if stream:
            return _EventStreamReader(self._findings, self._api, self._limit)
        return _JsonBodyReader(self._findings, self._api, self._limit)

    def _disable(self, error: Exception) -> None:
        """Stop observing. A response may be anything, so this is no error."""
        self._is_disabled = True
        self._reader = None
        _log.debug("an answer that passes is not read further: %s", type(error).__name__)


# -- what was heard ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Findings:
    """What a response has reported so far, in the provider's words.

    is_refused: the status is an error's. usage: its counts, later ones over earlier ones. has_ended: it is complete.
    failure:    the error's body, None while there is none.
    """

    is_refused: bool
    usage: dict[str, Any] = field(default_factory=dict)
    has_ended: bool = False
    failure: Any = None
    stop_reason: str = ""
    model: str = ""
    response_id: str = ""
    cache_miss: signals.CacheMiss | None = None
    transformations: tuple[signals.Transformation, ...] = ()
    cleared: ClearingReport | None = None

    def add_counts(self, usage: object) -> None:
        """Add counts; those that a provider leaves out, or sends as null, keep their value."""
        self.usage |= {name: count for name, count in mapping_in(usage).items() if count is not None}

    def add_response(self, body: Json) -> None:
        """Add the fields that responses of every API have at the top."""
        self.add_counts(body.get("usage"))
        self.response_id = text_in(body.get("id")) or self.response_id
        self.model = text_in(body.get("model")) or self.model
        self.cache_miss = signals.parse_cache_miss(body) or self.cache_miss
        self.transformations = signals.parse_transformations(body) or self.transformations
        self.cleared = parse_clearing_report(body) or self.cleared

    def to_facts(self) -> ResponseFacts:
        failure = self.failure
        if failure is not None:
            told = failure
        elif self.stop_reason:
            told = {"stop_reason": self.stop_reason}
        else:
            told = None
        return ResponseFacts(
            usage=find_usage(self.usage) if self.usage else None,
            is_complete=self.has_ended and failure is None and not self.is_refused,
            overflow=signals.parse_overflow(told),
            cache_miss=self.cache_miss,
            transformations=self.transformations,
            cleared=self.cleared,
            unbound_thinking=signals.find_unbound_thinking(failure),
            response_id=self.response_id,
            stop_reason=self.stop_reason,
            model=self.model,
            error=_extract_error(failure),
        )


def _extract_error(failure: Any) -> str:
    """Return the message of an error, however it is nested."""
    if isinstance(failure, Mapping):
        inner = failure.get("error") or mapping_in(failure.get("response")).get("error") or failure
        if isinstance(inner, str):
            failure = inner
        else:
            failure = _first_text(mapping_in(inner)) or _first_text(failure)
    if failure is None:
        return ""
    if not isinstance(failure, str) or not failure:
        return "an error without a message"
    line = " ".join(_REDACTION.redact_text(failure[: 4 * MAX_ERROR_CHARS]).split())
    if len(line) <= MAX_ERROR_CHARS:
        return line
    return f"{line[: MAX_ERROR_CHARS - 3]}..."


def _first_text(error: Json) -> str:
    return next((text for name in ("message", "detail", "code", "type") if (text := text_in(error.get(name)))), "")


# -- bodies and streams ------------------------------------------------------------------------------------------------


class _BodyReader(Protocol):
    @property
    def held_bytes(self) -> int: ...
    def feed(self, plain: bytes) -> None: ...
    def end(self) -> None: ...


class _JsonBodyReader:
    """Reads a response in one piece, when it is complete."""

    def __init__(self, notes: _Findings, api: Api | None, limit: int) -> None:
        self._findings = notes
        self._api = api
        self._limit = limit
        self._parts: list[bytes] = []
        self.held_bytes = 0

    def feed(self, plain: bytes) -> None:
        self.held_bytes += len(plain)
        if self.held_bytes > self._limit:
            self._parts.clear()
            raise ValueError(f"a body of more than {self._limit} bytes")
        self._parts.append(plain)

    def end(self) -> None:
        raw = b"".join(self._parts)
        if len(raw) <= _SMALL:
            body = parse_object(raw)
        else:
            body = _decode_without_text(raw)
        if body is None:
            # An error page of a proxy on the way; else a cut body, whose text is the model's.
            if self._findings.is_refused:
                self._findings.failure = raw[: 4 * MAX_ERROR_CHARS].decode("utf-8", "replace")
            else:
                self._findings.failure = None
            return
        self._findings.add_response(body)
        if self._findings.is_refused or body.get("error") is not None or body.get("type") == "error":
            self._findings.failure = body
        elif self._api is not None:
            _BODIES[self._api](self._findings, body)


class _EventStreamReader:
    """Reads a response as a stream of events."""

    def __init__(self, notes: _Findings, api: Api | None, limit: int) -> None:
        self._findings = notes
        self._splitter = FrameSplitter(limit)
        self.held_bytes = 0
        if api is not None:
            self._is_useful, self._read_event = _STREAMS[api]
        else:
            self._is_useful, self._read_event = (_is_never_useful, _ignore_event)

    def feed(self, plain: bytes) -> None:
        for raw, readable in self._splitter.split_raw(plain):
            if readable and self._is_useful(self._findings, raw):
                self._read_event(self._findings, SseFrame.parse_frame(raw))

    def end(self) -> None:
        if rest := self._splitter.take_rest():
            self._read_event(self._findings, SseFrame.parse_frame(rest))


def _decode_without_text(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object that a large body is, without the model's text; None if it is none.

    Left out are parts of choices, content and output.
    """
    try:
        fields = _FIELDS.decode(data)
        body = {name: msgspec.json.decode(value) for name, value in fields.items() if len(memoryview(value)) <= _SMALL}
        if "choices" in fields and "choices" not in body:
            body["choices"] = msgspec.to_builtins(_CHOICES.decode(fields["choices"]))
    except (ValueError, RecursionError):
        return None
    return body


def _is_never_useful(notes: _Findings, raw: bytes) -> bool:
    """Return that no frame of an unknown API is worth reading."""
    return False


def _ignore_event(notes: _Findings, frame: SseFrame) -> None:
    """Ignore the last event of a stream of an unknown API."""


# -- chat completions --------------------------------------------------------------------------------------------------

#: With `stream_options.include_usage` every chunk has `"usage":null`, most of them at their end.
_COUNTED: Final = re.compile(rb'"usage"\s*:\s*\{')


def _is_useful_chat_frame(notes: _Findings, raw: bytes) -> bool:
    """Return whether it is the first chunk, or has counts, a finish reason, an error or the end.

    Text inside a chunk has its quotes escaped, so it matches none of these.
    """
    if not notes.response_id or b'"error"' in raw:
        return True
    counts = not raw.endswith(b'"usage":null}\n\n') and b'"usage"' in raw and _COUNTED.search(raw) is not None
    return counts or not (b'finish_reason":null' in raw or b'finish_reason": null' in raw)


def _read_chat_event(notes: _Findings, frame: SseFrame) -> None:
    chunk = parse_object(frame.data)
    if chunk is None:
        notes.has_ended = notes.has_ended or frame.data.startswith(b"[DONE]")
        return
    notes.add_response(chunk)
    if chunk.get("error") is not None:
        notes.failure = chunk
    _read_chat_body(notes, chunk)


def _read_chat_body(notes: _Findings, body: Json) -> None:
    reasons = [text_in(choice.get("finish_reason")) for choice in mappings_in(body.get("choices"))]
    if any(reasons):
        notes.stop_reason = next(filter(None, reasons))
        notes.has_ended = True


# -- Responses ---------------------------------------------------------------------------------------------------------

#: The last event of a stream is one of these. Servers that name no events are known by the bytes of their data.
_LAST: Final = frozenset(("response.completed", "response.incomplete", "response.failed", "error"))
_LAST_TYPE: Final = re.compile(rb'"type"\s*:\s*"(?:response\.(?:completed|incomplete|failed)|error)"')


def _is_useful_responses_frame(notes: _Findings, raw: bytes) -> bool:
    return b"response.completed" in raw or b"response.incomplete" in raw or b"response.failed" in raw or b"error" in raw


def _read_responses_event(notes: _Findings, frame: SseFrame) -> None:
    if frame.event:
        last = frame.event in _LAST
    else:
        last = _LAST_TYPE.search(frame.data) is not None
    event = parse_object(frame.data) if last else None
    if event is None:
        return
    if event.get("type") == "error":
        notes.failure = event
        return
    response = mapping_in(event.get("response"))
    notes.add_response(response)
    _read_responses_body(notes, response)


def _read_responses_body(notes: _Findings, body: Json) -> None:
    """Read `status`, which says how the response ended; one that is queued or in progress did not."""
    status = text_in(body.get("status"))
    notes.stop_reason = text_in(mapping_in(body.get("incomplete_details")).get("reason")) or status
    notes.has_ended = status in ("completed", "incomplete")
    if status == "failed":
        notes.failure = body


# -- Messages ----------------------------------------------------------------------------------------------------------


def _is_useful_anthropic_frame(notes: _Findings, raw: bytes) -> bool:
    return b"message_" in raw or b"error" in raw


def _read_anthropic_event(notes: _Findings, frame: SseFrame) -> None:
    hears = _ANTHROPIC_EVENTS.get(frame.event)
    if hears is not None and (event := parse_object(frame.data)) is not None:
        hears(notes, event)


def _read_message_start(notes: _Findings, event: Json) -> None:
    notes.add_response(mapping_in(event.get("message")))


def _read_message_delta(notes: _Findings, event: Json) -> None:
    """Read `message_delta`: counts and edits are in the event itself, the stop reason in its delta."""
    notes.add_response(event)
    notes.stop_reason = text_in(mapping_in(event.get("delta")).get("stop_reason")) or notes.stop_reason


def _read_message_stop(notes: _Findings, event: Json) -> None:
    notes.has_ended = True


def _read_error(notes: _Findings, event: Json) -> None:
    notes.failure = event


#: Its clients know events by their names, so they have them.
_ANTHROPIC_EVENTS: Final[Mapping[str, Callable[[_Findings, Json], None]]] = {
    "message_start": _read_message_start,
    "message_delta": _read_message_delta,
    "message_stop": _read_message_stop,
    "error": _read_error,
}


def _read_anthropic_body(notes: _Findings, body: Json) -> None:
    notes.stop_reason = text_in(body.get("stop_reason"))
    notes.has_ended = True


_BODIES: Final[Mapping[Api, Callable[[_Findings, Json], None]]] = {
    "openai": _read_chat_body,
    "openai-responses": _read_responses_body,
    "anthropic": _read_anthropic_body,
}
#: API -> (whether a frame is worth reading, by its bytes; what it says).
_STREAMS: Final[Mapping[Api, tuple[Callable[[_Findings, bytes], bool], Callable[[_Findings, SseFrame], None]]]] = {
    "openai": (_is_useful_chat_frame, _read_chat_event),
    "openai-responses": (_is_useful_responses_frame, _read_responses_event),
    "anthropic": (_is_useful_anthropic_frame, _read_anthropic_event),
}
