"""Write the client's reply: a response of the provider as it arrives, a refusal of it, or an error of the gateway.

The gateway's own errors have the format of the provider that the client addresses. A client's SDK turns them into the
exception for that status, with our message: that it is the gateway's, what happened, and what to do. They hold nothing
of a request. `x-elision-error` distinguishes them from the provider's.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

from elision.gateway import wire
from elision.gateway.call_recorder import SessionRequest
from elision.gateway.identity import list_credentials
from elision.gateway.request_record import RequestRecord
from elision.gateway.response_observer import ResponseFacts, ResponseObserver
from elision.gateway.upstream import UpstreamError, UpstreamResponse
from elision.gateway.wire import ClientReply, ClientRequest, Headers
from elision.providers.provider import Api, Provider
from elision.providers.provider_table import DEFAULT_PROVIDER, PROVIDERS

_log: Final = logging.getLogger("elision.gateway")

#: Characters of a message; it may quote what a network library or a provider says.
MAX_MESSAGE_CHARS: Final = 1_000
#: Bytes of an error's body that are read before its handling is decided.
MAX_ERROR_BYTES: Final = 1_000_000
#: What stands between quotes is a name (`'tool_use'`) where it has no space and is no longer than this.
MAX_NAME_CHARS: Final = 60
#: Not the apostrophe within a word.
_QUOTED: Final = re.compile(r"(?<!\w)(['\"`])(.*?)\1(?!\w)", re.DOTALL)
#: Shorter values may be part of any word.
_MIN_CREDENTIAL_CHARS: Final = 4


class ReplyWriter:
    """Writes one reply, and notes in `record` what the client got.

    received_at:   `time.perf_counter()` of the request. on_finish: called once, before the reply's end is sent.
    names_session: whether the reply's headers name the session of `record`.
    """

    def __init__(
        self,
        reply: ClientReply,
        api: Api | None,
        record: RequestRecord,
        *,
        received_at: float,
        on_finish: Callable[[], None] | None = None,
        names_session: bool = False,
    ) -> None:
        self._reply = reply
        self._api: Api | None = api
        self._record = record
        self._received_at = received_at
        self._on_finish = on_finish
        self._names_session = names_session
        self.is_finished = False

    @property
    def is_started(self) -> bool:
        """Return whether status and headers are sent."""
        return self._reply.is_started

    async def relay_response(
        self, response: UpstreamResponse, observer: ResponseObserver, read_before: bytes = b""
    ) -> ResponseFacts:
        """Relay `response` as it arrives; return what was observed. Raises UpstreamError where it breaks off.

        observer: gets every chunk, also of a response that is cut. read_before: what was already read of the body.
        """
        await self.start(response, wire.filter_response_fields(response.headers))
        if read_before:
            await self.send_chunk(read_before)
            observer.feed(read_before)
        async for chunk in response.iter_chunks():
            self.note_first_byte()
            # The client first: it should not wait for the observer.
            await self.send_chunk(chunk)
            observer.feed(chunk)
        await self.finish()
        facts = await observer.finish_async()
        self._record.is_complete = facts.is_complete
        return facts

    async def start(self, response: UpstreamResponse, headers: Headers) -> None:
        """Send the status of `response` and `headers`, with the gateway's own headers after them."""
        record = self._record
        record.status = response.status
        record.is_stream = response.is_event_stream
        own: Headers = []
        if self._names_session:
            own.append((b"x-elision-session", record.session.encode("ascii", "backslashreplace")))
        if record.reached_limit:
            own.append((b"x-elision-stop", record.reached_limit.encode("ascii", "backslashreplace")))
        if record.hint:
            own.append((b"x-elision-hint", record.hint.encode("ascii", "backslashreplace")))
        if note := record.budget_note:
            own.append((b"x-elision-budget", note.encode("ascii", "backslashreplace")))
        await self._reply.start(response.status, [*headers, *own])

    def note_first_byte(self) -> None:
        """Note when the first byte of a response arrived; later calls do nothing."""
        if not self._record.first_byte_seconds:
            self._record.first_byte_seconds = time.perf_counter() - self._received_at

    async def send_chunk(self, chunk: bytes) -> None:
        """Send a part of the body."""
        if chunk:
            self._record.bytes_out += len(chunk)
            await self._reply.send(chunk)

    async def finish(self) -> None:
        """Send the end of the reply."""
        if not self.is_finished:
            self.is_finished = True
            if self._on_finish is not None:
                self._on_finish()
        self._record.total_seconds = time.perf_counter() - self._received_at
        await self._reply.finish()

    async def reply_error(self, status: int, message: str) -> None:
        """Reply with an error of the gateway, in the provider's format."""
        self._record.status, named, body = make_error_response(self._api, status, message)
        await self._reply.start(self._record.status, [(name.encode(), value.encode()) for name, value in named.items()])
        await self._reply.send(body)
        await self.finish()

    async def reply_upstream_error(self, error: UpstreamError) -> None:
        """Reply that the provider was not reached, or that its response broke off."""
        self._record.cause = error.kind
        self._record.why = str(error)
        if self._reply.is_started:
            await self.end_cut_reply(str(error))
        else:
            await self.reply_error(504 if "timeout" in error.kind else 502, str(error))

    async def end_cut_reply(self, message: str) -> None:
        """End a reply that has begun and cannot continue: with an error event of the API, where one can be sent.

        Any other reply is left unfinished, which cuts the connection. So is one that broke off within an event: half an
        event cannot be taken back, and a client that parses it fails there and never reads the error event.
        """
        if self._api is not None and self._reply.can_send_event:
            await self._reply.send(make_stream_error(self._api, message))
            await self.finish()


# -- refusals of the provider ------------------------------------------------------------------------------------------


async def read_refusal(sent: SessionRequest, response: UpstreamResponse) -> tuple[ResponseFacts, bytes]:
    """Return what a refusal says, and what was read of its body. Raises UpstreamError."""
    body_start = await _read_at_most(response, MAX_ERROR_BYTES)
    observer = ResponseObserver.for_response(sent.api, response)
    observer.feed(body_start)
    return await observer.finish_async(), body_start


async def _read_at_most(response: UpstreamResponse, limit: int) -> bytes:
    """Read the body, up to the chunk that reaches beyond `limit` bytes."""
    read = bytearray()
    async for chunk in response.iter_chunks():
        read += chunk
        if len(read) > limit:
            break
    return bytes(read)


async def relay_refusal(
    sent: SessionRequest, writer: ReplyWriter, response: UpstreamResponse, read_before: bytes = b""
) -> None:
    """Relay a refusal unchanged; as an event where the reply has begun. read_before: what was read of its body.

    Raises UpstreamError.
    """
    record = sent.record
    cause = f"upstream-{response.status}"
    if writer.is_started:
        facts, _ = await read_refusal(sent, response)
        message = facts.error or f"the provider answered {response.status}"
        record.cause = cause
        record.why = sanitize_error(message, sent.client)
        await writer.end_cut_reply(message)
        return
    facts = await writer.relay_response(response, ResponseObserver.for_response(sent.api, response), read_before)
    record.cause = record.cause or cause
    record.why = sanitize_error(facts.error, sent.client)


def bypass_session(sent: SessionRequest, facts: ResponseFacts) -> None:
    """Let the session's next requests pass: the provider refused an edited one, and took the client's own.

    Providers advise against hiding their error about thinking. It is in the log, and in the client's response where the
    client's own request is refused as well.
    """
    sent.session.begin_bypass()
    sent.record.how = "failed"
    sent.record.cause = "unbound" if facts.unbound_thinking else "rejected"
    _log.error(
        "session %s: the provider refused the edited request and accepted the original; the next %d "
        "requests are sent unchanged: %s",
        sent.record.session,
        sent.session.requests_to_bypass,
        sanitize_error(facts.error, sent.client),
    )


def sanitize_error(error: str, request: ClientRequest) -> str:
    """Return `error` without the request's credentials and without words quoted of it."""
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.headers}
    for value in list_credentials(headers, request.query):
        # "Bearer sk-…": the key alone may be quoted; and what is quoted of the query may be as it was sent.
        for part in (value, *value.split(), quote(value, safe="", errors="surrogateescape")):
            if len(part) >= _MIN_CREDENTIAL_CHARS:
                error = error.replace(part, "[credential]")
    return _QUOTED.sub(_shorten_quote, error)


def _shorten_quote(found: re.Match[str]) -> str:
    quote, words = found.groups()
    if len(words) > MAX_NAME_CHARS or any(map(str.isspace, words)):
        return f"{quote}…{quote}"
    return found[0]


# -- the gateway's own errors ------------------------------------------------------------------------------------------


class _StatusText(NamedTuple):
    """The texts of a status.

    kind: one word, where the cause has none. remedy: what to do, where the message does not say it.
    """

    kind: str
    remedy: str


_STATUS_TEXTS: Final[Mapping[int, _StatusText]] = {
    400: _StatusText("bad-request", "Correct the request; nothing was sent to the provider."),
    401: _StatusText("unauthorized", "Send the token that the gateway was started with."),
    403: _StatusText("forbidden", "Ask the operator of the gateway to allow it."),
    404: _StatusText("not-found", "Check the client's base URL: the gateway serves /v1, /openai/v1 and /anthropic/v1."),
    408: _StatusText("request-timeout", "Send the request again; its body came too slowly."),
    413: _StatusText("too-large", "Send a smaller request, or have the gateway's limit raised (max_body_bytes)."),
    429: _StatusText(
        "limit", "Raise it in the gateway's settings; it counts everything in the log, so waiting does not help."
    ),
    500: _StatusText("internal", "Send the header `x-elision: off` to bypass the gateway, and report this."),
    502: _StatusText("upstream", "Try again; if it persists, `elision serve --check` tries the providers."),
    503: _StatusText("unavailable", "Try again in a moment."),
    504: _StatusText("upstream-timeout", "Try again; streamed answers need no long time limit."),
    529: _StatusText("overloaded", "Try again in a moment."),
}
_ANY_REQUEST: Final = _STATUS_TEXTS[400]
_ANY_FAILURE: Final = _STATUS_TEXTS[500]


def make_error_response(
    api: Api | None,
    status: int,
    message: str,
    kind: str = "",
    *,
    remedy: str = "",
    retry_after: float | None = None,
) -> tuple[int, dict[str, str], bytes]:
    """Return (status, headers, body) of an error of the gateway.

    message: what happened, as half a sentence, without anything of the request. kind: the cause in one word, for
    programs. remedy: what to do, as a sentence. retry_after: seconds; without it a 429 tells official clients not to
    retry, since waiting does not help.
    """
    words = _STATUS_TEXTS.get(status) or (_ANY_REQUEST if status < 500 else _ANY_FAILURE)
    if status == 429 and retry_after is not None:
        remedy = remedy or "Try again after the seconds that `retry-after` names."
    kind = kind or words.kind
    body = _find_provider(api).host.make_error_body(
        status, _make_sentence(message, remedy or words.remedy), f"elision_{kind}"
    )
    headers = {"content-type": "application/json", "x-elision-error": kind}
    if retry_after is not None:
        headers["retry-after"] = f"{retry_after:g}"
    elif status == 429:
        headers["x-should-retry"] = "false"
    return status, headers, json.dumps(body, ensure_ascii=False).encode()


def make_stream_error(api: Api | None, message: str, *, sequence: int = 0) -> bytes:
    """Return an event that ends an incomplete stream; clients raise it. sequence: its number, for Responses."""
    provider = _find_provider(api)
    sentence = _make_sentence(message, "The answer is not complete: send the request again.")
    return provider.make_stream_error(provider.host.make_error_body(502, sentence, "elision_cut"), sequence)


def _find_provider(api: Api | None) -> Provider:
    """Return the provider whose format an error has; the default one's on a path of no API."""
    return DEFAULT_PROVIDER if api is None else PROVIDERS[api]


def _make_sentence(message: str, remedy: str) -> str:
    """Return a printable sentence of bounded length: the message may quote others."""
    printable = [character if character.isprintable() else " " for character in message[: 2 * MAX_MESSAGE_CHARS]]
    text = " ".join("".join(printable).split())
    if len(text) > MAX_MESSAGE_CHARS:
        text = text[: MAX_MESSAGE_CHARS - 3] + "..."
    return f"Elision gateway: {text.rstrip('.') or 'the request was refused'}. {remedy}"
