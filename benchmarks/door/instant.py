"""A provider that answers at once, in OpenAI's shape: asyncio and httptools, nothing else.

    python -m benchmarks.door.instant        prints the port that it listens at

It says how long a prompt was (a token for every four bytes of the request), and streams where the request asks for
that: `CHUNKS` events, one a millisecond, as a quick model does. A request with the query `hold` is never answered.
"""

from __future__ import annotations

import asyncio
import json
from functools import lru_cache
from typing import Any, Final

import httptools

CHUNKS: Final = 200
#: Seconds from one event of a stream to the next.
PACE: Final = 0.001
#: In a request, at either end: it is answered with so many bytes of text.
_HUGE: Final = b'"user":"huge answer"'
HUGE_BYTES: Final = 8_000_000
#: Without a character that JSON escapes, so nobody waits for this program to encode it.
_HUGE_TEXT: Final = b"word " * (HUGE_BYTES // 5)
_TEXT: Final = b"I will look at the test that fails first."
#: What a request's address ends with that is never answered.
HOLD: Final = "?hold"
_STREAMS: Final = (b'"stream":true', b'"stream": true')
_COMMON: Final = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": "gpt-4.1-2025-04-14"}
_STREAM: Final = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_DONE: Final = b"data: [DONE]\n\n"


@lru_cache(maxsize=16)
def answer(size: int, text: bytes = _TEXT) -> bytes:
    """A whole answer to a request of so many bytes."""
    message = {"role": "assistant", "content": "TEXT", "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    found = {**_COMMON, "object": "chat.completion", "choices": [choice], "usage": _usage(size)}
    body = json.dumps(found).encode().replace(b"TEXT", text)
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


def events(size: int) -> list[bytes]:
    """The events of a streamed one, usage in the last but one."""
    texts = [_event({"delta": {"content": f" word{number}"}, "finish_reason": None}) for number in range(CHUNKS - 3)]
    role = _event({"delta": {"role": "assistant", "content": ""}, "finish_reason": None})
    end = _event({"delta": {}, "finish_reason": "stop"})
    return [role, *texts, end, _event(None, _usage(size)), _DONE]


def _event(choice: dict[str, Any] | None, usage: dict[str, Any] | None = None) -> bytes:
    choices = [] if choice is None else [{"index": 0, "logprobs": None, **choice}]
    found = {**_COMMON, "object": "chat.completion.chunk", "choices": choices, "usage": usage}
    return b"data: " + json.dumps(found).encode() + b"\n\n"


def _usage(size: int) -> dict[str, Any]:
    prompt = size // 4
    return {"prompt_tokens": prompt, "completion_tokens": 10, "total_tokens": prompt + 10}


class Provider(asyncio.Protocol):
    """One connection, kept alive."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser = httptools.HttpRequestParser(self)
        self._parts: list[bytes] = []
        self._is_held = False

    def on_url(self, url: bytes) -> None:
        self._is_held = url.endswith(HOLD.encode())

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        size = sum(map(len, self._parts))
        # The switch stands at either end of what clients and proxies write.
        edges = self._parts[:1] + self._parts[-2:]
        self._parts = []
        if self._is_held:
            return
        if any(mark in part for part in edges for mark in _STREAMS):
            self._transport.write(_STREAM)
            self._next(iter(events(size)))
        elif any(_HUGE in part for part in edges):
            self._transport.write(answer(size, _HUGE_TEXT))
        else:
            self._transport.write(answer(size))

    def _next(self, left: Any) -> None:
        event = next(left, None)
        if event is None:
            self._transport.write(b"0\r\n\r\n")
            return
        self._transport.write(b"%x\r\n%b\r\n" % (len(event), event))
        asyncio.get_running_loop().call_later(PACE, self._next, left)


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Provider, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
