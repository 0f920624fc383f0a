"""A request passed through as it came, and an answer told as it comes: what is read of either is read on the way by."""

from __future__ import annotations

import time
from collections.abc import Callable

from elision.gateway import header_fields as fields
from elision.gateway.error_responses import make_error_response, make_stream_error
from elision.gateway.request_record import RequestRecord
from elision.gateway.response_decompression import ENCODINGS, StreamDecompressor
from elision.gateway.response_observer import ResponseFacts, ResponseObserver
from elision.gateway.routes import Api
from elision.gateway.upstream import Upstream, UpstreamError, UpstreamResponse
from elision.gateway.wire import ClientReply, ClientRequest, Headers
from elision.manager.drivers import run_off_loop
from elision.manager.offload import INLINE_BYTES, choose_executor


async def forward_unmodified(
    upstream: Upstream, request: ClientRequest, reply: ClientReply, url: str, api: Api | None, served: RequestRecord
) -> None:
    """Send `request` on byte for byte, and its answer back; a provider that fails is told of in its own shape."""
    served.added_seconds = time.perf_counter() - request.received_at
    served.bytes_up = len(request.body)
    served.rounds = 1
    try:
        answer = await upstream.open(
            request.method, url, fields.filter_request_fields(request.headers, is_changed=False), request.stream_body()
        )
        async with answer:
            tap = make_observer(api, answer)
            try:
                await stream_response(answer, reply, tap, served, received_at=request.received_at)
            finally:
                served.usage = (await finish_observer(tap)).usage
    except UpstreamError as error:
        await reply_upstream_error(error, reply, api, served)


async def stream_response(
    answer: UpstreamResponse,
    reply: ClientReply,
    tap: ResponseObserver,
    served: RequestRecord,
    *,
    received_at: float,
    read_before: bytes = b"",
    extra_headers: Headers | None = None,
) -> ResponseFacts:
    """Relay `answer` to the client as it arrives; return what was observed. Raises UpstreamError where it breaks off.

    tap: observes every chunk, also of a response that is cut. read_before: what was already read of the body.
    extra_headers: the gateway's own headers.
    """
    served.status, served.is_stream = answer.status, is_event_stream(answer)
    await reply.start(answer.status, [*fields.filter_response_fields(answer.headers), *(extra_headers or ())])
    if read_before:
        tap.feed(read_before)
        served.bytes_out += len(read_before)
        await reply.send(read_before)
    async for chunk in answer.iter_chunks():
        served.first_byte_seconds = served.first_byte_seconds or time.perf_counter() - received_at
        served.bytes_out += len(chunk)
        # The client first: reading is nothing that it should wait for.
        await reply.send(chunk)
        tap.feed(chunk)
    await reply.finish()
    served.total_seconds = time.perf_counter() - received_at
    heard = await finish_observer(tap)
    served.is_complete = heard.is_complete
    return heard


async def finish_observer(tap: ResponseObserver) -> ResponseFacts:
    """What `tap` heard, at the end of an answer; a large body is read in a thread."""
    held = tap.held_bytes
    if held <= INLINE_BYTES:
        return tap.finish()
    return await run_off_loop(tap.finish, choose_executor(held))


async def reply_upstream_error(
    error: UpstreamError, reply: ClientReply, api: Api | None, served: RequestRecord
) -> None:
    """The provider was not reached, or its answer broke off: the client hears of it in the provider's shape."""
    served.cause = error.kind
    served.why = str(error)
    if reply.is_started:
        await end_cut_reply(reply, api, str(error))
        return
    served.status, names, body = make_error_response(api, 504 if "timeout" in error.kind else 502, str(error))
    await reply.start(served.status, [(name.encode(), value.encode()) for name, value in names.items()])
    await reply.send(body)
    await reply.finish()


async def end_cut_reply(reply: ClientReply, api: Api | None, message: str) -> None:
    """End an answer that has begun and cannot go on: with an error of the API's own where one more event can be said.

    Any other is left unfinished, which cuts the connection. So is one that broke off within an event: half an event
    cannot be taken back, and a client that is made to read it stumbles over that and never comes to ours.
    """
    if api is not None and reply.can_send_event:
        await reply.send(make_stream_error(api, message))
        await reply.finish()


def is_event_stream(answer: UpstreamResponse) -> bool:
    """Whether an answer is a stream of events."""
    return (answer.get_header(b"content-type") or b"").lower().startswith(b"text/event-stream")


def make_decompressor(answer: UpstreamResponse) -> Callable[[bytes], bytes] | None:
    """What makes the chunks of its body plain; None where nothing here can. Raises UpstreamError for broken ones."""
    coding = (answer.get_header(b"content-encoding") or b"").decode("latin-1").strip().lower()
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


def make_observer(api: Api | None, answer: UpstreamResponse) -> ResponseObserver:
    """What reads an answer on its way by."""
    kind = answer.get_header(b"content-type") or b""
    encoding = answer.get_header(b"content-encoding") or b""
    return ResponseObserver(
        api, status=answer.status, content_type=kind.decode("latin-1"), encoding=encoding.decode("latin-1")
    )
