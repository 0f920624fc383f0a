"""How much is taken on at once: requests, and bytes of them. Whoever finds no room waits, so long and no longer.

Nothing of a request is read while it waits, so its client is slowed down; beyond that it is refused, and told when to
come again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final

from elision.gateway.settings import GatewaySettings

#: Seconds after which whoever was refused for want of room may come again.
RETRY_AFTER: Final = 1.0
#: What a compressed request may grow to, times its size, as far as room is held for it.
_GROWTH: Final = 8


class Refused(Exception):  # noqa: N818 - reads as what it is at the call site
    """A request that is not served; its text is half a sentence.

    status: what it is answered with. cause: one word for metrics and logs. retry_after: seconds, None for never.
    """

    def __init__(self, status: int, cause: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.cause = cause
        self.retry_after = retry_after


class Gate:
    """Room for so much at once, first come first served. `taken` and `waiting`: as it stands.

    waiting: how many may wait. seconds: how long each of them does.
    """

    def __init__(self, room: int, *, waiting: int, seconds: float) -> None:
        self.room = room
        self.taken = 0
        self._most_waiting = waiting
        self._seconds = seconds
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def take(self, amount: int = 1) -> int:
        """Wait for room; what was taken, to be given back: never more than there is in all. Raises Refused."""
        amount = min(amount, self.room)
        if not self._queue and self.taken + amount <= self.room:
            self.taken += amount
            return amount
        if len(self._queue) >= self._most_waiting:
            raise _full("too many requests are waiting already")
        await self._wait(amount)
        return amount

    def take_now(self, amount: int) -> int:
        """`amount`, taken without waiting, before those who wait; 0 where there is no room."""
        if self.taken + amount > self.room:
            return 0
        self.taken += amount
        return amount

    def give(self, amount: int = 1) -> None:
        """Give back what was taken."""
        self.taken -= amount
        self._admit()

    async def _wait(self, amount: int) -> None:
        entry = amount, asyncio.get_running_loop().create_future()
        self._queue.append(entry)
        try:
            async with asyncio.timeout(self._seconds):
                await entry[1]
        except BaseException as error:
            if entry in self._queue:
                self._queue.remove(entry)
                self._admit()
            elif entry[1].done() and not entry[1].cancelled():
                # It was let in at the very moment in which it stopped waiting.
                self.give(amount)
            if isinstance(error, TimeoutError):
                raise _full(f"no room within {self._seconds:g} seconds") from None
            raise

    def _admit(self) -> None:
        while self._queue and self.taken + self._queue[0][0] <= self.room:
            amount, future = self._queue.popleft()
            if not future.done():
                self.taken += amount
                future.set_result(None)


def _full(why: str) -> Refused:
    return Refused(503, "busy", f"it has no room for the request now: {why}", RETRY_AFTER)


class Limits:
    """What one worker takes on. turns: requests being served. memory: bytes of requests that are held."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        waiting = {"waiting": settings.max_waiting, "seconds": settings.wait_seconds}
        self.turns = Gate(settings.max_concurrent, **waiting)  # type: ignore[arg-type]
        self.memory = Gate(settings.memory_bytes, **waiting)  # type: ignore[arg-type]

    def measured(self, headers: Mapping[bytes, bytes]) -> int | None:
        """The length that a request says it has; None if it says none. Raises Refused where that is too much."""
        said = headers.get(b"content-length", b"")
        if not said.isdigit():
            return None
        if int(said) > self.settings.max_body_bytes:
            raise self.too_large()
        return int(said)

    def held(self, length: int | None, headers: Mapping[bytes, bytes]) -> int:
        """Bytes of memory that a request of that length is given from the start."""
        if headers.get(b"content-encoding", b"identity") != b"identity":
            growth = _GROWTH
        else:
            growth = 1
        return min((length or 0) * growth, self.settings.max_read_bytes)

    def too_large(self) -> Refused:
        return Refused(413, "too-large", f"the request is larger than {self.settings.max_body_bytes:,} bytes")

    def too_slow(self) -> Refused:
        why = f"the request was not complete within {self.settings.body_seconds:g} seconds"
        return Refused(408, "slow-request", why)
