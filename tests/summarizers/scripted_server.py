"""A provider on loopback that answers by a script, and keeps every request it got."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

#: Writes an answer to one request by hand.
Reply = Callable[["Handler"], None]


@dataclass
class ScriptedServer:
    """requests: (path, headers in lower case, body) of each, in order."""

    url: str
    script: list[Reply]
    requests: list[tuple[str, dict[str, str], dict[str, Any]]] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.requests]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scripted: ScriptedServer

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.scripted.requests.append((self.path, headers, json.loads(data)))
        self.scripted.script.pop(0)(self)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: some scripts are about clients that disconnect."""


@contextmanager
def serve_script(*script: Reply) -> Iterator[ScriptedServer]:
    """Serve the answers of `script`, one a request, in order."""
    server = _Server(("127.0.0.1", 0), type("Own", (Handler,), {}))
    scripted = ScriptedServer(f"http://127.0.0.1:{server.server_port}", list(script))
    server.RequestHandlerClass.scripted = scripted  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield scripted
    finally:
        scripted.is_over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def reply_raw(status: int, body: bytes, **headers: str) -> Reply:
    def reply(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return reply


def reply_json(value: Any, status: int = 200, **headers: str) -> Reply:
    """Reply with JSON."""
    return reply_raw(status, json.dumps(value).encode(), content_type="application/json", **headers)


def reply_error(status: int, message: str, **headers: str) -> Reply:
    """Reply with an error in the form of both providers."""
    return reply_json({"type": "error", "error": {"type": "some_error", "message": message}}, status, **headers)


def reply_chat(text: str | None, stop: str = "stop", usage: dict[str, Any] | None = None, **message: Any) -> Reply:
    """Reply with a chat completion."""
    used = usage or {
        "prompt_tokens": 900,
        "completion_tokens": 60,
        "prompt_tokens_details": {"cached_tokens": 300},
    }
    choice = {"index": 0, "finish_reason": stop, "message": {"role": "assistant", "content": text, **message}}
    return reply_json({"id": "c", "object": "chat.completion", "choices": [choice], "usage": used})


def reply_claude(text: str, stop: str = "end_turn", **usage: int) -> Reply:
    """Reply with an Anthropic message."""
    used = {"input_tokens": 100, "cache_read_input_tokens": 800, "output_tokens": 60, **usage}
    content = [{"type": "text", "text": text}] if text else []
    return reply_json({"type": "message", "role": "assistant", "content": content, "stop_reason": stop, "usage": used})


def hang(handler: Handler) -> None:
    """Send no answer."""
    handler.scripted.is_over.wait(20)
    handler.close_connection = True


def reset_connection(handler: Handler) -> None:
    """Close the connection without an answer."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def send_half(handler: Handler) -> None:
    """Close the connection in the middle of the answer."""
    handler.send_response(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"choices": [')
    handler.close_connection = True


def drip(handler: Handler) -> None:
    """Send a byte now and then, as long as the client reads."""
    handler.send_response(200)
    handler.send_header("content-length", "100000")
    handler.end_headers()
    while not handler.scripted.is_over.wait(0.02):
        handler.wfile.write(b" ")
        handler.wfile.flush()


def flood(handler: Handler) -> None:
    """Send the beginning of ten megabytes."""
    handler.send_response(200)
    handler.send_header("content-length", str(10_000_000))
    handler.end_headers()
    for _ in range(160):
        handler.wfile.write(b"x" * 62_500)
