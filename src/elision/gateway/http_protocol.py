"""One client's connection: uvicorn's HTTP/1.1 with bounded heads, strict about where a body ends.

Only a WebSocket of the Responses API is an upgrade. Any other request with `Connection: Upgrade` is served as HTTP/1.1,
as RFC 9110 allows: httptools alone would take its body for another protocol, and lose it, or read it as the next
request.
"""

from __future__ import annotations

import asyncio
from asyncio.events import TimerHandle
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from elision.errors import MissingExtra
from elision.gateway.websocket_relay import find_socket_route

try:
    import httptools
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
except ImportError as error:
    raise MissingExtra("the gateway", "gateway") from error

#: Seconds that a client's idle connection is kept: longer than clients keep theirs, so that none meets it closing.
KEEP_ALIVE_SECONDS: Final = 75
#: Seconds and bytes in which the head of a request must be complete.
HEAD_SECONDS: Final = 20.0
HEAD_BYTES: Final = 256 * 1024
#: Versions that are served. httptools reads HTTP/0.9 and HTTP/2.0 in the same form, which no client sends.
_VERSIONS: Final = ("1.0", "1.1")


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Serves one connection that has become a WebSocket. on_close: called when it is closed."""

    def __init__(self, *arguments: Any, on_close: Callable[[], None], **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._on_close = on_close

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_close()


class HttpProtocol(HttpToolsProtocol):
    """Serves one connection. on_close: called when it is closed."""

    def __init__(self, *arguments: Any, on_close: Callable[[], None] = lambda: None, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._on_close = on_close
        self.ws_protocol_class = partial(WebSocketProtocol, on_close=on_close)  # type: ignore[assignment]
        self._in_head = False
        self._head_bytes = 0
        self._head_timer: TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # A new idle connection times out as soon as a used idle one.
        self._head_timer = self.loop.call_later(KEEP_ALIVE_SECONDS, self._handle_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_head_timer()
        super().connection_lost(exc)
        self._on_close()

    def data_received(self, data: bytes) -> None:
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        try:
            self._parse(data)
        except httptools.HttpParserError:
            self._refuse_bytes()
            return
        if not self._in_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES:
            self._refuse_head(b"431 Request Header Fields Too Large")
        elif self._head_bytes == len(data):
            self._cancel_head_timer()
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._handle_timeout)

    def _parse(self, data: bytes | memoryview) -> None:
        """Parse what arrived. Raises HttpParserError."""
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                # It stopped after the head. A view: many small requests in one piece are not copied for each other.
                data = memoryview(data)[upgrade.args[0] :]
                if self._is_socket():
                    self.scope["method"] = "GET"
                    self.handle_websocket_upgrade()
                    if data:
                        self.transport.get_protocol().data_received(bytes(data))  # type: ignore[attr-defined]
                    return
                self._parse_head_again()

    def _is_socket(self) -> bool:
        """Return whether the newest head asks for a WebSocket that is served. Raises HttpParserError."""
        fields = dict(self.headers)
        is_alone = self.cycle is None or self.cycle.response_complete
        if self.parser.get_method() != b"GET" or not is_alone or fields.get(b"upgrade", b"").lower() != b"websocket":
            return False
        if b"sec-websocket-key" not in fields or fields.keys() & {b"content-length", b"transfer-encoding"}:
            return False
        url = httptools.parse_url(self.url)
        return find_socket_route(url.path, url.query or b"") is not None

    def _parse_head_again(self) -> None:
        """Parse the newest head without its `Upgrade`, so that the body after it is read. Raises HttpParserError.

        The fields come from the parser, so how the bytes were split does not matter.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            raise httptools.HttpParserError("this is no tunnel")
        offered = [field for field in self.headers if field[0] == b"upgrade"]
        lines = [b"%b %b HTTP/%b" % (method, self.url, self.parser.get_http_version().encode())]
        lines += [b"%b: %b" % field for field in self.headers if field[0] != b"upgrade"]
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.parser.feed_data(b"\r\n".join([*lines, b"", b""]))
        # The application still sees it: its task begins later.
        self.headers += offered

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers follow the body, and must not be mixed with the fields of the head (RFC 9110, 6.5.1).
        if self._in_head:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._cancel_head_timer()
        self._check_head()
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def _check_head(self) -> None:
        """Raise HttpParserError for what httptools takes and RFC 9112 does not: sections 2.3, 3.2 and 6.1."""
        version = self.parser.get_http_version()
        if version not in _VERSIONS:
            raise httptools.HttpParserError("only HTTP/1.1 and HTTP/1.0 are served")
        names = [name for name, _ in self.headers]
        hosts = names.count(b"host")
        if hosts > 1 or (hosts == 0 and version == "1.1"):
            raise httptools.HttpParserError("a request names its host once")
        if b"transfer-encoding" in names:
            codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
            # Other codings would have to be undone, and httptools undoes none.
            if codings != [b"chunked"]:
                raise httptools.HttpParserError("chunked is the only transfer coding")

    def on_message_complete(self) -> None:
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _refuse_bytes(self) -> None:
        """Answer 400 and close; only close where the client would take the answer for that of another request."""
        cycle = self.cycle
        is_answered = cycle is None or cycle.response_complete
        if is_answered or (cycle.more_body and not cycle.response_started and not self.pipeline):
            self.send_400_response("Invalid HTTP request received.")
        else:
            self.transport.close()

    def _handle_timeout(self) -> None:
        if self._in_head:
            self._refuse_head(b"408 Request Timeout")
        elif not self.transport.is_closing():
            self.transport.close()

    def _refuse_head(self, status: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 " + status + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.transport.close()

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
