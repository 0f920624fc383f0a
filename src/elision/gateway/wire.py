"""One exchange with a client, as values: what came in, and the way back. Between the server and whoever answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

#: Header fields in their order, doubles included. A request's names are in lower case, an answer's as they came.
Headers: TypeAlias = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """A client's request. Its body is `body`, unless it is larger than what is taken apart: then `more` is the rest.

    raw_path:    as it stands in the request line, percent signs included, without the query; `query`: behind the "?".
    client:      the other end's address, "" where there is none.
    received_at: `time.perf_counter()` when the last byte of `body` was there.
    disconnected: set when the client disconnects; whoever serves it is cancelled then.
    """

    method: str
    raw_path: bytes
    query: bytes
    headers: Headers
    body: bytes = field(repr=False)
    rest: AsyncIterator[bytes] | None = field(default=None, repr=False)
    client: str = ""
    received_at: float = field(default_factory=time.perf_counter)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    def header(self, name: bytes) -> bytes | None:
        """The first field of that name, which is in lower case."""
        return next((value for key, value in self.headers if key == name), None)

    def stream_body(self) -> bytes | AsyncIterator[bytes]:
        """The whole body, to be sent on: bytes, or chunks that can be read once."""
        if self.rest is None:
            return self.body
        return _join_chunks(self.body, self.rest)


async def _join_chunks(first: bytes, more: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for chunk in more:
        yield chunk


class ClientReply(Protocol):
    """The way back to the client: `start` once, `send` any number of times, `finish` once.

    Each waits while the client reads slowly. To one that is gone nothing is sent, without an error.
    """

    @property
    def is_started(self) -> bool:
        """Whether status and headers are out: from then on an error can only be an event of the stream, or a cut."""
        ...

    @property
    def can_send_event(self) -> bool:
        """Whether what has begun is a stream of events that one more event can be put into: it stands between two."""
        ...

    async def start(self, status: int, headers: Headers) -> None: ...

    async def send(self, chunk: bytes) -> None: ...

    async def finish(self) -> None: ...


class RequestService(Protocol):
    """Whoever answers requests: the proxy, or a plain pass-through."""

    async def serve(self, request: ClientRequest, reply: ClientReply) -> None:
        """Answer `request`. Raises CancelledError where the client is gone; an answer that is started and not finished
        is cut."""
        ...
