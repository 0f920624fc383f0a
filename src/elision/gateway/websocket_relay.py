"""WebSockets of the Responses API: every message passes as it is, and each response is metered and limited.

    client <-> uvicorn <-> relay <-> aiohttp <-> provider

A `response.create` counts as a request, its `response.completed` has what it cost. Nothing is hidden in a socket: the
provider holds the history there. Beyond a limit the client gets an `error` event, and its message is not sent.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from elision.errors import DialectError, LimitError, MissingExtra
from elision.gateway.budgets import Budgets
from elision.gateway.identity import derive_namespace
from elision.gateway.limits import RETRY_AFTER_SECONDS, RequestRefused
from elision.gateway.reply_writer import make_error_response
from elision.gateway.request_record import RequestListener, RequestRecord
from elision.gateway.routes import Route, build_url, find_route
from elision.gateway.settings import GatewaySettings
from elision.gateway.upstream import Upstream, UpstreamError
from elision.gateway.wire import Headers, Send, filter_request_fields, filter_response_fields
from elision.manager.agent_call import find_usage
from elision.providers.provider import Api

try:
    from aiohttp import ClientError, ClientWebSocketResponse, WSMsgType
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

if TYPE_CHECKING:
    from elision.gateway.body_reader import Receive

_log: Final = logging.getLogger("elision.gateway")

_API: Final[Api] = "openai-responses"
#: Events that end a response.
_LAST_EVENTS: Final = ("response.completed", "response.incomplete", "response.failed", "error")
#: Codes that say how a connection ended and are never sent (RFC 6455, 7.4.1).
_UNSENDABLE: Final = (1004, 1005, 1006, 1015)
_GOING_AWAY: Final = 1001
_BROKEN: Final = 1011
_HANDSHAKE: Final = b"sec-websocket-"


class _Event(msgspec.Struct, gc=False):
    type: str = ""
    model: str = ""
    stream_id: str = ""


_EVENTS: Final = msgspec.json.Decoder(_Event)


def find_socket_route(raw_path: bytes, query: bytes) -> Route | None:
    """Return where a WebSocket at this path goes; None where none is served."""
    route = find_route("POST", raw_path, query, ())
    return route if route is not None and route.api == _API and route.kind == "complete" else None


class WebSocketRelays:
    """All relays of one worker. secret: of API-key hashes. listener: gets the record of every response."""

    def __init__(
        self, settings: GatewaySettings, secret: bytes, upstream: Upstream, budgets: Budgets, listener: RequestListener
    ) -> None:
        self._settings = settings
        self._secret = secret
        self._upstream = upstream
        self._budgets = budgets
        self._listener = listener
        self._relays: set[_Relay] = set()
        self._is_draining = False

    async def serve(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one socket, from its handshake to its end."""
        await receive()
        headers: Headers = [pair for pair in scope["headers"] if not pair[0].startswith(_HANDSHAKE)]
        try:
            provider, said = await self._connect(scope, headers)
        except (RequestRefused, UpstreamError) as error:
            await self._deny(error, scope["path"], send)
            return
        is_off = self._settings.off or dict(headers).get(b"x-elision", b"").strip().lower() == b"off"
        by_name = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        namespace = derive_namespace(by_name, scope["query_string"], self._secret)
        check = None if is_off else partial(self._budgets.check_key, namespace, is_logged=False)
        relay = _Relay(scope["path"], receive, send, provider, check, self._report_record)
        self._relays.add(relay)
        if self._is_draining:
            relay.end_when_idle()
        kept = [pair for pair in filter_response_fields(said) if not pair[0].lower().startswith(_HANDSHAKE)]
        try:
            await send({"type": "websocket.accept", "subprotocol": provider.protocol, "headers": kept})
            await relay.run()
        finally:
            self._relays.discard(relay)
            await provider.close()

    async def _connect(self, scope: Any, headers: Headers) -> tuple[ClientWebSocketResponse, Headers]:
        """Open the provider's socket; return it, and the fields of its answer. Raises RequestRefused, UpstreamError."""
        route = find_socket_route(scope["raw_path"], scope["query_string"])
        base = self._settings.upstreams.get(route.upstream) if route is not None else None
        if route is None or base is None:
            raise RequestRefused(404, "not-found", "no provider is configured for this path")
        if self._is_draining or len(self._relays) >= self._settings.max_concurrent:
            raise RequestRefused(503, "busy", "it takes no further WebSocket now", RETRY_AFTER_SECONDS)
        return await self._upstream.connect_websocket(
            build_url(base, route),
            filter_request_fields(headers),
            scope["subprotocols"],
            max_bytes=self._settings.max_body_bytes,
        )

    async def drain(self, seconds: float) -> int:
        """End sockets that are idle, and others with their responses; cut the rest after so many seconds, and return
        their count."""
        self._is_draining = True
        for relay in self._relays:
            relay.end_when_idle()
        ended = [asyncio.ensure_future(relay.ended.wait()) for relay in self._relays]
        if not ended:
            return 0
        _, late = await asyncio.wait(ended, timeout=seconds)
        for each in late:
            each.cancel()
        left = list(self._relays)
        for relay in left:
            relay.cut_off()
        return len(left)

    def _report_record(self, record: RequestRecord) -> None:
        self._budgets.settle(record)
        self._listener(record)

    async def _deny(self, error: RequestRefused | UpstreamError, path: str, send: Send) -> None:
        """Answer a handshake with an error in the provider's format."""
        if isinstance(error, RequestRefused):
            status, cause, retry_after = error.status, error.cause, error.retry_after
        else:
            status, cause, retry_after = error.status or 502, error.kind, None
        status, named, body = make_error_response(_API, status, str(error), cause, retry_after=retry_after)
        fields = [(name.encode(), value.encode()) for name, value in named.items()]
        self._listener(RequestRecord(api=_API, path=path, how="refused", status=status, cause=cause, why=str(error)))
        await send({"type": "websocket.http.response.start", "status": status, "headers": fields})
        await send({"type": "websocket.http.response.body", "body": body})


class _Relay:
    """One open socket. check: asked before each response; None where the gateway is switched off for it."""

    def __init__(
        self,
        path: str,
        receive: Receive,
        send: Send,
        provider: ClientWebSocketResponse,
        check: Any,
        report: RequestListener,
    ) -> None:
        self.ended = asyncio.Event()
        self._path = path
        self._receive = receive
        self._send = send
        self._provider = provider
        self._check = check
        self._report = report
        #: Responses that are not complete: by stream, the oldest first.
        self._open: dict[str, deque[tuple[float, RequestRecord]]] = {}
        self._is_ending = False
        self._is_cut = False
        self._is_client_gone = False
        self._idle = asyncio.Event()
        #: Why the provider ended the socket.
        self._reason = ""

    def end_when_idle(self) -> None:
        """End the socket as soon as no response is under way in it."""
        self._is_ending = True
        if not any(self._open.values()):
            self._idle.set()

    def cut_off(self) -> None:
        """End it now."""
        self._is_cut = True
        self._idle.set()

    async def run(self) -> None:
        """Relay until one side ends, or the gateway stops."""
        waiting: set[asyncio.Future[Any]] = {
            asyncio.ensure_future(self._relay_client()),
            asyncio.ensure_future(self._relay_provider()),
            asyncio.ensure_future(self._idle.wait()),
        }
        cause: Literal["client-gone", "cut", "stopping"] = "cut"
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            if self._is_client_gone:
                cause = "client-gone"
            elif self._idle.is_set():
                cause = "stopping"
                if self._is_cut and any(self._open.values()):
                    await self._send_error(503, "stopping", "it is shutting down", None)
                await self._close_client(_GOING_AWAY, "the gateway stops")
            else:
                await self._close_client(self._provider.close_code or _BROKEN, self._reason)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.wait(waiting)
            for opened in self._open.values():
                for began, record in opened:
                    self._finish_record(began, record, cause)
            self.ended.set()

    async def _relay_client(self) -> None:
        """Send what the client sends, until one of both is gone."""
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self._is_client_gone = True
                code = message.get("code") or 1000
                reason = str(message.get("reason") or "").encode()
                await self._provider.close(code=1000 if code in _UNSENDABLE else code, message=reason)
                return
            text = message.get("text")
            if text is not None and not await self._admit(text):
                continue
            try:
                await (self._provider.send_bytes(message["bytes"]) if text is None else self._provider.send_str(text))
            except (OSError, ClientError):
                return

    async def _relay_provider(self) -> None:
        """Send what the provider sends, until one of both is gone."""
        while True:
            message = await self._provider.receive()
            if message.type is WSMsgType.TEXT:
                told = {"type": "websocket.send", "text": message.data}
            elif message.type is WSMsgType.BINARY:
                told = {"type": "websocket.send", "bytes": message.data}
            else:
                self._reason = str(message.extra or "") if message.type is WSMsgType.CLOSE else "the provider is gone"
                return
            try:
                await self._send(told)
            except OSError:
                self._is_client_gone = True
                return
            if message.type is WSMsgType.TEXT:
                self._note_event(message.data)

    async def _close_client(self, code: int, reason: str) -> None:
        # It may be gone as well.
        with suppress(OSError):
            await self._send(
                {"type": "websocket.close", "code": 1000 if code in _UNSENDABLE else code, "reason": reason}
            )

    async def _admit(self, text: str) -> bool:
        """Return whether a client's message is sent; meter it where it begins a response."""
        event = _decode_event(text)
        if event is None or event.type != "response.create":
            return True
        size = len(text.encode())
        record = RequestRecord(
            api=_API, path=self._path, model=event.model, is_stream=True, status=200, bytes_in=size, bytes_up=size
        )
        try:
            if self._check is not None:
                record.reached_limit = await self._check(record=record)
        except LimitError as error:
            return await self._refuse(record, event, RequestRefused(429, "limit", str(error)))
        except RequestRefused as error:
            return await self._refuse(record, event, error)
        except Exception:  # noqa: BLE001 - the boundary of I9: whatever of ours fails, the client's message passes
            _log.exception("what its key has spent failed, a WebSocket's request continues without it")
        record.rounds = 1
        self._open.setdefault(event.stream_id, deque()).append((time.perf_counter(), record))
        return True

    async def _refuse(self, record: RequestRecord, event: _Event, problem: RequestRefused) -> bool:
        record.how, record.status, record.cause, record.why = "refused", problem.status, problem.cause, str(problem)
        await self._send_error(problem.status, problem.cause, str(problem), problem.retry_after, event.stream_id)
        self._report(record)
        return False

    def _note_event(self, text: str) -> None:
        event = _decode_event(text)
        opened = self._open.get(event.stream_id) if event is not None else None
        if event is None or not opened:
            return
        began, record = opened[0]
        record.first_byte_seconds = record.first_byte_seconds or time.perf_counter() - began
        record.bytes_out += len(text)
        if event.type not in _LAST_EVENTS:
            return
        opened.popleft()
        try:
            found: Mapping[str, Any] = json.loads(text)
            response = found.get("response")
            if isinstance(response, dict):
                record.usage = find_usage(response)
                record.model = record.model or str(response.get("model") or "")
        except (ValueError, DialectError):
            _log.warning("the usage of a WebSocket's response could not be read")
        record.is_complete = event.type in ("response.completed", "response.incomplete")
        self._finish_record(began, record, "" if record.is_complete else "rejected")
        if self._is_ending and not any(self._open.values()):
            self._idle.set()

    def _finish_record(self, began: float, record: RequestRecord, cause: str) -> None:
        record.total_seconds = time.perf_counter() - began
        record.cause = cause
        self._report(record)

    async def _send_error(
        self, status: int, cause: str, why: str, retry_after: float | None, stream_id: str = ""
    ) -> None:
        """Send an `error` event, as the provider's WebSockets have it."""
        _, _, body = make_error_response(_API, status, why, cause, retry_after=retry_after)
        told: dict[str, Any] = {"type": "error", "status": status, **json.loads(body)}
        if stream_id:
            told["stream_id"] = stream_id
        with suppress(OSError):
            await self._send({"type": "websocket.send", "text": json.dumps(told)})


def _decode_event(text: str) -> _Event | None:
    try:
        return _EVENTS.decode(text)
    except msgspec.MsgspecError:
        return None
