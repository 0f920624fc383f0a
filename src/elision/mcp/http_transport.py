"""`elision mcp --http`: the server on a socket, without state between requests, behind a token where one is set."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

import uvicorn
from mcp.server import MCPServer

_Message: TypeAlias = MutableMapping[str, Any]
_Receive: TypeAlias = Callable[[], Awaitable[_Message]]
_Send: TypeAlias = Callable[[_Message], Awaitable[None]]
_Application: TypeAlias = Callable[[_Message, _Receive, _Send], Awaitable[None]]

PATH = "/mcp"


class TokenCheck:
    """An ASGI application that passes on requests with `Authorization: Bearer TOKEN`, and refuses others with 401."""

    def __init__(self, application: _Application, token: str) -> None:
        self._application = application
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: _Message, receive: _Receive, send: _Send) -> None:
        if scope["type"] == "http" and not self._is_allowed(scope):
            headers = [(b"content-type", b"text/plain"), (b"www-authenticate", b"Bearer")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b"elision mcp: give the token: Authorization: Bearer\n"})
            return
        await self._application(scope, receive, send)

    def _is_allowed(self, scope: _Message) -> bool:
        given = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(given) == 1 and hmac.compare_digest(given[0], self._expected)


class AnnouncedServer(uvicorn.Server):
    """A server that reports the port that it listens on, once it does."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[int], None]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce(self.servers[0].sockets[0].getsockname()[1])


def serve_http(server: MCPServer[Any], host: str, port: int, token: str, announce: Callable[[int], None]) -> None:
    """Serve until SIGINT or SIGTERM. port: 0 for a free one. token: that requests must carry; "" for none.

    A loopback host answers requests to loopback names alone, so that no web page reaches it by a name of its own.
    """
    application: _Application = server.streamable_http_app(
        streamable_http_path=PATH, json_response=True, stateless_http=True, host=host
    )
    if token:
        application = TokenCheck(application, token)
    config = uvicorn.Config(application, host=host, port=port, log_level="warning", access_log=False)
    AnnouncedServer(config, announce).run()
