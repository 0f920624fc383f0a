"""One request of a client and its reply, as values: the seam between the server and what serves requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

#: Header fields in their order, doubles included. A request's names are in lower case, an answer's as they came.
Headers: TypeAlias = list[tuple[bytes, bytes]]
#: ASGI's way to send a message to the client.
Send: TypeAlias = Callable[[Any], Awaitable[None]]
#: Answers that have no body, whatever length they state.
_BODILESS_STATUSES: Final = (204, 304)
#: How an event ends in a stream of them.
_EVENT_ENDS: Final = (b"\n\n", b"\n\r\n", b"\r\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """A client's request. Its body is `body`, unless it is larger than what is parsed: then `rest` yields the rest.

    raw_path:     as in the request line, percent signs included, without the query. query: what follows the "?".
    client:       the client's address, "" where there is none.
    received_at:  `time.perf_counter()` when the last byte of `body` arrived.
    disconnected: set when the client disconnects; its handler is cancelled then.
    reserve_decompressed: reserves memory for so many bytes of the decompressed body, and returns whether there was
        room; a negative number releases it.
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
    reserve_decompressed: Callable[[int], bool] = field(default=lambda amount: True, repr=False)

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


class ClientReply:
    """The reply to the client, over ASGI: `start` once, `send` any number of times, `finish` once.

    Each waits while the client reads slowly. After the client has disconnected they do nothing, without an error.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.headers: Headers = []
        self.is_finished = False
        #: The last bytes that were sent.
        self._tail = b""

    @property
    def is_started(self) -> bool:
        return self.status != 0

    @property
    def can_send_event(self) -> bool:
        """Return whether the reply is an event stream that is between two events, so that one more can be sent."""
        found = {name.lower(): value for name, value in self.headers}
        plain = found.get(b"content-encoding", b"identity") == b"identity" and b"content-length" not in found
        between = not self._tail or self._tail.endswith(_EVENT_ENDS)
        return plain and between and found.get(b"content-type", b"").lower().startswith(b"text/event-stream")

    async def start(self, status: int, headers: Headers) -> None:
        if status in _BODILESS_STATUSES:
            headers = [pair for pair in headers if pair[0].lower() != b"content-length"]
        self.status = status
        self.headers = headers
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, chunk: bytes) -> None:
        if chunk:
            self._tail = (self._tail + chunk if len(chunk) < 4 else chunk)[-4:]
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def finish(self) -> None:
        self.is_finished = True
        await self._send({"type": "http.response.body", "body": b""})
