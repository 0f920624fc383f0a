"""Limit what one worker takes on at once: requests, and bytes of them. A request without room waits for a limited time.

Nothing of a request is read while it waits, so its client slows down. After that time it is refused, with a time to
retry.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Final

from elision.gateway.settings import GatewaySettings

#: Seconds after which whoever was refused for want of room may come again.
RETRY_AFTER_SECONDS: Final = 1.0
#: The part of the memory for requests that bodies may take while they are decompressed: others find room meanwhile.
_DECOMPRESSION_SHARE: Final = 0.75


class RequestRefused(Exception):  # noqa: N818 - reads as what it is at the call site
    """A request is not served; the text is half a sentence.

    status: of the reply. cause: one word for metrics and logs. retry_after: seconds, None for never.
    """

    def __init__(self, status: int, cause: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.cause = cause
        self.retry_after = retry_after


class CapacityGate:
    """A capacity that requests share, first come first served. max_waiting: how many may wait. seconds: how long."""

    def __init__(self, capacity: int, *, max_waiting: int, seconds: float) -> None:
        self.capacity = capacity
        self.in_use = 0
        self._max_waiting = max_waiting
        self._seconds = seconds
        self._queue: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def waiting(self) -> int:
        return len(self._queue)

    async def acquire(self, amount: int = 1) -> int:
        """Wait for room; return the amount to release, at most the whole capacity. Raises RequestRefused."""
        amount = min(amount, self.capacity)
        if not self._queue and self.in_use + amount <= self.capacity:
            self.in_use += amount
            return amount
        if len(self._queue) >= self._max_waiting:
            raise _make_busy_refusal("too many requests are waiting already")
        await self._wait_for_room(amount)
        return amount

    def try_acquire(self, amount: int) -> int:
        """Acquire `amount` without waiting, before those who wait; return 0 where there is no room."""
        if self.in_use + amount > self.capacity:
            return 0
        self.in_use += amount
        return amount

    def release(self, amount: int = 1) -> None:
        """Release what was acquired."""
        self.in_use -= amount
        if self._queue:
            self._admit_waiting()

    async def _wait_for_room(self, amount: int) -> None:
        entry = amount, asyncio.get_running_loop().create_future()
        self._queue.append(entry)
        try:
            async with asyncio.timeout(self._seconds):
                await entry[1]
        except BaseException as error:
            if entry in self._queue:
                self._queue.remove(entry)
                self._admit_waiting()
            elif entry[1].done() and not entry[1].cancelled():
                # It was let in at the very moment in which it stopped waiting.
                self.release(amount)
            if isinstance(error, TimeoutError):
                raise _make_busy_refusal(f"no room within {self._seconds:g} seconds") from None
            raise

    def _admit_waiting(self) -> None:
        while self._queue and self.in_use + self._queue[0][0] <= self.capacity:
            amount, future = self._queue.popleft()
            if not future.done():
                self.in_use += amount
                future.set_result(None)


def _make_busy_refusal(why: str) -> RequestRefused:
    return RequestRefused(503, "busy", f"it has no room for the request now: {why}", RETRY_AFTER_SECONDS)


class AdmissionLimits:
    """The limits of one worker. request_gate: requests being served. memory_gate: bytes of requests that are held."""

    def __init__(self, settings: GatewaySettings) -> None:
        self.settings = settings
        waiting, seconds = settings.max_waiting, settings.wait_seconds
        self.request_gate = CapacityGate(settings.max_concurrent, max_waiting=waiting, seconds=seconds)
        self.memory_gate = CapacityGate(settings.memory_bytes, max_waiting=waiting, seconds=seconds)

    def read_content_length(self, headers: Mapping[bytes, bytes]) -> int | None:
        """Return the length that a request states; None without one. Raises RequestRefused where it is too large."""
        length_field = headers.get(b"content-length", b"")
        if not length_field.isdigit():
            return None
        if int(length_field) > self.settings.max_body_bytes:
            raise self.make_too_large()
        return int(length_field)

    def try_acquire_decompressed(self, amount: int) -> bool:
        """Reserve memory for what a body is decompressed to, without waiting; return whether there was room."""
        gate = self.memory_gate
        if gate.in_use + amount > gate.capacity * _DECOMPRESSION_SHARE:
            return False
        return gate.try_acquire(amount) > 0

    def make_too_large(self) -> RequestRefused:
        return RequestRefused(413, "too-large", f"the request is larger than {self.settings.max_body_bytes:,} bytes")

    def make_too_slow(self) -> RequestRefused:
        why = f"the request was not complete within {self.settings.body_seconds:g} seconds"
        return RequestRefused(408, "slow-request", why)
