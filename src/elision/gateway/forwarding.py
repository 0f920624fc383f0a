"""A request passed through as it came, and an answer told as it comes: what is read of either is read on the way by."""

from __future__ import annotations

import time
from collections.abc import Callable

from elision.gateway import headers as fields
from elision.gateway.inflater import ENCODINGS, Inflater
from elision.gateway.refusals import refusal, stream_error
from elision.gateway.routes import Api
from elision.gateway.served import Served
from elision.gateway.tap import Heard, Tap
from elision.gateway.upstream import Answer, Upstream, UpstreamError
from elision.gateway.wire import Headers, Incoming, Reply
from elision.manager.drivers import run_off_loop
from elision.manager.offload import INLINE_BYTES, choose_executor


async def passed(
    upstream: Upstream, request: Incoming, reply: Reply, url: str, api: Api | None, served: Served
) -> None:
    """Send `request` on byte for byte, and its answer back; a provider that fails is told of in its own shape."""
    served.added = time.perf_counter() - request.received_at
    served.bytes_up = len(request.body)
    served.rounds = 1
    try:
        answer = await upstream.open(
            request.method, url, fields.forwarded(request.headers, changed=False), request.content()
        )
        async with answer:
            tap = tap_of(api, answer)
            try:
                await tell(answer, reply, tap, served, received_at=request.received_at)
            finally:
                served.usage = (await finish_tap(tap)).usage
    except UpstreamError as error:
        await broken(error, reply, api, served)


async def tell(
    answer: Answer,
    reply: Reply,
    tap: Tap,
    served: Served,
    *,
    received_at: float,
    before: bytes = b"",
    extra: Headers | None = None,
) -> Heard:
    """Give the client `answer` as it comes; what was heard on the way. Raises UpstreamError where it breaks off.

    tap: hears it, also as far as it came where it breaks off or the client leaves. before: what was read of it already.
    extra: headers of our own.
    """
    served.status, served.stream = answer.status, is_stream(answer)
    await reply.start(answer.status, [*fields.returned(answer.headers), *(extra or ())])
    if before:
        tap.feed(before)
        served.bytes_out += len(before)
        await reply.send(before)
    async for chunk in answer.chunks():
        served.first = served.first or time.perf_counter() - received_at
        served.bytes_out += len(chunk)
        # The client first: reading is nothing that it should wait for.
        await reply.send(chunk)
        tap.feed(chunk)
    await reply.finish()
    served.whole = time.perf_counter() - received_at
    heard = await finish_tap(tap)
    served.complete = heard.complete
    return heard


async def finish_tap(tap: Tap) -> Heard:
    """What `tap` heard, at the end of an answer; a large body is read in a thread."""
    held = tap.held
    if held <= INLINE_BYTES:
        return tap.finish()
    return await run_off_loop(tap.finish, choose_executor(held))


async def broken(error: UpstreamError, reply: Reply, api: Api | None, served: Served) -> None:
    """The provider was not reached, or its answer broke off: the client hears of it in the provider's shape."""
    served.cause = error.kind
    served.why = str(error)
    if reply.started:
        await cut(reply, api, str(error))
        return
    served.status, names, body = refusal(api, 504 if "timeout" in error.kind else 502, str(error))
    await reply.start(served.status, [(name.encode(), value.encode()) for name, value in names.items()])
    await reply.send(body)
    await reply.finish()


async def cut(reply: Reply, api: Api | None, message: str) -> None:
    """End an answer that has begun and cannot go on: with an error of the API's own where one more event can be said.

    Any other is left unfinished, which cuts the connection. So is one that broke off within an event: half an event
    cannot be taken back, and a client that is made to read it stumbles over that and never comes to ours.
    """
    if api is not None and reply.eventful:
        await reply.send(stream_error(api, message))
        await reply.finish()


def is_stream(answer: Answer) -> bool:
    """Whether an answer is a stream of events."""
    return (answer.header(b"content-type") or b"").lower().startswith(b"text/event-stream")


def inflating(answer: Answer) -> Callable[[bytes], bytes] | None:
    """What makes the chunks of its body plain; None where nothing here can. Raises UpstreamError for broken ones."""
    coding = (answer.header(b"content-encoding") or b"").decode("latin-1").strip().lower()
    if coding in ("", "identity"):
        return bytes
    if coding not in ENCODINGS:
        return None
    inflater = Inflater(coding)

    def inflated(chunk: bytes) -> bytes:
        try:
            return b"".join(inflater.feed(chunk))
        except ValueError as error:
            raise UpstreamError("malformed", f"the provider's answer cannot be read: {error}") from error

    return inflated


def tap_of(api: Api | None, answer: Answer) -> Tap:
    """What reads an answer on its way by."""
    kind = answer.header(b"content-type") or b""
    encoding = answer.header(b"content-encoding") or b""
    return Tap(api, status=answer.status, content_type=kind.decode("latin-1"), encoding=encoding.decode("latin-1"))
