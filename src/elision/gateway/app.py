"""The gateway as an ASGI application: requests for a provider go to the proxy, its own pages to the admin side.

    scope -> own path? -> admin
          -> room, body in time -> proxy -> reply

No framework on that path: a request for a provider is read, passed on, and answered chunk by chunk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any, Final, TypeAlias

from elision.gateway.body_reader import ClientDisconnected, Receive, RequestBodyReader
from elision.gateway.limits import RETRY_AFTER_SECONDS, AdmissionLimits, RequestRefused
from elision.gateway.proxy import Proxy
from elision.gateway.reply_writer import make_error_response, make_stream_error
from elision.gateway.request_record import RequestListener, RequestRecord
from elision.gateway.routes import find_route
from elision.gateway.settings import GatewaySettings
from elision.gateway.websocket_relay import WebSocketRelays
from elision.gateway.wire import ClientReply, ClientRequest, Send
from elision.providers.provider import Api
from elision.providers.provider_table import PROVIDERS

_log: Final = logging.getLogger("elision.gateway")

Scope: TypeAlias = Any
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Paths that are ours: these, and what stands below the folder.
OWN_PATHS: Final = ("/", "/favicon.ico", "/metrics", "/healthz", "/readyz", "/elision")
OWN_FOLDER: Final = "/elision/"
#: Seconds for which a client that was refused may go on sending; it would else never read why.
LINGER_SECONDS: Final = 2.0
#: What is said to a client whose answer is cut because the gateway stops.
STOP_MESSAGE: Final = "it is shutting down"


class GatewayApp:
    """The ASGI application; see the module.

    service: serves requests for providers. make_admin: makes the gateway's own pages, when one is asked for.
    listener: gets records of requests that did not reach `service`. sockets: serves WebSockets.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        service: Proxy,
        make_admin: Callable[[], Asgi],
        listener: RequestListener,
        sockets: WebSocketRelays,
    ) -> None:
        self.limits = AdmissionLimits(settings)
        #: Set when the server begins to stop: readiness says so.
        self.is_draining = False
        self._service = service
        self._make_admin = make_admin
        self._listener = listener
        self._sockets = sockets
        self._exchanges: set[_ClientExchange] = set()
        self._idle = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._sockets.serve(scope, receive, send)
        elif scope["path"] in OWN_PATHS or scope["path"].startswith(OWN_FOLDER):
            await self.admin(scope, receive, send)
        else:
            await self._handle_proxied(scope, receive, send)

    @cached_property
    def admin(self) -> Asgi:
        """Return the gateway's own pages."""
        return self._make_admin()

    @property
    def in_flight(self) -> int:
        """Return how many responses are not complete yet."""
        return len(self._exchanges)

    async def drain(self, seconds: float) -> int:
        """Wait at most so many seconds for open responses; cut the others with an error, and return their count."""
        cut_sockets, cut_responses = await asyncio.gather(self._sockets.drain(seconds), self._drain_responses(seconds))
        return cut_sockets + cut_responses

    async def _drain_responses(self, seconds: float) -> int:
        if self._exchanges:
            self._idle.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._idle.wait()
            except TimeoutError:
                pass
        left = list(self._exchanges)
        for exchange in left:
            exchange.cut_off()
        if left:
            await asyncio.wait({exchange.task for exchange in left}, timeout=LINGER_SECONDS)
        return len(left)

    async def _handle_proxied(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange = _ClientExchange(scope, receive, send, self.limits)
        self._exchanges.add(exchange)
        try:
            await self._serve_exchange(exchange)
        except Exception:
            # The server closes the connection then, and it has no log of its own: the client alone would know.
            _log.exception("a reply could not be completed: its connection is closed")
            raise
        finally:
            self._exchanges.discard(exchange)
            if not self._exchanges:
                self._idle.set()

    async def _serve_exchange(self, exchange: _ClientExchange) -> None:
        try:
            await exchange.serve_with(self._service)
        except RequestRefused as error:
            self._listener(exchange.make_record(error))
            await exchange.refuse(error)
        except ClientDisconnected:
            self._listener(
                exchange.make_record(
                    RequestRefused(0, "client-gone", "the client left before its request was complete")
                )
            )
        except asyncio.CancelledError:
            await exchange.handle_cancel()
        except Exception as error:  # noqa: BLE001
            # The last boundary: what gets here is a bug, and the client still hears of it in its provider's shape.
            _log.exception("a request could not be served")
            problem = RequestRefused(500, "bug", f"it failed with {type(error).__name__}")
            self._listener(exchange.make_record(problem))
            await exchange.refuse(problem)


class _ClientExchange:
    """One request and its response. Compared by identity."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limits: AdmissionLimits) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.task, self.reply = task, ClientReply(send)
        self._scope = scope
        self._receive = receive
        self._limits = limits
        self._headers: Mapping[bytes, bytes] = dict(reversed(scope["headers"]))
        self._began = time.perf_counter()
        self._disconnected = asyncio.Event()
        self._is_cut_off = False
        self._body: RequestBodyReader | None = None
        self._watch_task: asyncio.Task[None] | None = None

    async def serve_with(self, service: Proxy) -> None:
        """Serve it. Raises RequestRefused and ClientDisconnected, and CancelledError where it is cancelled."""
        self._body = RequestBodyReader(self._receive, self._limits, self._headers)
        await self._limits.request_gate.acquire()
        try:
            await service.serve(await self._read_request(self._body), self.reply)
        finally:
            self._limits.request_gate.release()
            self._body.close()
            if self._watch_task is not None:
                self._watch_task.cancel()
                # Its cancellation refers to this exchange: together they would stay until a look for garbage.
                self._watch_task = None

    async def _read_request(self, body: RequestBodyReader) -> ClientRequest:
        scope = self._scope
        raw = await body.read()
        if body.is_complete:
            self._watch_task = asyncio.ensure_future(self._watch_client())
        return ClientRequest(
            method=scope["method"],
            raw_path=scope.get("raw_path") or scope["path"].encode("latin-1", "replace"),
            query=scope["query_string"],
            headers=list(scope["headers"]),
            body=raw,
            rest=None if body.is_complete else body.iterate_rest(),
            received_at=time.perf_counter(),
            disconnected=self._disconnected,
            reserve_decompressed=body.reserve_decompressed,
        )

    async def _watch_client(self) -> None:
        """Cancel the request when the client disconnects."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # ASGI says the same of a client that has its whole answer.
        if not self.reply.is_finished:
            self._disconnected.set()
            self.task.cancel()

    def cut_off(self) -> None:
        """End it, since the server stops."""
        self._is_cut_off = True
        self.task.cancel()

    async def handle_cancel(self) -> None:
        """Tell the client that the server stops; do nothing where the client has disconnected."""
        if self._disconnected.is_set() or self._is_cut_off:
            self.task.uncancel()
        if self._disconnected.is_set():
            return
        if not self._is_cut_off:
            raise asyncio.CancelledError
        await self.refuse(RequestRefused(503, "stopping", STOP_MESSAGE, RETRY_AFTER_SECONDS))

    async def refuse(self, problem: RequestRefused) -> None:
        """Reply with an error in the provider's format.

        A reply that has begun ends with an error event; where it is no event stream, it is left unfinished.
        """
        api = self._find_api()
        if self.reply.is_started:
            if self.reply.can_send_event and not self.reply.is_finished:
                await self.reply.send(make_stream_error(api, str(problem)))
                await self.reply.finish()
            return
        if api is not None and problem.cause == "busy":
            status = PROVIDERS[api].host.busy_status
        else:
            status = problem.status
        status, named, body = make_error_response(
            api, status, str(problem), problem.cause, retry_after=problem.retry_after
        )
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        headers.append((b"content-length", str(len(body)).encode()))
        whole = self._body is not None and self._body.is_complete
        if not whole:
            headers.append((b"connection", b"close"))
        await self.reply.start(status, headers)
        await self.reply.send(body)
        if not whole:
            # Without a body here, it was refused for its headers.
            rest = self._body or RequestBodyReader(self._receive, self._limits, {})
            await rest.drain(LINGER_SECONDS)
        await self.reply.finish()

    def make_record(self, problem: RequestRefused) -> RequestRecord:
        """Return the record of the request, for metrics and log."""
        return RequestRecord(
            api=self._find_api(),
            path=self._scope["path"],
            how="refused",
            status=self.reply.status or problem.status,
            total_seconds=time.perf_counter() - self._began,
            cause=problem.cause,
            why=str(problem),
        )

    def _find_api(self) -> Api | None:
        scope = self._scope
        names = {name.decode("latin-1") for name in self._headers}
        found = find_route(scope["method"], scope.get("raw_path") or b"", scope["query_string"], names)
        return found.api if found else None
