"""The gateway as an ASGI application: requests for a provider go to the proxy, pages of our own to the admin side.

    scope -> ours? -> admin
          -> room, body in time -> proxy -> reply

No framework on that path: a request for a provider is read, handed on, and answered chunk by chunk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from elision.gateway.arriving import Body, Gone, Receive
from elision.gateway.limits import RETRY_AFTER, Limits, Refused
from elision.gateway.refusals import refusal, stream_error
from elision.gateway.routes import Api, route
from elision.gateway.served import Served, Watch
from elision.gateway.settings import GatewaySettings
from elision.gateway.wire import Headers, Incoming, Serving

_log: Final = logging.getLogger("elision.gateway")

Scope: TypeAlias = Any
Send: TypeAlias = Callable[[Any], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Paths that are ours: these, and what stands below the folder.
PAGES: Final = ("/", "/favicon.ico", "/metrics", "/healthz", "/readyz", "/elision")
FOLDER: Final = "/elision/"
#: Seconds for which a client that was refused may go on sending; it would else never read why.
LINGER: Final = 2.0
#: What is said to a client whose answer is cut because the gateway stops.
STOPPING: Final = "it is shutting down"
#: Answers that have no body, whatever length they state.
_BODILESS: Final = (204, 304)
#: How an event ends in a stream of them.
_BLANK: Final = (b"\n\n", b"\n\r\n", b"\r\r")


class App:
    """See the module. serving: answers requests. admin: our own pages. watch: told of what never came to `serving`."""

    def __init__(self, settings: GatewaySettings, serving: Serving, admin: Asgi, watch: Watch) -> None:
        self.limits = Limits(settings)
        #: Set when the server begins to stop: readiness says so.
        self.draining = False
        self._serving = serving
        self._admin = admin
        self._watch = watch
        self._under_way: set[_Exchange] = set()
        self._idle = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
        elif scope["path"] in PAGES or scope["path"].startswith(FOLDER):
            await self._admin(scope, receive, send)
        else:
            await self._proxied(scope, receive, send)

    @property
    def under_way(self) -> int:
        """Answers that are not complete yet."""
        return len(self._under_way)

    async def drained(self, seconds: float) -> int:
        """Wait until every answer is complete, at most so long; what is left is cut with an error, and counted."""
        if self._under_way:
            self._idle.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                pass
        left = list(self._under_way)
        for exchange in left:
            exchange.cut()
        if left:
            await asyncio.wait({exchange.task for exchange in left}, timeout=LINGER)
        return len(left)

    async def _proxied(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _Exchange(scope, receive, send, self.limits)
        self._under_way.add(exchange)
        try:
            await self._served(exchange)
        finally:
            self._under_way.discard(exchange)
            if not self._under_way:
                self._idle.set()

    async def _served(self, exchange: _Exchange) -> None:
        try:
            await exchange.answered(self._serving)
        except Refused as error:
            self._watch(exchange.refused(error))
            await exchange.refuse(error)
        except Gone:
            self._watch(exchange.refused(Refused(0, "client-gone", "the client left before its request was complete")))
        except asyncio.CancelledError:
            await exchange.cancelled()
        except Exception as error:  # noqa: BLE001
            # The last boundary: what gets here is a bug, and the client still hears of it in its provider's shape.
            _log.exception("a request could not be served")
            problem = Refused(500, "bug", f"it failed with {type(error).__name__}")
            self._watch(exchange.refused(problem))
            await exchange.refuse(problem)


class Out:
    """The way back to the client over ASGI; see `Reply`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.headers: Headers = []
        self.finished = False
        #: The last bytes that were sent.
        self._tail = b""

    @property
    def started(self) -> bool:
        return self.status != 0

    @property
    def eventful(self) -> bool:
        """Whether what has begun is a stream of events that one more event can be put into: it stands between two."""
        found = {name.lower(): value for name, value in self.headers}
        plain = found.get(b"content-encoding", b"identity") == b"identity" and b"content-length" not in found
        between = not self._tail or self._tail.endswith(_BLANK)
        return plain and between and found.get(b"content-type", b"").lower().startswith(b"text/event-stream")

    async def start(self, status: int, headers: Headers) -> None:
        if status in _BODILESS:
            headers = [pair for pair in headers if pair[0].lower() != b"content-length"]
        self.status = status
        self.headers = headers
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, chunk: bytes) -> None:
        if chunk:
            self._tail = (self._tail + chunk if len(chunk) < 4 else chunk)[-4:]
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self) -> None:
        self.finished = True
        await self._send({"type": "http.response.body", "body": b""})


class _Exchange:
    """One request and its answer. Compared by identity."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: Limits) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task, self.out = task, Out(send)
        self._scope = scope
        self._receive = receive
        self._limits = limits
        self._headers: Mapping[bytes, bytes] = dict(reversed(scope["headers"]))
        self._began = time.perf_counter()
        self._gone = asyncio.Event()
        self._cut = False
        self._body: Body | None = None
        self._watcher: asyncio.Task[None] | None = None

    async def answered(self, serving: Serving) -> None:
        """Serve it. Raises Refused, Gone, and CancelledError where the client is gone or the server stops."""
        self._body = Body(self._receive, self._limits, self._headers)
        await self._limits.turns.take()
        try:
            await serving.serve(await self._incoming(self._body), self.out)
        finally:
            self._limits.turns.give()
            self._body.close()
            if self._watcher is not None:
                self._watcher.cancel()

    async def _incoming(self, body: Body) -> Incoming:
        scope = self._scope
        raw = await body.read()
        if body.complete:
            self._watcher = asyncio.ensure_future(self._watch())
        return Incoming(
            method=scope["method"],
            raw_path=scope.get("raw_path") or scope["path"].encode("latin-1", "replace"),
            query=scope["query_string"],
            headers=list(scope["headers"]),
            body=raw,
            more=None if body.complete else body.more(),
            client=scope["client"][0] if scope.get("client") else "",
            received_at=time.perf_counter(),
            gone=self._gone,
        )

    async def _watch(self) -> None:
        """Notice that the client goes, and let go of everything that is done for it."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # ASGI says the same of a client that has its whole answer.
        if not self.out.finished:
            self._gone.set()
            self.task.cancel()

    def cut(self) -> None:
        """End it: the server stops."""
        self._cut = True
        self.task.cancel()

    async def cancelled(self) -> None:
        """What is left to do for a client that is gone, which is nothing, or that has to be told that it is over."""
        if self._gone.is_set() or self._cut:
            self.task.uncancel()
        if self._gone.is_set():
            return
        if not self._cut:
            raise asyncio.CancelledError
        await self.refuse(Refused(503, "stopping", STOPPING, RETRY_AFTER))

    async def refuse(self, problem: Refused) -> None:
        """Answer with an error in the provider's shape. An answer that has begun ends with an event that says so, or,
        where it is no stream of events, is left unfinished."""
        api = self._api()
        if self.out.started:
            if self.out.eventful and not self.out.finished:
                await self.out.send(stream_error(api, str(problem)))
                await self.out.finish()
            return
        # Anthropic has a status of its own for having no room.
        if api == "anthropic" and problem.cause == "busy":
            status = 529
        else:
            status = problem.status
        status, named, body = refusal(api, status, str(problem), problem.cause, retry_after=problem.retry_after)
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        headers.append((b"content-length", str(len(body)).encode()))
        whole = self._body is not None and self._body.complete
        if not whole:
            headers.append((b"connection", b"close"))
        await self.out.start(status, headers)
        await self.out.send(body)
        if not whole:
            await (self._body or _unread(self._receive, self._limits)).drain(LINGER)
        await self.out.finish()

    def refused(self, problem: Refused) -> Served:
        """What happened, for metrics and log."""
        return Served(
            api=self._api(),
            path=self._scope["path"],
            how="refused",
            status=self.out.status or problem.status,
            whole=time.perf_counter() - self._began,
            cause=problem.cause,
            why=str(problem),
        )

    def _api(self) -> Api | None:
        scope = self._scope
        names = {name.decode("latin-1") for name in self._headers}
        found = route(scope["method"], scope.get("raw_path") or b"", scope["query_string"], names)
        if found:
            return found.api
        return None


def _unread(receive: Receive, limits: Limits) -> Body:
    """The body of a request that was refused for what its headers say."""
    return Body(receive, limits, {})


async def _lifespan(receive: Receive, send: Send) -> None:
    """Begun and ended by whoever runs the server: there is nothing to do between."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
