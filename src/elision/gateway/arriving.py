"""A request's body on its way in: read as far as it is taken apart, within its time and with the room that it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from elision.gateway.limits import Limits
from elision.manager.drivers import run_off_loop
from elision.manager.offload import LARGE_BYTES, choose_executor

#: ASGI's way to the client's next message.
Receive: TypeAlias = Callable[[], Awaitable[Any]]


class Gone(Exception):  # noqa: N818 - reads as what it is at the call site
    """The client left before its request was complete."""


class Body:
    """A request's body on its way in. `close` gives back the room that it took.

    length: as the client said, None if it did not.
    """

    def __init__(self, receive: Receive, limits: Limits, headers: Mapping[bytes, bytes]) -> None:
        self._receive = receive
        self._limits = limits
        self.length = limits.measured(headers)
        self._reserved = limits.held(self.length, headers)
        self._held = 0
        self._size = 0
        self.complete = False

    async def read(self) -> bytes:
        """The body, as far as it is not larger than what is taken apart, and has room; `complete` says whether that is
        all of it.

        Raises Refused where it is too large, too slow or without room, Gone where the client left.
        """
        settings = self._limits.settings
        if self._reserved:
            self._held = await self._limits.memory.take(self._reserved)
        parts: list[bytes] = []
        try:
            async with asyncio.timeout(settings.body_seconds):
                while not self.complete and self._size <= settings.max_read_bytes:
                    parts.append(await self._chunk())
                    if self._size > self._held and not await self._has_room():
                        break
        except TimeoutError:
            raise self._limits.too_slow() from None
        # Joining lets go of the interpreter, in whichever thread; and there it holds up nobody.
        join = partial(b"".join, parts)
        if self._size < LARGE_BYTES:
            return join()
        return await run_off_loop(join, choose_executor(self._size))

    async def _has_room(self) -> bool:
        """Take room for what came; whether there was some. Whoever holds room never waits for more: all who do would
        wait for each other. What has no room is passed on unread."""
        memory = self._limits.memory
        more = self._size - self._held
        if self._held:
            taken = memory.take_now(more)
        else:
            taken = await memory.take(more)
        self._held += taken
        return taken > 0

    async def more(self) -> AsyncIterator[bytes]:
        """What is behind that, chunk by chunk."""
        while not self.complete:
            try:
                async with asyncio.timeout(self._limits.settings.body_seconds):
                    chunk = await self._chunk()
            except TimeoutError:
                raise self._limits.too_slow() from None
            if chunk:
                yield chunk

    async def drain(self, seconds: float) -> None:
        """Read what is left to nowhere: a client that still sends would else never read why it was refused."""
        try:
            async with asyncio.timeout(seconds):
                while not self.complete:
                    self.complete = _last(await self._receive())
        except (TimeoutError, Gone):
            return

    def close(self) -> None:
        held = self._held
        self._held = 0
        if held:
            self._limits.memory.give(held)

    async def _chunk(self) -> bytes:
        message = await self._receive()
        self.complete = _last(message)
        chunk: bytes = message.get("body", b"")
        self._size += len(chunk)
        if self._size > self._limits.settings.max_body_bytes:
            raise self._limits.too_large()
        return chunk


def _last(message: Mapping[str, Any]) -> bool:
    if message["type"] != "http.request":
        raise Gone
    return not message.get("more_body", False)
