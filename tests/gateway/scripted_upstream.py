"""A small upstream on loopback that says, byte for byte, what a test tells it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class ReceivedRequest:
    """A request as its bytes came. connection: counted from 1."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    connection: int

    def get_header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)


@dataclass(slots=True, kw_only=True)
class ScriptedUpstream:
    """url: where it listens. requests: every request so far. connection_lost: set when a client's connection ends."""

    url: str = ""
    requests: list[ReceivedRequest] = field(default_factory=list)
    connections: int = 0
    connection_lost: asyncio.Event = field(default_factory=asyncio.Event)


Script = Callable[[ReceivedRequest, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def run_scripted_upstream(script: Script) -> AsyncIterator[ScriptedUpstream]:
    """Serve: `script` answers each request; connections are kept unless it closes them."""
    told = ScriptedUpstream()
    running: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        told.connections += 1
        number = told.connections
        try:
            while (asked := await _read_request(reader, number)) is not None:
                told.requests.append(asked)
                answering = asyncio.ensure_future(script(asked, writer))
                leaving = asyncio.ensure_future(_has_client_left(reader))
                await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if leaving.done() and leaving.result():
                    answering.cancel()
                    return
                await answering
                leaving.cancel()
                await asyncio.gather(leaving, return_exceptions=True)
                if writer.is_closing():
                    return
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # The trial is over, or its client has gone.
            return
        finally:
            running.discard(task)
            told.connection_lost.set()
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    told.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield told
    finally:
        server.close()
        for task in list(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _has_client_left(reader: asyncio.StreamReader) -> bool:
    """Whether the other end closed, which is waited for without taking a byte of a next request."""
    while not reader.at_eof():
        if reader._buffer:  # type: ignore[attr-defined]
            return False
        try:
            await reader._wait_for_data("left")  # type: ignore[attr-defined]
        except ConnectionError:
            return True
    return True


async def _read_request(reader: asyncio.StreamReader, connection: int) -> ReceivedRequest | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in head[1:] if line)]
    asked = ReceivedRequest(line=head[0], headers=headers, body=b"", connection=connection)
    if asked.get_header("transfer-encoding") == "chunked":
        asked.body = await _read_chunked(reader)
    else:
        asked.body = await reader.readexactly(int(asked.get_header("content-length") or 0))
    return asked


async def _read_chunked(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    await reader.readexactly(2)
    return b"".join(parts)


def render_response(body: bytes, status: str = "200 OK", *fields: str) -> bytes:
    """A whole answer with its length."""
    head = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", *fields, "", ""]
    return "\r\n".join(head).encode("latin-1") + body


def render_chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; of no data, its end."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer_always(raw: bytes | Callable[[ReceivedRequest], bytes], then: str = "") -> Script:
    """A script that answers each request with these bytes. then: `close` the connection, or be `silent`."""

    async def script(asked: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(raw if isinstance(raw, bytes) else raw(asked))
        if then == "close":
            writer.close()
            return
        await writer.drain()
        if then == "silent":
            await asyncio.Event().wait()

    return script
