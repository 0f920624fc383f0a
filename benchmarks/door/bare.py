"""The pass-through that everybody would write: starlette in front, aiohttp behind, uvicorn as the gateway has it.

    python -m benchmarks.door.bare http://127.0.0.1:PORT        prints its own port

It reads a request to its end, sends it on, and passes the answer back as it comes. That is the least that a proxy of
this make costs, and what the gateway is measured against.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from elision.gateway.http_protocol import KEEP_ALIVE_SECONDS
from elision.gateway.server import BACKLOG, bind_socket

_HOP_BY_HOP = frozenset({"host", "connection", "content-length", "transfer-encoding", "keep-alive", "te", "upgrade"})


def app(upstream: str) -> Starlette:
    """Passes every POST on to `upstream`."""

    async def passed(request: Request) -> StreamingResponse:
        body = await request.body()
        headers = {name: value for name, value in request.headers.items() if name not in _HOP_BY_HOP}
        session: aiohttp.ClientSession = request.app.state.session
        answer = await session.post(upstream + request.url.path, data=body, headers=headers)
        return StreamingResponse(
            chunks(answer),
            answer.status,
            {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP},
        )

    async def chunks(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        async with answer:
            async for chunk in answer.content.iter_any():
                yield chunk

    @asynccontextmanager
    async def pool(made: Starlette) -> AsyncIterator[None]:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as made.state.session:
            yield

    return Starlette(routes=[Route("/{path:path}", passed, methods=["POST"])], lifespan=pool)


async def main(upstream: str) -> None:
    listening = bind_socket("127.0.0.1", 0)
    server = uvicorn.Server(
        uvicorn.Config(
            app(upstream),
            http="httptools",
            ws="none",
            log_config=None,
            log_level="critical",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            backlog=BACKLOG,
        )
    )
    print(listening.getsockname()[1], flush=True)
    await server.serve([listening])


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
