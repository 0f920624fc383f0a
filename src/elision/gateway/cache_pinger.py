"""Keep the cache entries of a session alive in a pause: its newest request again, with one token of output.

Off by default. The planner says how many pings a pause may have (docs/concepts/lifetimes.md). They end with the
session's next request, at shutdown, and where the provider refuses one. The client's key is in memory until then, as
part of the request, and nowhere else. A ping that was sent is billed, so its response is read to its end whatever comes
meanwhile; one that shutdown cuts off is not counted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from elision.gateway.live_sessions import LiveSession
from elision.gateway.ping_record import PingListener, PingRecord
from elision.gateway.response_observer import ResponseObserver
from elision.gateway.upstream import Upstream, UpstreamError, UpstreamResponse
from elision.gateway.wire import Headers
from elision.manager.planned_pings import PlannedPings
from elision.providers.shared.json_reading import mapping_in, text_in
from elision.strategies.pauses import PING_MARGIN
from elision.trajectory.usage import Usage

_log: Final = logging.getLogger("elision.gateway")
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """A request as it went out. sent_at: by the event loop's clock, in seconds."""

    method: str
    url: str
    headers: Headers
    body: bytes
    sent_at: float


def make_ping(body: bytes) -> bytes | None:
    """Return the body of a ping; None where a request cannot be one.

    Everything that the cache compares keeps its bytes. Thinking with a budget needs more tokens of output than one, and
    without it the messages would not be read from the cache.
    """
    try:
        fields = _FIELDS.decode(body)
        thinking = msgspec.json.decode(fields.get("thinking", b"null"))
    except (msgspec.DecodeError, ValueError):
        return None
    if text_in(mapping_in(thinking).get("type")) == "enabled":
        return None
    fields["max_tokens"] = msgspec.Raw(b"1")
    fields["stream"] = msgspec.Raw(b"false")
    return msgspec.json.encode(fields)


class CachePinger:
    """The pings of all sessions of this process; used in one event loop.

    listener: gets every ping when it is over. sleep: waits for so many seconds. read_clock: the event loop's time, in
    seconds.
    """

    def __init__(
        self,
        upstream: Upstream,
        listener: PingListener | None = None,
        *,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        read_clock: Callable[[], float] | None = None,
    ) -> None:
        self._upstream = upstream
        self._listener = listener
        self._sleep = sleep
        self._read_clock = read_clock
        self._tasks: dict[LiveSession, asyncio.Task[None]] = {}
        #: Pings that were sent and are not booked yet.
        self._sent_pings: set[asyncio.Task[bool]] = set()

    def now(self) -> float:
        """Return the event loop's time, in seconds."""
        return self._read_clock() if self._read_clock else asyncio.get_running_loop().time()

    def begin_pause(self, session: LiveSession, sent: SentRequest, plan: PlannedPings) -> None:
        """Begin a pause after `sent`, the newest request of `session`."""
        self.end_pause(session)
        body = make_ping(sent.body)
        if body is None or not plan.pings:
            return
        task = asyncio.ensure_future(self._keep_alive(session, sent, body, plan))
        self._tasks[session] = task
        task.add_done_callback(lambda done: self._forget(session, done))

    def end_pause(self, session: LiveSession) -> None:
        """End the pause of `session`: it has a request, or is gone."""
        task = self._tasks.pop(session, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End all pauses, and cut off the pings that are not answered."""
        tasks: list[asyncio.Task[Any]] = [*self._tasks.values(), *self._sent_pings]
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task

    def _forget(self, session: LiveSession, task: asyncio.Task[None]) -> None:
        if self._tasks.get(session) is task:
            del self._tasks[session]
        if not task.cancelled() and task.exception() is not None:
            _log.error("session %s: a ping failed", session.name, exc_info=task.exception())

    async def _keep_alive(self, session: LiveSession, sent: SentRequest, body: bytes, plan: PlannedPings) -> None:
        used_at = sent.sent_at
        for _ in range(plan.pings):
            await self._sleep(max(0.0, used_at + plan.life_seconds - PING_MARGIN - self.now()))
            used_at = self.now()
            ping = asyncio.ensure_future(self._ping(session, sent, body, plan))
            self._sent_pings.add(ping)
            ping.add_done_callback(self._sent_pings.discard)
            # The pause may end while it is answered; it is paid for all the same.
            if not await asyncio.shield(ping):
                return

    async def _ping(self, session: LiveSession, sent: SentRequest, body: bytes, plan: PlannedPings) -> bool:
        """Send a ping, and book it; return whether there may be another one. It never fails."""
        session.pings_in_flight += 1
        try:
            record = await self._send(session, sent, body, plan)
            if self._listener is not None:
                self._listener(record)
        except Exception:  # noqa: BLE001 - a named boundary: a client must not notice that a ping failed
            _log.exception("session %s: a ping failed", session.name)
            return False
        finally:
            session.pings_in_flight -= 1
        return 0 < record.status < 400

    async def _send(self, session: LiveSession, sent: SentRequest, body: bytes, plan: PlannedPings) -> PingRecord:
        try:
            response = await self._upstream.open(sent.method, sent.url, sent.headers, body)
        except UpstreamError as error:
            _log.warning("session %s: no ping reached the provider: %s", session.name, error)
            return PingRecord(status=0)
        async with response:
            usage = await self._read_usage(session, response)
        if response.status >= 400:
            _log.warning("session %s: the provider refused a ping with status %d", session.name, response.status)
            return PingRecord(status=response.status)
        async with session.lock:
            bill = session.context.record_ping(plan, usage)
            await session.context.settle_async()
        return PingRecord(status=response.status, bill=bill)

    async def _read_usage(self, session: LiveSession, response: UpstreamResponse) -> Usage | None:
        """Read a response to its end; return the usage that it reports."""
        observer = ResponseObserver.for_response(session.api, response)
        try:
            async for chunk in response.iter_chunks():
                observer.feed(chunk)
        except UpstreamError as error:
            # It is billed all the same, then by our count.
            _log.warning("session %s: the response to a ping broke off: %s", session.name, error)
        return (await observer.finish_async()).usage
