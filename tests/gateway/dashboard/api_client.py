"""Questions to the dashboard's API, without a server in between."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from starlette.applications import Starlette
from starlette.types import Message

from elision.gateway.dashboard.json_views import encode_key
from elision.gateway.dashboard.pages import make_routes
from elision.stores.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResponse:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class DashboardClient:
    """The routes over a store, asked as ASGI asks them. now: of the dashboard's clock."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.now = 1_700_000_000.0
        self.app = Starlette(routes=make_routes(store, clock=lambda: self.now, **options))

    def get_path(self, path: str, method: str = "GET", **headers: str) -> ApiResponse:
        return asyncio.run(self._send_request(path, method, headers))

    def get_session(self, key: str, query: str = "") -> Any:
        return self.get_path(f"/elision/api/sessions/{encode_key(key)}{query}").json

    async def _send_request(self, path: str, method: str, headers: dict[str, str]) -> ApiResponse:
        plain, _, query = path.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(plain),
            "raw_path": quote(plain, safe="/%").encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return ApiResponse(
            status=sent[0]["status"], headers=found, body=b"".join(each.get("body", b"") for each in sent[1:])
        )
