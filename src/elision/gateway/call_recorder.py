"""Record a request's calls in its session's log: the reported usage, and when events are written.

prepared -> written after the response, with its usage, or while a slow provider works

`SessionRequest` is the request as one value: what every step of its handling needs to know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from elision.gateway.live_sessions import LiveSession
from elision.gateway.request_body import RequestBody
from elision.gateway.request_record import RequestRecord
from elision.gateway.response_observer import ResponseObserver
from elision.gateway.wire import ClientRequest
from elision.providers.live.client_messages import ParsedMessage
from elision.providers.live.conversation import Conversation
from elision.providers.provider import Api
from elision.trajectory.usage import Usage

_log: Final = logging.getLogger("elision.gateway")

#: Seconds that unwritten events wait for the response's usage, to be written with it.
SAVE_WAIT_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """One request of a client to a session.

    body:         the parsed body of `client`, with the tools that the session keeps. conversation: its messages; the
                  session's may be longer by now.
    client:       the request as it arrived. record: filled in while the request is served.
    """

    session: LiveSession
    api: Api
    url: str
    body: RequestBody
    conversation: Conversation
    client: ClientRequest
    record: RequestRecord

    def is_client_conversation(self, messages: Sequence[ParsedMessage]) -> bool:
        """Return whether the client saw all of these messages."""
        return len(messages) == len(self.body.messages) and not self.session.hidden_rounds.events_by_node

    def log_fault(self, what: str, error: Exception, then: str = "the request is sent unchanged") -> None:
        """Log and record that something of ours failed, which does not fail the request (I9)."""
        self.record.cause = what
        self.record.why = type(error).__name__
        _log.error("session %s: %s failed, %s", self.session.name, what, then, exc_info=error)


class CallRecorder:
    """Records the calls of one request.

    shared: whether other processes use the same store. Then a call is stored before its response is relayed, since
    another process may serve the next one and must find it in the log.
    """

    def __init__(self, sent: SessionRequest, *, shared: bool) -> None:
        self._sent = sent
        self._shared = shared
        self._has_unwritten = False
        self._is_finishing = False
        self._timer: asyncio.TimerHandle | None = None
        self._save_task: asyncio.Task[None] | None = None
        #: The usage that is not in the log yet.
        self._usage: Usage | None = None

    def note_prepared(self) -> None:
        """Note that the session has events to write."""
        self._has_unwritten = True
        if self._shared:
            self._begin_save()
        elif self._timer is None and not self._is_finishing:
            self._timer = asyncio.get_running_loop().call_later(SAVE_WAIT_SECONDS, self._begin_save)

    async def wait_until_shared(self) -> None:
        """Wait until other processes can see the newest call."""
        if self._shared and self._save_task is not None:
            await asyncio.shield(self._save_task)

    async def read_usage(self, observer: ResponseObserver) -> None:
        """Read what the provider reported for the newest call; `log_usage` records it."""
        record = self._sent.record
        facts = await observer.finish_async()
        record.cache_miss = facts.cache_miss.reason if facts.cache_miss else ""
        record.thinking_dropped += sum(each.is_dropped for each in facts.transformations)
        if facts.cleared:
            record.cleared_tokens += facts.cleared.cleared_tokens
        if facts.usage is not None:
            record.usage = facts.usage if record.usage is None else record.usage + facts.usage
            self._usage = facts.usage

    def log_usage(self) -> None:
        """Record the usage in the session's log, with the session's lock held."""
        usage = self._usage
        diagnostics = self._sent.record.diagnostics
        self._usage = None
        if usage is None or diagnostics is None:
            return
        try:
            self._sent.session.context.record(usage, call=diagnostics.call, branch=diagnostics.branch)
        except Exception as error:  # noqa: BLE001 - the boundary of I9; the client has its response
            self._sent.log_fault("usage", error, "the call has none")

    async def record_round(self, observer: ResponseObserver) -> None:
        """Record the usage of a response that another round may follow, also where the request is cancelled."""
        await run_to_end(self._record_round(observer))

    async def finish(self, observer: ResponseObserver | None, prepare_task: asyncio.Task[None] | None) -> None:
        """Record the usage, and write all events, also where the request is cancelled.

        observer:     of the response, complete or not: a response that broke off, or whose client left, is billed, too.
        prepare_task: of a request that was sent before it was prepared; it may log the usage itself.
        """
        self._is_finishing = True
        if self._timer is not None:
            self._timer.cancel()
        await run_to_end(self._finish(observer, prepare_task))

    async def _record_round(self, observer: ResponseObserver) -> None:
        await self.read_usage(observer)
        async with self._sent.session.lock:
            self.log_usage()

    async def _finish(self, observer: ResponseObserver | None, prepare_task: asyncio.Task[None] | None) -> None:
        if observer is not None:
            await self.read_usage(observer)
        if prepare_task is not None:
            await prepare_task
        if self._save_task is not None:
            await self._save_task
        if self._usage is not None or self._has_unwritten:
            await self._save()

    def _begin_save(self) -> None:
        self._save_task = asyncio.ensure_future(self._save())

    async def _save(self) -> None:
        async with self._sent.session.lock:
            self.log_usage()
            fault = await self._sent.session.opened.settle_async()
            if fault is not None:
                self._sent.record.cause = self._sent.record.cause or fault.kind


async def run_to_end(work: Coroutine[Any, Any, None]) -> None:
    """Await `work`, which runs to its end even where the request is cancelled meanwhile."""
    await asyncio.shield(asyncio.ensure_future(work))
