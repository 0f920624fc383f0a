"""The one seam to providers: a request is sent unchanged, a response is read chunk by chunk. aiohttp.

    async with await upstream.open("POST", url, headers, body) as response:
        async for chunk in response.iter_chunks(): ...

Nothing is decompressed, redirected or stored. A request is sent a second time only where the server closed an idle
connection under it, at once and before a byte of a response. A cancelled call closes its connection.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias
from urllib.request import getproxies, proxy_bypass

from elision.errors import ElisionError, MissingExtra
from elision.gateway.wire import Headers

try:
    import aiohttp
    from yarl import URL
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

#: Why there is no answer, or none to its end.
FailureKind: TypeAlias = Literal[
    "dns", "refused", "tls", "connect", "connect-timeout", "read-timeout", "cut", "malformed"
]
_SessionKind: TypeAlias = Literal["pooled", "fresh", "socket"]
#: Seconds that an idle connection is kept: less than providers keep theirs, so that none is met while it closes.
KEEP_ALIVE_SECONDS: Final = 15.0
#: Seconds behind taking an idle connection up again in which its end is that of idling: a server that had closed it by
#: then says so within a round trip. One that closes later may have been at work on the request, which is a POST: sent
#: again it would be done and billed twice (RFC 9110, 9.2.2: only where the first is known not to have been applied).
REUSE_SECONDS: Final = 0.5
#: Bytes of a body that are handed to the transport at once.
_SLICE_BYTES: Final = 256 * 1024
#: Bytes that one header field of an answer may have.
MAX_FIELD_BYTES: Final = 65_536
#: Where the answer to a handshake is put: aiohttp keeps its fields to itself.
_HANDSHAKES: Final[ContextVar[list[aiohttp.ClientResponse]]] = ContextVar("handshakes")
#: Fields that aiohttp would add of its own.
_AUTOMATIC_HEADERS: Final = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")


class UpstreamError(ElisionError):
    """The provider was not reached, or its response broke off. The text names no credential and no body."""

    def __init__(self, kind: FailureKind, message: str, status: int = 0) -> None:
        """status: of the provider's answer to a handshake that it refused; 0 where there was none."""
        super().__init__(message)
        self.kind: FailureKind = kind
        self.status = status


class UpstreamResponse:
    """A response whose status and headers are there, and whose body arrives. Used with `async with`.

    content_type, content_encoding: "" where absent.
    """

    def __init__(self, response: aiohttp.ClientResponse, place: str) -> None:
        self.status = response.status
        self.headers: Headers = list(response.raw_headers)
        self.content_type = response.headers.get("content-type", "")
        self.content_encoding = response.headers.get("content-encoding", "")
        self.is_event_stream = self.content_type.lower().startswith("text/event-stream")
        self._response = response
        self._place = place

    async def iter_chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives, still compressed if it is. Raises UpstreamError where it breaks off."""
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise _translate_error(error, self._place, begun=True) from error

    async def close(self) -> None:
        """Release the connection for the next request if the body was read to its end, else close it."""
        if self._response.content.at_eof() and self._response.content.exception() is None:
            self._response.release()
        else:
            self._response.close()

    async def __aenter__(self) -> UpstreamResponse:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()


class Upstream:
    """A pool of connections to providers; made and used in one event loop.

    connect_seconds: to connect, DNS and TLS included. read_seconds: from one byte to the next.
    proxy_env: whether HTTPS_PROXY and the like apply.
    """

    def __init__(self, *, connect_seconds: float = 10.0, read_seconds: float = 600.0, proxy_env: bool = False) -> None:
        self.connect_seconds = connect_seconds
        self.read_seconds = read_seconds
        self._proxy_env = proxy_env
        #: Whether the newest request reached its provider; None before there was one.
        self.is_reached: bool | None = None
        self._sessions: dict[_SessionKind, aiohttp.ClientSession] = {}

    async def open(
        self,
        method: str,
        url: str,
        headers: Iterable[tuple[bytes, bytes]] | Mapping[bytes, bytes],
        body: bytes | AsyncIterable[bytes] = b"",
    ) -> UpstreamResponse:
        """Send a request and wait for the head of its response. Raises UpstreamError, and what `body` raises itself.

        url: sent as written, percent signs included. headers: everything that is sent, except `Host` and the length of
        `body`; a `content-length` among them is used where `body` comes in chunks.
        """
        place = _describe_host(url)
        sent = body if isinstance(body, bytes) else _ChunkedBody(body)
        target, used = URL(url, encoded=True), _ConnectionReuse()
        fields = _decode_fields(headers, measured=isinstance(body, bytes))
        if isinstance(body, bytes) and len(body) > _SLICE_BYTES:
            fields.append(("Content-Length", str(len(body))))
        proxy: URL | None = None

        async def send_request(pool: aiohttp.ClientSession) -> aiohttp.ClientResponse:
            return await pool.request(
                method,
                target,
                headers=fields,
                data=_slice_body(sent) if isinstance(sent, bytes) and len(sent) > _SLICE_BYTES else sent or None,
                allow_redirects=False,
                trace_request_ctx=used,
                proxy=proxy,
            )

        try:
            if self._proxy_env:
                proxy = _find_proxy(target)
            try:
                response = await send_request(self._get_session("pooled"))
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                # Servers close what idles whenever they like, often at the moment in which it is used again.
                if not (used.is_recent and isinstance(sent, bytes)):
                    raise
                response = await send_request(self._get_session("fresh"))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(sent, _ChunkedBody) and sent.error is not None:
                raise sent.error from None
            failure = _translate_error(error, place, begun=False)
            self.is_reached = failure.kind not in _UNREACHED_KINDS
            raise failure from error
        self.is_reached = True
        if not 200 <= response.status < 600:
            # Nothing is upgraded here, and HTTP knows no other; no server could say it to a client.
            response.close()
            raise UpstreamError(
                "malformed", _MESSAGES["malformed"].format(place=place, why=f"status {response.status}")
            )
        return UpstreamResponse(response, place)

    async def connect_websocket(
        self, url: str, headers: Headers, protocols: Iterable[str], *, max_bytes: int
    ) -> tuple[aiohttp.ClientWebSocketResponse, Headers]:
        """Open a WebSocket; return it, and the fields of the answer. Raises UpstreamError.

        protocols: that the client offers. max_bytes: of a message that the provider sends.
        """
        target = URL(url, encoded=True)
        answered: list[aiohttp.ClientResponse] = []
        _HANDSHAKES.set(answered)
        try:
            opened = await self._get_session("socket").ws_connect(
                target,
                headers=_decode_fields(headers, measured=True),
                protocols=protocols,
                proxy=_find_proxy(target) if self._proxy_env else None,
                max_msg_size=max_bytes,
            )
        except aiohttp.WSServerHandshakeError as error:
            self.is_reached = True
            why = f"{_describe_host(url)} refused the WebSocket with status {error.status}"
            raise UpstreamError("malformed", why, error.status if error.status >= 400 else 0) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            failure = _translate_error(error, _describe_host(url), begun=False)
            self.is_reached = failure.kind not in _UNREACHED_KINDS
            raise failure from error
        self.is_reached = True
        return opened, list(answered[-1].raw_headers)

    async def close(self) -> None:
        """Close the pool; open responses and WebSockets are cut."""
        while self._sessions:
            _, session = self._sessions.popitem()
            await session.close()

    def _get_session(self, kind: _SessionKind) -> aiohttp.ClientSession:
        """Return the session of a kind, which is made once; the number of connections is limited where requests arrive.

        pooled: keeps connections. fresh: opens a new one for each request, since other idle ones may be closed as well.
        socket: for WebSockets.
        """
        if kind in self._sessions:
            return self._sessions[kind]
        traced = aiohttp.TraceConfig()
        kept: dict[str, Any] = {"force_close": True}
        if kind == "pooled":
            traced.on_connection_reuseconn.append(_note_reuse)
            kept = {"keepalive_timeout": KEEP_ALIVE_SECONDS}
        elif kind == "socket":
            traced.on_request_end.append(_note_response)
        self._sessions[kind] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60, **kept),
            trace_configs=[traced],
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=None,
                connect=self.connect_seconds,
                sock_connect=self.connect_seconds,
                sock_read=self.read_seconds,
            ),
            auto_decompress=False,
            # It would heed ~/.netrc as well, and send what stands there for the client's own credential.
            trust_env=False,
            skip_auto_headers=_AUTOMATIC_HEADERS,
            max_line_size=MAX_FIELD_BYTES,
            max_field_size=MAX_FIELD_BYTES,
        )
        return self._sessions[kind]


@dataclass(slots=True)
class _ConnectionReuse:
    """When a request was sent over a connection that had served one before, monotonic seconds."""

    reused_at: float | None = None

    @property
    def is_recent(self) -> bool:
        return self.reused_at is not None and time.monotonic() - self.reused_at < REUSE_SECONDS


async def _note_reuse(
    session: aiohttp.ClientSession, context: Any, told: aiohttp.TraceConnectionReuseconnParams
) -> None:
    context.trace_request_ctx.reused_at = time.monotonic()


async def _note_response(session: aiohttp.ClientSession, context: Any, told: aiohttp.TraceRequestEndParams) -> None:
    _HANDSHAKES.get().append(told.response)


def _find_proxy(target: URL) -> URL | None:
    """Return the proxy that the environment names for `target`. Raises ValueError where its address is none."""
    named = None if proxy_bypass(target.host or "") else getproxies().get(target.scheme)
    if not named:
        return None
    proxy = URL(named)
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise ValueError(f"no address of a proxy is named for {target.scheme}: write http://HOST:PORT")
    return proxy


async def _slice_body(body: bytes) -> AsyncIterator[memoryview]:
    """Yield a large body in slices: a transport copies what it cannot send at once."""
    view = memoryview(body)
    for start in range(0, len(view), _SLICE_BYTES):
        yield view[start : start + _SLICE_BYTES]
        # A provider that reads as fast as this writes never makes it wait, and others would wait instead.
        await asyncio.sleep(0)


class _ChunkedBody:
    """A body in chunks. error: what its source raised, which is no fault of the provider."""

    def __init__(self, chunks: AsyncIterable[bytes]) -> None:
        self._chunks = chunks
        self.error: Exception | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._chunks:
                yield chunk
        except Exception as error:
            self.error = error
            raise


def _decode_fields(
    headers: Iterable[tuple[bytes, bytes]] | Mapping[bytes, bytes], *, measured: bool
) -> list[tuple[str, str]]:
    """Return the fields as text. measured: the body's length is known, so the client's statement is dropped."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [
        (name.decode("latin-1"), _decode_value(value))
        for name, value in pairs
        if not (measured and name.lower() == b"content-length")
    ]


def _decode_value(value: bytes) -> str:
    # aiohttp writes fields as UTF-8, so what is UTF-8 is sent unchanged.
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _describe_host(url: str) -> str:
    """Return scheme and host of `url`: the parts that are not private."""
    scheme, mark, rest = url.partition("://")
    return f"{scheme}{mark}{rest.partition('/')[0].partition('?')[0].rpartition('@')[2]}"


# -- errors ------------------------------------------------------------------------------------------------------------


def _translate_error(error: Exception, place: str, *, begun: bool) -> UpstreamError:
    kind = _classify_error(error, begun=begun)
    return UpstreamError(kind, _MESSAGES[kind].format(place=place, why=_describe_error(error)))


def _classify_error(error: Exception, *, begun: bool) -> FailureKind:
    if isinstance(error, TimeoutError):
        return "connect-timeout" if isinstance(error, aiohttp.ConnectionTimeoutError) else "read-timeout"
    if getattr(error, "errno", None) == errno.ECONNREFUSED:
        return "refused"
    return next((kind for kinds, kind in _KINDS_BY_CLASS if isinstance(error, kinds)), "cut" if begun else "connect")


#: In the order in which they are asked: an error may be of several classes.
_KINDS_BY_CLASS: Final[tuple[tuple[tuple[type[Exception], ...], FailureKind], ...]] = (
    ((aiohttp.ClientConnectorDNSError,), "dns"),
    ((aiohttp.ClientSSLError, aiohttp.ServerFingerprintMismatch, ssl.SSLError), "tls"),
    ((aiohttp.ClientProxyConnectionError,), "connect"),
    ((aiohttp.ClientConnectorError,), "connect"),
    ((aiohttp.ServerDisconnectedError, aiohttp.ClientPayloadError, ConnectionResetError, BrokenPipeError), "cut"),
    # No connector's, which are asked for above: the connection stood, and was reset.
    ((aiohttp.ClientOSError,), "cut"),
    ((aiohttp.ClientResponseError, aiohttp.InvalidURL, ValueError), "malformed"),
)

#: Those in which there was no connection.
_UNREACHED_KINDS: Final[tuple[FailureKind, ...]] = ("dns", "refused", "tls", "connect", "connect-timeout")
#: What is said of each.
_MESSAGES: Final[dict[FailureKind, str]] = {
    "dns": "the name of {place} is not known: {why}",
    "refused": "nothing listens at {place}",
    "tls": "no TLS connection to {place}: {why}",
    "connect": "no connection to {place}: {why}",
    "connect-timeout": "{place} took too long to connect to",
    "read-timeout": "{place} was silent for too long",
    "cut": "{place} closed the connection before its answer was complete",
    "malformed": "no HTTP exchange with {place}: {why}",
}


def _describe_error(error: Exception) -> str:
    """Return the operating system's or TLS's message, in one line."""
    inner = getattr(error, "os_error", None) or getattr(error, "certificate_error", None) or error
    text = getattr(inner, "strerror", None) or getattr(inner, "message", None) or str(inner) or type(inner).__name__
    return " ".join(str(text).split())[:200]
