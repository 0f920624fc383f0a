"""Forward a request unchanged, and relay a response as it arrives: both are observed on the way."""

from __future__ import annotations

import time
from collections.abc import Callable

from elision.gateway import header_fields as fields
from elision.gateway.decompression import ENCODINGS, StreamDecompressor
from elision.gateway.error_responses import make_error_response, make_stream_error
from elision.gateway.request_record import RequestRecord
from elision.gateway.response_observer import ResponseFacts, ResponseObserver
from elision.gateway.routes import Api
from elision.gateway.upstream import Upstream, UpstreamError, UpstreamResponse
from elision.gateway.wire import ClientReply, ClientRequest, Headers
from elision.manager.drivers import run_off_loop
from elision.manager.offload import INLINE_BYTES, choose_executor


async def forward_unmodified(
    upstream: Upstream, request: ClientRequest, reply: ClientReply, url: str, api: Api | None, record: RequestRecord
) -> None:
    """Forward `request` byte for byte, and relay its response; a provider's failure is an error in its own format."""
    record.added_seconds = time.perf_counter() - request.received_at
    record.bytes_up = len(request.body)
    record.rounds = 1
    try:
        response = await upstream.open(
            request.method, url, fields.filter_request_fields(request.headers, is_changed=False), request.stream_body()
        )
        async with response:
            observer = make_observer(api, response)
            try:
                await stream_response(response, reply, observer, record, received_at=request.received_at)
            finally:
                record.usage = (await finish_observer(observer)).usage
    except UpstreamError as error:
        await reply_upstream_error(error, reply, api, record)


async def stream_response(
    response: UpstreamResponse,
    reply: ClientReply,
    observer: ResponseObserver,
    record: RequestRecord,
    *,
    received_at: float,
    read_before: bytes = b"",
    extra_headers: Headers | None = None,
) -> ResponseFacts:
    """Relay `response` to the client as it arrives; return what was observed. Raises UpstreamError where it breaks off.

    observer: gets every chunk, also of a response that is cut. read_before: what was already read of the body.
    extra_headers: the gateway's own headers.
    """
    record.status, record.is_stream = response.status, is_event_stream(response)
    await reply.start(response.status, [*fields.filter_response_fields(response.headers), *(extra_headers or ())])
    if read_before:
        observer.feed(read_before)
        record.bytes_out += len(read_before)
        await reply.send(read_before)
    async for chunk in response.iter_chunks():
        record.first_byte_seconds = record.first_byte_seconds or time.perf_counter() - received_at
        record.bytes_out += len(chunk)
        # The client first: reading is nothing that it should wait for.
        await reply.send(chunk)
        observer.feed(chunk)
    await reply.finish()
    record.total_seconds = time.perf_counter() - received_at
    facts = await finish_observer(observer)
    record.is_complete = facts.is_complete
    return facts


async def finish_observer(observer: ResponseObserver) -> ResponseFacts:
    """Return what `observer` found, at the end of a response; a large body is read in a thread."""
    held = observer.held_bytes
    if held <= INLINE_BYTES:
        return observer.finish()
    return await run_off_loop(observer.finish, choose_executor(held))


async def reply_upstream_error(
    error: UpstreamError, reply: ClientReply, api: Api | None, record: RequestRecord
) -> None:
    """Reply in the provider's format that it was not reached, or that its response broke off."""
    record.cause = error.kind
    record.why = str(error)
    if reply.is_started:
        await end_cut_reply(reply, api, str(error))
        return
    record.status, names, body = make_error_response(api, 504 if "timeout" in error.kind else 502, str(error))
    await reply.start(record.status, [(name.encode(), value.encode()) for name, value in names.items()])
    await reply.send(body)
    await reply.finish()


async def end_cut_reply(reply: ClientReply, api: Api | None, message: str) -> None:
    """End a reply that has begun and cannot continue: with an error event of the API, where one can be sent.

    Any other reply is left unfinished, which cuts the connection. So is one that broke off within an event: half an
    event cannot be taken back, and a client that parses it fails there and never reads the error event.
    """
    if api is not None and reply.can_send_event:
        await reply.send(make_stream_error(api, message))
        await reply.finish()


def is_event_stream(response: UpstreamResponse) -> bool:
    """Return whether a response is a stream of events."""
    return (response.get_header(b"content-type") or b"").lower().startswith(b"text/event-stream")


def make_decompressor(response: UpstreamResponse) -> Callable[[bytes], bytes] | None:
    """Return a function that decompresses the body's chunks; None for an unknown encoding.

    The function raises UpstreamError for broken bytes.
    """
    coding = (response.get_header(b"content-encoding") or b"").decode("latin-1").strip().lower()
    if coding in ("", "identity"):
        return bytes
    if coding not in ENCODINGS:
        return None
    inflater = StreamDecompressor(coding)

    def decompress_chunk(chunk: bytes) -> bytes:
        try:
            return b"".join(inflater.feed(chunk))
        except ValueError as error:
            raise UpstreamError("malformed", f"the provider's answer cannot be read: {error}") from error

    return decompress_chunk


def make_observer(api: Api | None, response: UpstreamResponse) -> ResponseObserver:
    """Return an observer for a response."""
    kind = response.get_header(b"content-type") or b""
    encoding = response.get_header(b"content-encoding") or b""
    return ResponseObserver(
        api, status=response.status, content_type=kind.decode("latin-1"), encoding=encoding.decode("latin-1")
    )
