"""Clients of a gateway: requests as OpenAI's client sends them, over connections that are kept, each timed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any, Final

import httptools

from benchmarks.session import Chat, Message

PATH: Final = "/v1/chat/completions"
MODEL: Final = "gpt-4.1"
#: As OpenAI's client for Python sends them.
_HEADERS: Final = (
    "host: {host}\r\naccept-encoding: gzip, deflate\r\nconnection: keep-alive\r\naccept: application/json\r\n"
    "content-type: application/json\r\nuser-agent: OpenAI/Python 2.44.0\r\nx-stainless-lang: python\r\n"
    "x-stainless-package-version: 2.44.0\r\nx-stainless-os: Linux\r\nx-stainless-arch: x64\r\n"
    "x-stainless-runtime: CPython\r\nx-stainless-runtime-version: 3.12.8\r\nx-stainless-async: false\r\n"
    "authorization: Bearer sk-{key}\r\nx-stainless-retry-count: 0\r\nx-stainless-read-timeout: 600\r\n"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request. first: seconds from its first byte to the answer's first; whole: to its last."""

    first: float
    whole: float


class AskError(Exception):
    """An answer that is none."""


class Connection(asyncio.Protocol):
    """One kept-alive connection; one request at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._transport: asyncio.Transport | None = None

    async def ask(self, key: str, body: bytes) -> Asked:
        """Send `body` under the API key `key`. Raises AskError where the answer is not 200."""
        if self._transport is None or self._transport.is_closing():
            await asyncio.get_running_loop().create_connection(lambda: self, *self._address)
        assert self._transport is not None
        self._done: asyncio.Future[Asked] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._first, self._told = 0.0, bytearray()
        head = _HEADERS.format(host=f"{self._address[0]}:{self._address[1]}", key=key)
        self._began = perf_counter()
        self._transport.write(f"POST {PATH} HTTP/1.1\r\n{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return await self._done

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # -- what asyncio and httptools call ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if hasattr(self, "_done") and not self._done.done():
            self._done.set_exception(AskError("the connection was closed"))

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._first = self._first or perf_counter() - self._began
        if len(self._told) < 500:
            self._told += body

    def on_message_complete(self) -> None:
        whole, status = perf_counter() - self._began, self._parser.get_status_code()
        if status == 200:
            self._done.set_result(Asked(self._first, whole))
        else:
            self._done.set_exception(AskError(f"{status}: {bytes(self._told[:500]).decode(errors='replace')}"))


@dataclass(frozen=True)
class Talk:
    """One agent's session. key: its API key, so that none is taken for another's. head, turns: its messages as JSON."""

    key: str
    head: bytes
    turns: Sequence[bytes]
    tools: bytes

    @cached_property
    def _whole(self) -> tuple[bytes, list[int]]:
        ends, parts = [len(self.head)], [self.head]
        for turn in self.turns:
            parts.append(b"," + turn)
            ends.append(ends[-1] + len(parts[-1]))
        return b"".join(parts), ends

    def body(self, turns: int, *, stream: bool = False) -> bytes:
        """The request with the first `turns` turns, in the order of fields in which OpenAI's client writes them."""
        whole, ends = self._whole
        switch = b',"stream":true,"stream_options":{"include_usage":true}' if stream else b""
        model = json.dumps(MODEL).encode()
        messages = memoryview(whole)[: ends[turns]]
        return b"".join([b'{"messages":[', messages, b'],"model":', model, switch, b',"tools":', self.tools, b"}"])


def talk(key: str, head: Sequence[Message], turns: Sequence[Sequence[Message]], tools: Sequence[Any]) -> Talk:
    """A session of these messages."""
    return Talk(key, _joined(head), [_joined(turn) for turn in turns], _compact(tools))


def talks(found: Chat, count: int, prefix: str) -> list[Talk]:
    """`found`, parted among so many agents of the same system prompt and task; no result in two of them."""
    each = len(found.turns) // count
    parts = [found.turns[number * each : (number + 1) * each] for number in range(count)]
    return [talk(f"{prefix}-{number}", found.head, part, found.tools) for number, part in enumerate(parts)]


def _joined(messages: Sequence[Message]) -> bytes:
    return b",".join(map(_compact, messages))


def _compact(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
