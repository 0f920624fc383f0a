"""One request of a client and its reply, as values: the seam between the server and what serves requests."""

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
    """A client's request. Its body is `body`, unless it is larger than what is parsed: then `rest` yields the rest.

    raw_path:     as in the request line, percent signs included, without the query. query: what follows the "?".
    client:       the client's address, "" where there is none.
    received_at:  `time.perf_counter()` when the last byte of `body` arrived.
    disconnected: set when the client disconnects; its handler is cancelled then.
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
        """Return the first field of that name, which is in lower case."""
        return next((value for key, value in self.headers if key == name), None)

    def stream_body(self) -> bytes | AsyncIterator[bytes]:
        """Return the whole body: bytes, or chunks that can be read once."""
        if self.rest is None:
            return self.body
        return _join_chunks(self.body, self.rest)


async def _join_chunks(first: bytes, more: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    if first:
        yield first
    async for chunk in more:
        yield chunk


class ClientReply(Protocol):
    """The reply to the client: `start` once, `send` any number of times, `finish` once.

    Each waits while the client reads slowly. After the client has disconnected they do nothing, without an error.
    """

    @property
    def is_started(self) -> bool:
        """Return whether status and headers are sent: then an error can only be an event, or a cut."""
        ...

    @property
    def can_send_event(self) -> bool:
        """Return whether the reply is an event stream that is between two events, so that one more can be sent."""
        ...

    async def start(self, status: int, headers: Headers) -> None: ...

    async def send(self, chunk: bytes) -> None: ...

    async def finish(self) -> None: ...


class RequestService(Protocol):
    """Serves requests: the proxy, or a plain pass-through."""

    async def serve(self, request: ClientRequest, reply: ClientReply) -> None:
        """Serve `request`. Raises CancelledError where the client disconnects; an unfinished reply is cut."""
        ...
