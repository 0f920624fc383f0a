"""A whole gateway on loopback within the test's own event loop, and a client that speaks bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from elision.gateway.request_record import RequestRecord
from elision.gateway.server import GatewayServer, bind_socket, format_url
from elision.gateway.settings import GatewaySettings, gateway_settings
from elision.gateway.worker import Worker
from elision.providers.provider import Api
from tests.gateway.conversation_bytes import PATHS

NOWHERE = Path("/nowhere")
#: Seconds after which a test that waits has failed; the machine may be busy.
TIMEOUT_SECONDS = 60.0


def make_settings(upstream: str = "none", **given: Any) -> GatewaySettings:
    """Plain passing on to `upstream`, at a free port, unless `given` says otherwise."""
    usual: dict[str, Any] = {
        "gateway_port": 0,
        "gateway_upstream_openai": upstream,
        "gateway_upstream_anthropic": upstream,
        "gateway_upstream_gemini": upstream,
        "gateway_off": True,
        "gateway_log": "none",
        "store": "memory:",
        "tokens": "estimate",
    }
    return gateway_settings({}, NOWHERE, **(usual | given))


@dataclass(slots=True)
class RunningGateway:
    """server: `begin_stop` ends it. ended: done when it has stopped. records: of all requests that are over."""

    worker: Worker
    server: GatewayServer
    ended: asyncio.Future[None]
    url: str
    records: list[RequestRecord] = field(default_factory=list)

    async def connect(self) -> HttpClient:
        return await connect(self.url)

    async def ask(self, body: bytes, *fields: str, api: Api = "openai", path: str = "") -> HttpResponse:
        """Post one request over a connection of its own, to `path` or to the endpoint of `api`."""
        client = await self.connect()
        try:
            return await client.request("POST", path or PATHS[api], body, "content-type: application/json", *fields)
        finally:
            client.close()

    async def wait_until_stored(self) -> None:
        """Wait until what was answered is stored: a client has its response before that."""
        await wait_until(lambda: not any(session.is_busy for session in self.worker.gateway.sessions))


async def connect(url: str) -> HttpClient:
    """A connection to a gateway, wherever it runs."""
    host, port = url.removeprefix("http://").split(":")
    return HttpClient(*await asyncio.wait_for(asyncio.open_connection(host, int(port)), TIMEOUT_SECONDS))


async def wait_until(holds: Callable[[], object]) -> None:
    """Let other tasks and threads continue until it holds."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not holds():
            # A pause of nothing would leave the interpreter to other threads only every few milliseconds.
            await asyncio.sleep(0.001)


@asynccontextmanager
async def run_gateway(found: GatewaySettings) -> AsyncIterator[RunningGateway]:
    """The gateway that `found` describes; it is stopped at the end, unless it is already."""
    records: list[RequestRecord] = []
    worker, up = Worker(found, records.append), asyncio.Event()
    # No test's time limit is for what a process loads once.
    await asyncio.to_thread(worker.warm_up)
    listening = bind_socket(found.host, found.port)
    url = format_url(listening)
    server = GatewayServer(worker, found, up.set)
    ended = asyncio.ensure_future(server.serve([listening]))
    await asyncio.wait({ended, asyncio.ensure_future(up.wait())}, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield RunningGateway(worker, server, ended, url, records)
    finally:
        server.begin_stop()
        await asyncio.wait_for(ended, TIMEOUT_SECONDS)


@dataclass(slots=True)
class HttpResponse:
    """An answer: whole, or as far as it came."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_complete: bool = True

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class HttpClient:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send_request(self, method: str, path: str, body: bytes = b"", *fields: str, length: int | None = None) -> None:
        """A request; length: what it says it has, if that is another than it sends."""
        told = [] if length == -1 else [f"content-length: {len(body) if length is None else length}"]
        named = any(field.lower().startswith("host:") for field in fields)
        head = [f"{method} {path} HTTP/1.1", *([] if named else ["host: 127.0.0.1"]), *told, *fields, "", ""]
        self.writer.write("\r\n".join(head).encode("latin-1") + body)

    async def read_head(self) -> HttpResponse:
        """Status and headers of the next answer."""
        raw = await asyncio.wait_for(self.reader.readuntil(b"\r\n\r\n"), TIMEOUT_SECONDS)
        first, *lines = raw.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        return HttpResponse(int(first.split()[1]), headers, b"")

    async def read_chunk(self) -> bytes:
        """The next chunk of a chunked answer; b"" at its end. Raises IncompleteReadError where it is cut."""
        size = int(await asyncio.wait_for(self.reader.readuntil(b"\r\n"), TIMEOUT_SECONDS), 16)
        data = await asyncio.wait_for(self.reader.readexactly(size + 2), TIMEOUT_SECONDS)
        return data[:-2]

    async def read_response(self) -> HttpResponse:
        """The next answer, to its end or to where it is cut."""
        got = await self.read_head()
        try:
            if got.headers.get("transfer-encoding") == "chunked":
                while part := await self.read_chunk():
                    got.body += part
            else:
                size = int(got.headers.get("content-length", "0"))
                got.body = await asyncio.wait_for(self.reader.readexactly(size), TIMEOUT_SECONDS)
        except asyncio.IncompleteReadError as error:
            got.body, got.is_complete = got.body + error.partial, False
        return got

    async def request(self, method: str, path: str, body: bytes = b"", *fields: str) -> HttpResponse:
        self.send_request(method, path, body, *fields)
        return await self.read_response()

    async def is_closed_by_peer(self) -> bool:
        """Whether the other end closes, waited for; what it still says is dropped."""
        await asyncio.wait_for(self.reader.read(), TIMEOUT_SECONDS)
        return self.reader.at_eof()

    def close(self) -> None:
        self.writer.close()
