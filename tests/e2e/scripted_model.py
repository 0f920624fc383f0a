"""A provider whose model says what a test tells it to, in all three APIs, streamed or not; its requests are checked."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

import msgspec

from elision.providers.provider import Api
from elision.testing.playback import PATHS
from elision.testing.request_checks import find_problems
from tests.providers.streaming.provider_responses import ProviderResponse, ResponsePart, render_raw

Json = dict[str, Any]
RECALL, SEARCH = "elision_recall", "elision_search"
_MARK = re.compile(rb',"cache_control":\{"type":"ephemeral"\}')
HANDLE = re.compile(r"\[(t\d+\.\d+) ")


@dataclass(frozen=True, kw_only=True)
class Call(ResponsePart):
    """A call of any tool."""

    kind: str = "tool"
    tool: str = "bash"
    arguments_given: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        return self.tool

    @property
    def input(self) -> Json:
        return dict(self.arguments_given)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a model."""

    api: Api
    raw: bytes
    body: Json
    headers: dict[str, str]

    @property
    def messages(self) -> list[bytes]:
        """The very bytes of each message or item, but for cache breakpoints, which move."""
        parts = msgspec.json.decode(self.raw, type=dict[str, msgspec.Raw])
        given = parts["input" if self.api == "openai-responses" else "messages"]
        return [_MARK.sub(b"", bytes(each)) for each in msgspec.json.decode(given, type=list[msgspec.Raw])]

    @property
    def handles(self) -> list[str]:
        """Handles that placeholders name, oldest first."""
        texts = b"\n".join(each for each in self.messages if b"_recall" not in each).decode()
        return list(dict.fromkeys(HANDLE.findall(texts)))

    @property
    def tools(self) -> list[str]:
        return [tool.get("name") or tool["function"]["name"] for tool in self.body.get("tools") or ()]


#: What the model says to a request.
Line: TypeAlias = Callable[[Asked], "Sequence[ResponsePart] | tuple[int, Json]"]


@dataclass(slots=True)
class Model:
    """line: says what comes next, an error as (status, body). hold: called before the last piece of an answer."""

    line: Line
    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    hold: Callable[[Asked], None] = lambda asked: None
    #: Tokens of a request's prompt, where they are not the same for all.
    tokens: Callable[[Asked], int] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, asked: Asked) -> tuple[int, bytes]:
        with self._lock:
            self.problems += find_problems(asked.api, asked.body)
            self.asked.append(asked)
            said = self.line(asked)
            number = len(self.asked)
        if isinstance(said, tuple) and said and isinstance(said[0], int):
            return said[0], json.dumps(said[1]).encode()
        answer = ProviderResponse(number=number, parts=tuple(said))  # type: ignore[arg-type]
        if self.tokens is not None:
            answer = replace(answer, counts=(self.tokens(asked), 20, 0, 0, 0))
        return 200, render_raw(asked.api, answer, streamed=bool(asked.body.get("stream")))


@contextmanager
def model(line: Line) -> Iterator[Model]:
    """Serve it on loopback."""
    told = Model(line)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            asked = Asked(PATHS[self.path.partition("?")[0]], body, json.loads(body), headers)
            status, said = told.answer(asked)
            streamed = bool(asked.body.get("stream")) and status == 200
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if streamed else "application/json")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for at in range(0, len(said), 700):
                if at + 700 >= len(said):
                    told.hold(asked)
                self.wfile.write(b"%x\r\n%s\r\n" % (len(said[at : at + 700]), said[at : at + 700]))
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, format: str, *args: Any) -> None:
            """Silent."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    told.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# -- lines ------------------------------------------------------------------------------------------------------------


def text(said: str, id: str = "0") -> ResponsePart:
    return ResponsePart(kind="text", id=id, text=said)


def thought(said: str, id: str = "0") -> ResponsePart:
    return ResponsePart(kind="thinking", id=id, text=said)


def bash(number: object) -> Call:
    return Call(id=f"b{number}", arguments_given=(("command", f"make step-{number}"),))


def recall(handle: str, id: object) -> Call:
    return Call(id=f"r{id}", tool=RECALL, arguments_given=(("handle", handle),))


def search(query: str, id: object) -> Call:
    return Call(id=f"s{id}", tool=SEARCH, arguments_given=(("query", query),))
