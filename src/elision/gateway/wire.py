"""One request of a client and its reply, as values: the seam between the server and what serves requests.

Header fields for one connection are dropped, all others pass unchanged: order, case and repetition are kept. A
request's names are in lower case already (ASGI), a response's as the provider wrote them.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
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
    received_at: float = field(default_factory=time.perf_counter)
    disconnected: asyncio.Event = field(default_factory=asyncio.Event, repr=False)
    reserve_decompressed: Callable[[int], bool] = field(default=lambda amount: True, repr=False)

    def header(self, name: bytes) -> bytes | None:
        """Return the first field of that name, which is in lower case."""
        return next((value for key, value in self.headers if key == name), None)

    def stream_body(self) -> bytes | AsyncIterator[bytes]:
        """Return the whole body: bytes, or chunks that can be read once."""
        return self.body if self.rest is None else _join_chunks(self.body, self.rest)


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


# -- header fields ----------------------------------------------------------------------------------------------------

#: For one connection only (RFC 9110, 7.6.1), with what `Connection` names; `Expect` was answered when the body came.
HOP_BY_HOP: Final = frozenset(
    [
        b"connection",
        b"expect",
        b"http2-settings",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authentication-info",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    ]
)
#: What says something of the very bytes of a body.
BODY_FIELDS: Final = frozenset(
    [b"content-length", b"content-encoding", b"content-md5", b"content-digest", b"digest", b"repr-digest", b"etag"]
)
#: A request's `Host` is determined by the provider's address.
_NOT_SENT: Final = HOP_BY_HOP | {b"host"}
#: Ours: said between a client and the gateway, nobody else's business.
_OWN: Final = re.compile(rb"x-elision(?:-|$)")
#: Content codings that are read on the way by.
READABLE_CODINGS: Final = frozenset([b"gzip", b"x-gzip", b"deflate", b"zstd", b"identity"])


def filter_request_fields(headers: Headers, *, is_changed: bool = False, is_read: bool = False) -> Headers:
    """Return a request's fields for the provider, without `Host`, which the address determines.

    is_changed: whether the body was changed: then fields about its bytes are dropped, its length included.
    is_read:    whether the response is read on the way: then unreadable codings are not asked for.
    """
    kept = _drop_fields(headers, _NOT_SENT, is_changed=is_changed)
    return _limit_accept_encoding(kept) if is_read else kept


def filter_response_fields(headers: Headers, *, is_changed: bool = False) -> Headers:
    """Return a response's fields for the client. is_changed: whether its body was changed."""
    return _drop_fields(headers, HOP_BY_HOP, is_changed=is_changed)


def _drop_fields(headers: Headers, names: frozenset[bytes], *, is_changed: bool) -> Headers:
    """Return the fields without those of these names, those that `Connection` names, and our own."""
    named = (value for name, value in headers if name.lower() == b"connection")
    dropped = names.union(
        BODY_FIELDS if is_changed else (), *([part.strip().lower() for part in value.split(b",")] for value in named)
    )
    return [pair for pair in headers if (name := pair[0].lower()) not in dropped and not _OWN.match(name)]


# -- codings ----------------------------------------------------------------------------------------------------------


def _limit_accept_encoding(headers: Headers) -> Headers:
    """Ask only for codings that the gateway can read; for none where the client accepts none of those."""
    asked = [pair for pair in headers if pair[0].lower() == b"accept-encoding"]
    if not asked:
        return headers
    out: Headers = []
    for name, value in headers:
        if name.lower() != b"accept-encoding":
            out.append((name, value))
        elif codings := _keep_readable(value):
            out.append((name, codings))
    if len(out) == len(headers) - len(asked):
        out.append((asked[0][0], b"identity"))
    return out


@lru_cache(maxsize=64)
def _keep_readable(value: bytes) -> bytes:
    """Return `value` unchanged where all of it can be read; "*", which is any coding, becomes one of them."""
    codings = [each.strip() for each in value.split(b",") if each.strip()]
    kept = [each for each in map(_replace_coding, codings) if each]
    if kept == codings:
        return value
    # Each coding once.
    by_name: dict[bytes, bytes] = {}
    for coding in kept:
        by_name.setdefault(coding.partition(b";")[0].strip().lower(), coding)
    return b", ".join(by_name.values())


def _replace_coding(coding: bytes) -> bytes:
    name, mark, weight = coding.partition(b";")
    if name.strip() == b"*" and weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000"):
        return b"gzip" + mark + weight
    if name.strip().lower() in READABLE_CODINGS or name.strip() == b"*":
        return coding
    return b""
