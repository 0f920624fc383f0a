"""A real HTTP server on loopback that plays recorded runs as a provider: every API of the table, streams too.

    with Playback(runs) as server:
        client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="any")

The client may be any program. Which recorded turn answers follows from the request alone (`recorded_run.py`), so
concurrent runs, retries, undos and forks are answered right.
"""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any
from urllib.parse import unquote

from elision.errors import ElisionError, MissingExtra
from elision.providers.gemini.record import read_target
from elision.providers.provider import Api
from elision.testing.exchange import Broken, Cut, Fault, Garbled, ProviderResponse, ReceivedRequest, Refusal, Slow
from elision.testing.recorded_provider import RecordedProvider, Terms
from elision.trajectory.trajectory import Trajectory

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route
    from starlette.types import Receive, Scope, Send
except ImportError as error:
    raise MissingExtra("the playback server", "gateway") from error

#: Where each API is served; Gemini's path names the model.
PATHS: dict[str, Api] = {
    "/v1/chat/completions": "openai",
    "/v1/responses": "openai-responses",
    "/v1/messages": "anthropic",
}
#: Seconds in which the server must be up, and down again.
TIMEOUT_SECONDS = 10.0
#: Seconds that an idle connection is kept: longer than clients keep theirs, as providers do. A request that meets a
#: closing connection is answered by nobody.
KEEP_ALIVE_SECONDS = 75


class Playback:
    """The server. `url` is its address while it runs; used with `with` or `async with`.

    runs:  one run or many. terms: how the provider behaves. faults: what to do to the first requests, in order; None
    leaves one alone. port: 0 takes a free one.
    """

    def __init__(
        self,
        runs: Trajectory | Iterable[Trajectory],
        terms: Terms | None = None,
        *,
        faults: Iterable[Fault | None] = (),
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self.provider = RecordedProvider([runs] if isinstance(runs, Trajectory) else runs, terms)
        self.provider.faults.extend(faults)
        self.app = _build_app(self.provider)
        self._address = (host, port)
        self._running: _RunningServer | None = None

    @property
    def url(self) -> str:
        """Return http://127.0.0.1:PORT. OpenAI clients need `/v1` after it, Anthropic's and Google's do not."""
        if self._running is None:
            raise ElisionError("the playback server is not running; use it in a `with` statement")
        host, port = self._running.address
        return f"http://{host}:{port}"

    @property
    def requests(self) -> list[ReceivedRequest]:
        """Return every request for a completion so far, in the order of arrival."""
        return self.provider.requests

    @property
    def violations(self) -> list[str]:
        """Return what every request so far was refused for, in order; [] if all were sound."""
        return [problem for request in list(self.requests) for problem in request.problems]

    def fail(self, *faults: Fault | None) -> None:
        """Do this to the next requests, in order; None leaves one alone."""
        self.provider.faults.extend(faults)

    def start(self) -> None:
        """Serve, in a thread of its own. Raises ElisionError if the port is taken."""
        self._running = _RunningServer(self.app, self._address)

    def stop(self) -> None:
        """Stop; answers under way are cut."""
        running = self._running
        self._running = None
        if running is not None:
            running.stop()

    def __enter__(self) -> Playback:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> Playback:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)


class _UvicornServer(uvicorn.Server):
    """A server that reports when it is up, leaves signals to the process, and stops at once."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop_requested = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop = asyncio.get_running_loop()
        self.is_up.set()

    async def main_loop(self) -> None:
        while not self._stop_requested.is_set():
            # It sets the headers that every answer has, the date among them.
            await self.on_tick(0)
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._stop_requested.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def request_stop(self) -> None:
        """Ask the server to stop, from another thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stop_requested.set)


class _RunningServer:
    """A server in its thread."""

    def __init__(self, app: Starlette, address: tuple[str, int]) -> None:
        self._socket = _bind_socket(address)
        self.address: tuple[str, int] = self._socket.getsockname()[:2]
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        self._server = _UvicornServer(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="elision-playback", daemon=True
        )
        self._thread.start()
        if not self._server.is_up.wait(TIMEOUT_SECONDS):
            raise ElisionError(f"the playback server did not start within {TIMEOUT_SECONDS:g} seconds")

    def stop(self) -> None:
        self._server.request_stop()
        self._thread.join(TIMEOUT_SECONDS)
        self._socket.close()


def _bind_socket(address: tuple[str, int]) -> socket.socket:
    # asyncio turns off the delay of small packets only where the protocol is named: 40 ms an answer otherwise.
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(address)
    except OSError as error:
        bound.close()
        if error.errno == errno.EADDRINUSE:
            mend = "; choose another port, or 0 for a free one"
        else:
            mend = ""
        raise ElisionError(f"cannot listen at {address[0]}:{address[1]}: {error.strerror}{mend}") from error
    return bound


# -- the application --------------------------------------------------------------------------------------------------


def _build_app(provider: RecordedProvider) -> Starlette:
    async def models(request: Request) -> Response:
        return JSONResponse(provider.list_models(anthropic="anthropic-version" in request.headers))

    async def count(request: Request) -> Response:
        answer = provider.count_tokens(request.headers, await request.body())
        return JSONResponse(answer.body, answer.status)

    async def gemini(request: Request) -> Any:
        path = b"/models/" + request.scope["raw_path"].partition(b"/models/")[2]
        if path.endswith(b":countTokens"):
            answer = provider.count_tokens(request.headers, await request.body(), "gemini")
            return JSONResponse(answer.body, answer.status)
        target = read_target(path, request.url.query.encode())
        if target is None:
            return JSONResponse(Refusal(status=404).build_body("gemini"), 404)
        target = replace(target, model=unquote(target.model))
        return _ResponseSender(*provider.answer_request("gemini", request.headers, await request.body(), target))

    routes = [Route(path, _build_endpoint(provider, api), methods=["POST"]) for path, api in PATHS.items()]
    routes.append(Route("/v1/messages/count_tokens", count, methods=["POST"]))
    routes += [Route(f"/{version}/models/{{target:path}}", gemini, methods=["POST"]) for version in ("v1beta", "v1")]
    routes.append(Route("/v1/models", models, methods=["GET"]))
    return Starlette(routes=routes)


def _build_endpoint(provider: RecordedProvider, api: Api) -> Any:
    async def complete(request: Request) -> _ResponseSender:
        received, answer = provider.answer_request(api, request.headers, await request.body())
        return _ResponseSender(received, answer)

    return complete


class _ResponseSender:
    """An answer on its way, with whatever its fault does to it."""

    def __init__(self, received: ReceivedRequest, answer: ProviderResponse) -> None:
        self.received = received
        self.answer = answer
        self.fault = received.fault

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        disconnected = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            if self.answer.events is None:
                send_it = self._send_body
            else:
                send_it = self._send_events
            await send_it(send, disconnected)
        finally:
            disconnected.cancel()

    async def _send_body(self, send: Send, disconnected: asyncio.Future[None]) -> None:
        """Send a plain body."""
        body = json.dumps(self.answer.body).encode()
        if isinstance(self.fault, Garbled):
            body = body[: len(body) // 2] + b"\xff<html>"
        if not await self._wait_if_slow(disconnected, is_first=True):
            return
        await _send_head(send, self.answer, "application/json", length=len(body))
        if isinstance(self.fault, Cut):
            # uvicorn closes the connection of an answer that is left unfinished.
            await _send_chunk(send, body[: len(body) // 2])
            return
        await self._send_last(send, body)

    async def _send_events(self, send: Send, disconnected: asyncio.Future[None]) -> None:
        """Send events one by one."""
        if not await self._wait_if_slow(disconnected, is_first=True):
            return
        await _send_head(send, self.answer, "text/event-stream; charset=utf-8")
        async for frame in self._make_frames(disconnected):
            await _send_chunk(send, frame)
        if not disconnected.done() and not isinstance(self.fault, Cut):
            await self._send_last(send, b"")

    async def _send_last(self, send: Send, body: bytes) -> None:
        # Said first: a client that has the whole answer may look at once.
        self.received.finished = True
        await send({"type": "http.response.body", "body": body})

    async def _make_frames(self, disconnected: asyncio.Future[None]) -> AsyncIterator[bytes]:
        for number, (name, data) in enumerate(self.answer.events or ()):
            match self.fault:
                case Cut(after=after) if number >= after:
                    return
                case Broken(after=after) if number >= after:
                    yield _format_error_event(self.received.api, self.fault)
                    return
                case Garbled(after=after) if number == after:
                    data = data[: len(data) // 2]
                case _:
                    pass
            if not await self._wait_if_slow(disconnected, is_first=False):
                return
            yield _format_event(name, data)

    async def _wait_if_slow(self, disconnected: asyncio.Future[None], *, is_first: bool) -> bool:
        """Be as slow as asked; whether the client is still there."""
        if isinstance(self.fault, Slow):
            await asyncio.wait({disconnected}, timeout=self.fault.first if is_first else self.fault.each)
        else:
            # Lets the loop look at the connection, so that a client that went away is noticed.
            await asyncio.sleep(0)
        return not disconnected.done()


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_head(send: Send, answer: ProviderResponse, kind: str, length: int | None = None) -> None:
    headers = {**answer.headers, "content-type": kind}
    if length is not None:
        headers["content-length"] = str(length)
    listed = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": listed})


async def _send_chunk(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


def _format_event(name: str, data: str) -> bytes:
    return (f"event: {name}\n" if name else "").encode() + f"data: {data}\n\n".encode()


def _format_error_event(api: Api, fault: Broken) -> bytes:
    """Format the event by which a stream reports that the provider failed midway."""
    refusal = Refusal(status=529, message=fault.message)
    if api == "openai-responses":
        said = {
            "type": "error",
            "code": "server_error",
            "message": refusal.message_text,
            "param": None,
            "sequence_number": 0,
        }
        return _format_event("error", json.dumps(said))
    return _format_event("error" if api == "anthropic" else "", json.dumps(refusal.build_body(api)))
