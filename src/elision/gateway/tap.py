"""Reads an answer on its way by: what it cost, and what the provider says about the context. Changes nothing.

Usage, cache misses, applied edits, dropped thinking and the numbers in "prompt is too long" are ground truth that costs
nothing but reading. So an answer is read from a copy, plain or compressed, whole or as a stream of events; of a stream
only the few events that can hold such a thing are decoded, found by name or by a few bytes. Memory is bounded, and
whatever the bytes are, nothing is raised: what cannot be read is not heard.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from elision.dialects import Json, mapping_in, mappings_in, signals, text_in
from elision.dialects.server_clearing import ClearingReport, parse_clearing_report
from elision.gateway.inflater import Inflater
from elision.gateway.routes import Api
from elision.gateway.sse import Frame, Splitter
from elision.manager.reported_usage import find_usage
from elision.trajectory.redact import Redaction
from elision.trajectory.usage import Usage

_log: Final = logging.getLogger("elision.gateway")

#: Bytes of a body, or of one event, that are kept; of a larger one the usage stays unknown.
LIMIT: Final = 16 * 1024 * 1024
#: Characters of an error's message that are kept.
LONGEST: Final = 500
_REDACTION: Final = Redaction()
#: Bytes of a body, or of one of its fields, that are decoded as they are.
_SMALL: Final = 256 * 1024


class _Choice(msgspec.Struct, gc=False):
    finish_reason: Any = None


_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_CHOICES: Final = msgspec.json.Decoder(list[_Choice])


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What an answer said.

    usage:       as far as it was reported: of an answer that broke off, what its beginning said of the prompt.
    complete:    it came to its proper end; no error, and neither cut nor unreadable.
    overflow:    the prompt did not fit. cache_miss: why it was not read from the cache. transformations: what became
                 of its thinking. cleared: what the server cleared of it. unbound: the first thinking block that was
                 refused because something in front of it was edited.
    response_id, model, stop_reason: the provider's words, "" where it says none.
    error:       its error message in one line, cut, without secrets; "" where there was none.
    """

    usage: Usage | None = None
    complete: bool = False
    overflow: signals.Overflow | None = None
    cache_miss: signals.CacheMiss | None = None
    transformations: tuple[signals.Transformation, ...] = ()
    cleared: ClearingReport | None = None
    unbound: str | None = None
    response_id: str = ""
    stop_reason: str = ""
    model: str = ""
    error: str = ""


class Tap:
    """Listens to one answer. Made with its head, fed with its body as it comes, asked at the end.

    status: of HTTP. content_type, encoding: the headers `content-type` and `content-encoding`, "" where absent.
    limit:  bytes that are kept at most. Nothing here raises.
    """

    def __init__(
        self, api: Api | None, *, status: int, content_type: str, encoding: str = "", limit: int = LIMIT
    ) -> None:
        self._notes = _Notes(refused=status >= 400)
        self._api = api
        self._limit = limit
        self._stream = content_type.strip().lower().startswith("text/event-stream")
        self._encoding = encoding
        self._inflater: Inflater | None = None
        self._reader: _Reader | None = None
        self._deaf = False

    def feed(self, chunk: bytes) -> None:
        """The next bytes of the body."""
        if self._deaf or not chunk:
            return
        try:
            if self._encoding:
                self._inflater = self._inflater or Inflater(self._encoding)
                for piece in self._inflater.feed(chunk):
                    self._hear(piece)
            else:
                self._hear(chunk)
        except Exception as error:  # noqa: BLE001 - an answer may be anything, and passes all the same
            self._give_up(error)

    @property
    def held(self) -> int:
        """Bytes that `finish` has yet to read."""
        if self._reader is not None:
            return self._reader.held
        return 0

    def finish(self) -> Heard:
        """What was heard; the body is over, or nothing more of it will come. A second time says the same."""
        try:
            if self._reader is not None:
                reader = self._reader
                self._reader = None
                reader.end()
        except Exception as error:  # noqa: BLE001 - an answer may be anything, and passes all the same
            self._give_up(error)
        try:
            return self._notes.heard()
        except Exception as error:  # noqa: BLE001 - an answer may be anything, and passes all the same
            self._give_up(error)
            return Heard()

    def _hear(self, plain: bytes) -> None:
        if self._reader is None:
            self._reader = self._reader_of(plain)
        self._reader.feed(plain)

    def _reader_of(self, first: bytes) -> _Reader:
        """By what the body begins with: some servers answer with an error of the other type than they name."""
        begun = first.lstrip()[:6]
        stream = begun.startswith((b"data:", b"event:", b":")) or (self._stream and not begun.startswith(b"{"))
        if stream:
            return _Events(self._notes, self._api, self._limit)
        return _Body(self._notes, self._api, self._limit)

    def _give_up(self, error: Exception) -> None:
        """From here on the answer is not heard. It may be anything, so it is nobody's fault."""
        self._deaf = True
        self._reader = None
        _log.debug("an answer that passes is not read further: %s", type(error).__name__)


# -- what was heard ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Notes:
    """What an answer said so far, in the provider's words.

    refused: the status is an error's. usage: its counts, later ones over earlier ones. ended: its end was there.
    failure: the error as it came, None while there is none.
    """

    refused: bool
    usage: dict[str, Any] = field(default_factory=dict)
    ended: bool = False
    failure: Any = None
    stop_reason: str = ""
    model: str = ""
    response_id: str = ""
    cache_miss: signals.CacheMiss | None = None
    transformations: tuple[signals.Transformation, ...] = ()
    cleared: ClearingReport | None = None

    def counts(self, usage: object) -> None:
        """Counts that a provider leaves out, or null, are as they were."""
        self.usage |= {name: count for name, count in mapping_in(usage).items() if count is not None}

    def answer(self, body: Json) -> None:
        """What stands at the top of an answer in every API, or of the events that stand for it."""
        self.counts(body.get("usage"))
        self.response_id = text_in(body.get("id")) or self.response_id
        self.model = text_in(body.get("model")) or self.model
        self.cache_miss = signals.parse_cache_miss(body) or self.cache_miss
        self.transformations = signals.parse_transformations(body) or self.transformations
        self.cleared = parse_clearing_report(body) or self.cleared

    def heard(self) -> Heard:
        failure = self.failure
        if failure is not None:
            told = failure
        elif self.stop_reason:
            told = {"stop_reason": self.stop_reason}
        else:
            told = None
        return Heard(
            usage=find_usage(self.usage) if self.usage else None,
            complete=self.ended and failure is None and not self.refused,
            overflow=signals.parse_overflow(told),
            cache_miss=self.cache_miss,
            transformations=self.transformations,
            cleared=self.cleared,
            unbound=signals.find_unbound_thinking(failure),
            response_id=self.response_id,
            stop_reason=self.stop_reason,
            model=self.model,
            error=_message(failure),
        )


def _message(failure: Any) -> str:
    """The sentence of an error, however it is nested."""
    if isinstance(failure, Mapping):
        inner = failure.get("error") or mapping_in(failure.get("response")).get("error") or failure
        if isinstance(inner, str):
            failure = inner
        else:
            failure = _sentence(mapping_in(inner)) or _sentence(failure)
    if failure is None:
        return ""
    if not isinstance(failure, str) or not failure:
        return "an error without a message"
    line = " ".join(_REDACTION.text(failure[: 4 * LONGEST]).split())
    if len(line) <= LONGEST:
        return line
    return f"{line[: LONGEST - 3]}..."


def _sentence(error: Json) -> str:
    return next((text for name in ("message", "detail", "code", "type") if (text := text_in(error.get(name)))), "")


# -- bodies and streams ------------------------------------------------------------------------------------------------


class _Reader(Protocol):
    @property
    def held(self) -> int: ...
    def feed(self, plain: bytes) -> None: ...
    def end(self) -> None: ...


class _Body:
    """An answer in one piece, read when it is whole."""

    def __init__(self, notes: _Notes, api: Api | None, limit: int) -> None:
        self._notes = notes
        self._api = api
        self._limit = limit
        self._parts: list[bytes] = []
        self.held = 0

    def feed(self, plain: bytes) -> None:
        self.held += len(plain)
        if self.held > self._limit:
            self._parts.clear()
            raise ValueError(f"a body of more than {self._limit} bytes")
        self._parts.append(plain)

    def end(self) -> None:
        raw = b"".join(self._parts)
        if len(raw) <= _SMALL:
            body = _decoded(raw)
        else:
            body = _decoded_around_text(raw)
        if body is None:
            # An error page of a proxy on the way; else a cut body, whose text is the model's.
            if self._notes.refused:
                self._notes.failure = raw[: 4 * LONGEST].decode("utf-8", "replace")
            else:
                self._notes.failure = None
            return
        self._notes.answer(body)
        if self._notes.refused or body.get("error") is not None or body.get("type") == "error":
            self._notes.failure = body
        elif self._api is not None:
            _BODIES[self._api](self._notes, body)


class _Events:
    """An answer as a stream of events."""

    def __init__(self, notes: _Notes, api: Api | None, limit: int) -> None:
        self._notes = notes
        self._splitter = Splitter(limit)
        self.held = 0
        if api is not None:
            self._tells, self._event = _STREAMS[api]
        else:
            self._tells, self._event = (_nothing, _no_event)

    def feed(self, plain: bytes) -> None:
        for raw, readable in self._splitter.cut(plain):
            if readable and self._tells(self._notes, raw):
                self._event(self._notes, Frame.read(raw))

    def end(self) -> None:
        if rest := self._splitter.rest():
            self._event(self._notes, Frame.read(rest))


def _decoded(data: bytes) -> Json | None:
    """A JSON object; None if these bytes are none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        return value
    return None


def _decoded_around_text(data: bytes) -> Json | None:
    """The same of a large body, without the fields that hold what the model said: parts of choices, content, output."""
    try:
        fields = _FIELDS.decode(data)
        body = {name: msgspec.json.decode(value) for name, value in fields.items() if len(memoryview(value)) <= _SMALL}
        if "choices" in fields and "choices" not in body:
            body["choices"] = msgspec.to_builtins(_CHOICES.decode(fields["choices"]))
    except (ValueError, RecursionError):
        return None
    return body


def _nothing(notes: _Notes, raw: bytes) -> bool:
    """Of an API that nobody here knows."""
    return False


def _no_event(notes: _Notes, frame: Frame) -> None:
    """What may come behind the last blank line of such a stream."""


# -- chat completions --------------------------------------------------------------------------------------------------

#: With `stream_options.include_usage` every chunk has `"usage":null`, most of them at their end.
_COUNTED: Final = re.compile(rb'"usage"\s*:\s*\{')


def _chat_tells(notes: _Notes, raw: bytes) -> bool:
    """The first chunk, counts, a reason to stop, an error, the end. Text has its quotes escaped, so it says none."""
    if not notes.response_id or b'"error"' in raw:
        return True
    counts = not raw.endswith(b'"usage":null}\n\n') and b'"usage"' in raw and _COUNTED.search(raw) is not None
    return counts or not (b'finish_reason":null' in raw or b'finish_reason": null' in raw)


def _chat_event(notes: _Notes, frame: Frame) -> None:
    chunk = _decoded(frame.data)
    if chunk is None:
        notes.ended = notes.ended or frame.data.startswith(b"[DONE]")
        return
    notes.answer(chunk)
    if chunk.get("error") is not None:
        notes.failure = chunk
    _chat(notes, chunk)


def _chat(notes: _Notes, body: Json) -> None:
    reasons = [text_in(choice.get("finish_reason")) for choice in mappings_in(body.get("choices"))]
    if any(reasons):
        notes.stop_reason = next(filter(None, reasons))
        notes.ended = True


# -- Responses ---------------------------------------------------------------------------------------------------------

#: The last event of a stream is one of these. Servers that name no events are known by the bytes of their data.
_LAST: Final = frozenset(("response.completed", "response.incomplete", "response.failed", "error"))
_LAST_TYPE: Final = re.compile(rb'"type"\s*:\s*"(?:response\.(?:completed|incomplete|failed)|error)"')


def _responses_tells(notes: _Notes, raw: bytes) -> bool:
    return b"response.completed" in raw or b"response.incomplete" in raw or b"response.failed" in raw or b"error" in raw


def _responses_event(notes: _Notes, frame: Frame) -> None:
    if frame.event:
        last = frame.event in _LAST
    else:
        last = _LAST_TYPE.search(frame.data) is not None
    event = _decoded(frame.data) if last else None
    if event is None:
        return
    if event.get("type") == "error":
        notes.failure = event
        return
    response = mapping_in(event.get("response"))
    notes.answer(response)
    _responses(notes, response)


def _responses(notes: _Notes, body: Json) -> None:
    """`status` says how it ended; what is queued or in progress did not."""
    status = text_in(body.get("status"))
    notes.stop_reason = text_in(mapping_in(body.get("incomplete_details")).get("reason")) or status
    notes.ended = status in ("completed", "incomplete")
    if status == "failed":
        notes.failure = body


# -- Messages ----------------------------------------------------------------------------------------------------------


def _anthropic_tells(notes: _Notes, raw: bytes) -> bool:
    return b"message_" in raw or b"error" in raw


def _anthropic_event(notes: _Notes, frame: Frame) -> None:
    hears = _ANTHROPIC_EVENTS.get(frame.event)
    if hears is not None and (event := _decoded(frame.data)) is not None:
        hears(notes, event)


def _started(notes: _Notes, event: Json) -> None:
    notes.answer(mapping_in(event.get("message")))


def _changed(notes: _Notes, event: Json) -> None:
    """`message_delta`: the counts and edits in the event itself, the reason to stop in its delta."""
    notes.answer(event)
    notes.stop_reason = text_in(mapping_in(event.get("delta")).get("stop_reason")) or notes.stop_reason


def _stopped(notes: _Notes, event: Json) -> None:
    notes.ended = True


def _failed(notes: _Notes, event: Json) -> None:
    notes.failure = event


#: Its clients know events by their names, so they have them.
_ANTHROPIC_EVENTS: Final[Mapping[str, Callable[[_Notes, Json], None]]] = {
    "message_start": _started,
    "message_delta": _changed,
    "message_stop": _stopped,
    "error": _failed,
}


def _anthropic(notes: _Notes, body: Json) -> None:
    notes.stop_reason = text_in(body.get("stop_reason"))
    notes.ended = True


_BODIES: Final[Mapping[Api, Callable[[_Notes, Json], None]]] = {
    "openai": _chat,
    "openai-responses": _responses,
    "anthropic": _anthropic,
}
#: API -> (whether a frame is worth reading, by its bytes; what it says).
_STREAMS: Final[Mapping[Api, tuple[Callable[[_Notes, bytes], bool], Callable[[_Notes, Frame], None]]]] = {
    "openai": (_chat_tells, _chat_event),
    "openai-responses": (_responses_tells, _responses_event),
    "anthropic": (_anthropic_tells, _anthropic_event),
}
