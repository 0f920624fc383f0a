"""Write the client's reply: a response of the provider as it arrives, or an error in the provider's own format."""

from __future__ import annotations

import time
from collections.abc import Callable

from elision.gateway import header_fields
from elision.gateway.error_responses import make_error_response, make_stream_error
from elision.gateway.request_record import RequestRecord
from elision.gateway.response_observer import ResponseFacts, ResponseObserver
from elision.gateway.upstream import UpstreamError, UpstreamResponse
from elision.gateway.wire import ClientReply, Headers
from elision.providers.provider import Api


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
        await self.start(response, header_fields.filter_response_fields(response.headers))
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
