"""Observe a response on its way: its cost, and what the provider reports about the context. Nothing is changed.

Usage, cache misses, applied edits, dropped thinking and the numbers in "prompt is too long" are facts that cost nothing
but reading. So a copy of the response is read, plain or compressed, whole or as a stream of events. Of a stream only
the few events with such facts are decoded, found by name or by a few bytes. Memory is bounded, and nothing is raised:
what cannot be read is skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol

import msgspec

from elision.gateway.body_reader import StreamDecompressor
from elision.gateway.json_bytes import shorten_strings
from elision.gateway.upstream import UpstreamResponse
from elision.manager.agent_call import find_usage
from elision.manager.drivers import run_off_loop
from elision.manager.think_time import INLINE_BYTES, choose_executor
from elision.providers.anthropic.server_clearing import ClearingReport
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS
from elision.providers.shared import signals
from elision.providers.shared.json_reading import Json, mapping_in, text_in
from elision.providers.streaming.rounds import ResponseFindings
from elision.providers.streaming.sse import FrameSplitter, SseFrame
from elision.trajectory.foreign_text import join_pieces, parse_object
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
    response_id, model: the provider's words, "" where there are none.
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
        self._findings = ResponseFindings(is_refused=status >= 400)
        self._api = api
        self._limit = limit
        self._is_stream = content_type.strip().lower().startswith("text/event-stream")
        self._encoding = encoding
        self._decompressor: StreamDecompressor | None = None
        self._reader: _BodyReader | None = None
        self._is_disabled = False
        self._facts: ResponseFacts | None = None

    @classmethod
    def for_response(cls, api: Api | None, response: UpstreamResponse) -> ResponseObserver:
        """Return an observer for a response of that API."""
        return cls(
            api,
            status=response.status,
            content_type=response.content_type,
            encoding=response.content_encoding,
        )

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes of the body."""
        if self._is_disabled or not chunk:
            return
        try:
            if self._encoding:
                self._decompressor = self._decompressor or StreamDecompressor(self._encoding)
            for piece in self._decompressor.feed(chunk) if self._decompressor is not None else (chunk,):
                if self._reader is None:
                    self._reader = self._make_reader(piece)
                self._reader.feed(piece)
        except Exception as error:  # noqa: BLE001 - an answer may be anything, and passes all the same
            self._disable(error)

    @property
    def held_bytes(self) -> int:
        """Return how many bytes `finish` has yet to read."""
        return self._reader.held_bytes if self._reader is not None else 0

    def finish(self) -> ResponseFacts:
        """Return the facts; the body is over, or no more of it will come. A second call returns the same."""
        if self._facts is not None:
            return self._facts
        try:
            if self._reader is not None:
                reader = self._reader
                self._reader = None
                reader.end()
        except Exception as error:  # noqa: BLE001 - an answer may be anything, and passes all the same
            self._disable(error)
        try:
            self._facts = _make_facts(self._findings)
        except Exception as error:  # noqa: BLE001 - an answer may be anything, and passes all the same
            self._disable(error)
            self._facts = ResponseFacts()
        return self._facts

    async def finish_async(self) -> ResponseFacts:
        """Do as `finish`; a large body is read in a thread."""
        held = self.held_bytes
        if self._facts is not None or held <= INLINE_BYTES:
            return self.finish()
        return await run_off_loop(self.finish, choose_executor(held))

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


def _make_facts(found: ResponseFindings) -> ResponseFacts:
    failure = found.failure
    if failure is not None:
        overflow = signals.parse_overflow(failure)
    else:
        overflow = _find_overflow(found.stop_reason)
    return ResponseFacts(
        usage=find_usage(found.usage) if found.usage else None,
        is_complete=found.has_ended and failure is None and not found.is_refused,
        overflow=overflow,
        cache_miss=found.cache_miss,
        transformations=found.transformations,
        cleared=found.cleared,
        unbound_thinking=None if failure is None else signals.find_unbound_thinking(failure),
        response_id=found.response_id,
        model=found.model,
        error="" if failure is None else _extract_error(failure),
    )


@lru_cache(maxsize=32)
def _find_overflow(stop_reason: str) -> signals.Overflow | None:
    """Return what a stop reason says of a prompt that was too long. There are few reasons."""
    return signals.parse_overflow({"stop_reason": stop_reason} if stop_reason else None)


def _extract_error(failure: Any) -> str:
    """Return the message of an error, however it is nested."""
    if isinstance(failure, Mapping):
        inner = failure.get("error") or mapping_in(failure.get("response")).get("error") or failure
        if isinstance(inner, str):
            failure = inner
        else:
            failure = _first_text(mapping_in(inner)) or _first_text(failure)
    if not isinstance(failure, str) or not failure:
        return "an error without a message"
    line = " ".join(_REDACTION.redact_text(failure[: 4 * MAX_ERROR_CHARS]).split())
    return line if len(line) <= MAX_ERROR_CHARS else f"{line[: MAX_ERROR_CHARS - 3]}..."


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

    def __init__(self, found: ResponseFindings, api: Api | None, limit: int) -> None:
        self._findings = found
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
        raw = join_pieces(self._parts)
        bare = shorten_strings(raw)
        body = parse_object(bare) if len(bare) <= _SMALL else _decode_without_text(bare)
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
            PROVIDERS[self._api].observer.read_body(self._findings, body)


class _EventStreamReader:
    """Reads a response as a stream of events."""

    def __init__(self, found: ResponseFindings, api: Api | None, limit: int) -> None:
        self._findings = found
        self._splitter = FrameSplitter(limit)
        self.held_bytes = 0
        self._observer = PROVIDERS[api].observer if api is not None else None

    def feed(self, plain: bytes) -> None:
        for raw, is_readable in self._splitter.split_raw(plain):
            if is_readable and self._observer is not None and self._observer.is_useful_frame(self._findings, raw):
                self._observer.read_event(self._findings, SseFrame.parse_frame(raw))

    def end(self) -> None:
        rest = self._splitter.take_rest()
        if rest and self._observer is not None:
            self._observer.read_event(self._findings, SseFrame.parse_frame(rest))


def _decode_without_text(data: bytes) -> dict[str, Any] | None:
    """Return a large JSON object without the fields with the model's text: parts of choices, content, output."""
    try:
        fields = _FIELDS.decode(data)
        body = {name: msgspec.json.decode(value) for name, value in fields.items() if len(memoryview(value)) <= _SMALL}
        if "choices" in fields and "choices" not in body:
            body["choices"] = msgspec.to_builtins(_CHOICES.decode(fields["choices"]))
    except (ValueError, RecursionError):
        return None
    return body
