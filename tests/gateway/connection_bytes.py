"""The gateway's side of one connection without sockets: bytes in, and the requests and answers that came of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from elision.gateway.http_protocol import HttpProtocol


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """A request with its whole body. fields: of its head, without trailers."""

    method: str
    target: bytes
    fields: list[tuple[bytes, bytes]]
    body: bytes


@dataclass(slots=True)
class ServedConnection:
    """requests: those whose bodies ended. written: what the client got. is_closed: whether the gateway closed it."""

    requests: list[ServedRequest] = field(default_factory=list)
    written: bytes = b""
    is_closed: bool = False


def serve_bytes(pieces: Sequence[bytes]) -> ServedConnection:
    """Give `pieces` to a connection of their own, one after the other. Each request is answered with an empty 200."""
    with asyncio.Runner() as runner:
        return runner.run(serve_pieces(pieces))


async def serve_pieces(pieces: Sequence[bytes]) -> ServedConnection:
    """Serve them in the running event loop."""
    found = ServedConnection()

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body, more = body + message["body"], message["more_body"]
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        found.requests.append(ServedRequest(scope["method"], target, list(scope["headers"]), body))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(answer, http=HttpProtocol, ws="none", lifespan="off", interface="asgi3", log_config=None)
    state = ServerState()
    protocol = HttpProtocol(config=config, server_state=state, app_state={})
    transport = _Transport(found)
    protocol.connection_made(transport)  # type: ignore[arg-type]
    for piece in pieces:
        if not found.is_closed:
            protocol.data_received(piece)
        await _run_ready_tasks(state)
    was_closed = found.is_closed
    protocol.connection_lost(None)
    await _run_ready_tasks(state)
    found.is_closed = was_closed
    return found


async def _run_ready_tasks(state: ServerState) -> None:
    """Run the tasks of requests until each has ended or waits for bytes: a pass without progress is such a state."""
    for _ in range(4):
        waiting = len(state.tasks)
        await asyncio.sleep(0)
        if not waiting:
            return


class _Transport:
    """What a protocol uses of a transport."""

    def __init__(self, found: ServedConnection) -> None:
        self._found = found

    def write(self, data: bytes) -> None:
        if not self._found.is_closed:
            self._found.written += data

    def close(self) -> None:
        self._found.is_closed = True

    def is_closing(self) -> bool:
        return self._found.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None:
        """Ignore it: the peer sends what it sends."""

    resume_reading = pause_reading
