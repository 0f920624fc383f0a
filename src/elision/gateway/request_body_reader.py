"""Read a request's body, up to the size that is parsed, within its time and with the memory that it reserved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from elision.gateway.limits import AdmissionLimits
from elision.manager.drivers import run_off_loop
from elision.manager.offload import LARGE_BYTES, choose_executor
from elision.trajectory.text_pieces import join_pieces

#: ASGI's way to the client's next message.
Receive: TypeAlias = Callable[[], Awaitable[Any]]


class ClientDisconnected(Exception):  # noqa: N818 - reads as what it is at the call site
    """The client left before its request was complete."""


class RequestBodyReader:
    """Reads a request's body. `close` releases the memory that it reserved.

    length: as the client stated, None if it did not.
    """

    def __init__(self, receive: Receive, limits: AdmissionLimits, headers: Mapping[bytes, bytes]) -> None:
        self._receive = receive
        self._limits = limits
        self.length = limits.read_content_length(headers)
        self._reserved_bytes = min(self.length or 0, limits.settings.max_read_bytes)
        self._held_bytes = 0
        self._size = 0
        self.is_complete = False

    async def read(self) -> bytes:
        """Return the body, up to the size that is parsed and has room; `is_complete` says whether that is all of it.

        Raises RequestRefused where it is too large, too slow or without room, ClientDisconnected where the client left.
        """
        settings = self._limits.settings
        if self._reserved_bytes:
            self._held_bytes = await self._limits.memory_gate.acquire(self._reserved_bytes)
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(settings.body_seconds):
                while not self.is_complete and self._size <= settings.max_read_bytes:
                    parts.append(await self._read_chunk())
                    if self._size > self._held_bytes and not await self._reserve_room():
                        break
        except TimeoutError:
            raise self._limits.make_too_slow() from None
        # Beside the event loop only where it takes longer than a change of threads.
        if self._size < LARGE_BYTES:
            return join_pieces(parts)
        return await run_off_loop(partial(join_pieces, parts), choose_executor(self._size))

    async def _reserve_room(self) -> bool:
        """Reserve memory for what arrived; return whether there was some.

        A request that holds memory does not wait for more: all of them would wait for each other. It passes unread.
        """
        memory = self._limits.memory_gate
        more = self._size - self._held_bytes
        if self._held_bytes:
            taken = memory.try_acquire(more)
        else:
            taken = await memory.acquire(more)
        self._held_bytes += taken
        return taken > 0

    def reserve_decompressed(self, amount: int) -> bool:
        """Reserve memory for bytes that the body is decompressed to; release it where `amount` is negative.

        Return whether there was room.
        """
        if amount < 0:
            self._limits.memory_gate.release(-amount)
        elif not self._limits.try_acquire_decompressed(amount):
            return False
        self._held_bytes += amount
        return True

    async def iterate_rest(self) -> AsyncIterator[bytes]:
        """Yield the rest of the body chunk by chunk."""
        while not self.is_complete:
            try:
                async with asyncio.timeout(self._limits.settings.body_seconds):
                    chunk = await self._read_chunk()
            except TimeoutError:
                raise self._limits.make_too_slow() from None
            if chunk:
                yield chunk

    async def drain(self, seconds: float) -> None:
        """Read the rest of the body and drop it: a client that still sends would not read why it was refused."""
        try:
            async with asyncio.timeout(seconds):
                while not self.is_complete:
                    self.is_complete = _is_last_message(await self._receive())
        except (TimeoutError, ClientDisconnected):
            return

    def close(self) -> None:
        held = self._held_bytes
        self._held_bytes = 0
        if held:
            self._limits.memory_gate.release(held)

    async def _read_chunk(self) -> bytes:
        message = await self._receive()
        self.is_complete = _is_last_message(message)
        chunk: bytes = message.get("body", b"")
        self._size += len(chunk)
        if self._size > self._limits.settings.max_body_bytes:
            raise self._limits.make_too_large()
        return chunk


def _is_last_message(message: Mapping[str, Any]) -> bool:
    if message["type"] != "http.request":
        raise ClientDisconnected
    return not message.get("more_body", False)
