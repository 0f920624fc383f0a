"""Whoever writes the summaries of a session: in time, in the background if wished, and never a reason to stop."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, replace
from typing import Any, cast

from lacuna.engine import Answer, Later
from lacuna.errors import SummaryError
from lacuna.manager.options import SummaryWriter
from lacuna.summarizers.written import Written
from lacuna.trajectory.plan import SummaryRequest


@dataclass(frozen=True, slots=True)
class _Job:
    """A summary that is being written. covers: turns 1 ... covers."""

    covers: int
    future: Future[Written]


class Scribe:
    """Asks `writer`, and turns whatever goes wrong into a SummaryError.

    seconds: one summary may take. background: whether passes go on while it is written.
    """

    def __init__(self, writer: SummaryWriter, *, seconds: float, background: bool) -> None:
        self.writer = writer
        self.seconds = seconds
        self.background = background
        self.spent = 0.0
        self._job: _Job | None = None
        self._pool: ThreadPoolExecutor | None = None

    def answer(self, request: SummaryRequest) -> Answer:
        """The summary that `request` asks for, an error, or Later."""
        if self.background:
            return self._later(request)
        started = time.perf_counter()
        try:
            return self._threads().submit(self._written, request).result(self.seconds)
        except Late:
            return self._late()
        except SummaryError as error:
            return error
        finally:
            self.spent += time.perf_counter() - started

    async def answer_async(self, request: SummaryRequest) -> Answer:
        """The same without blocking the event loop."""
        if self.background:
            return self._later(request)
        started = time.perf_counter()
        try:
            return await asyncio.wait_for(self._awaited(request), self.seconds)
        except TimeoutError:
            return self._late()
        except SummaryError as error:
            return error
        finally:
            self.spent += time.perf_counter() - started

    def close(self) -> None:
        """Nothing is waited for."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    # -- writing -------------------------------------------------------------------------------------------------

    def _later(self, request: SummaryRequest) -> Answer:
        """What was written meanwhile, else Later; begins to write if nobody does."""
        if self._job is None:
            self._job = _Job(request.turns[-1].index, self._threads().submit(self._written, request))
        if not self._job.future.done():
            return Later()
        job, self._job = self._job, None
        try:
            written = job.future.result()
        except SummaryError as error:
            return error
        self.spent += written.seconds
        return replace(written, covers=min(job.covers, request.turns[-1].index))

    def _written(self, request: SummaryRequest) -> Written:
        started = time.perf_counter()
        try:
            found = self.writer(request)
            if inspect.isawaitable(found):
                found = asyncio.run(cast("Coroutine[Any, Any, str | Written]", found))
        except SummaryError:
            raise
        except Exception as error:
            raise SummaryError(f"the summarizer failed: {type(error).__name__}: {error}") from error
        return _told(found, time.perf_counter() - started)

    async def _awaited(self, request: SummaryRequest) -> Written:
        started = time.perf_counter()
        if not inspect.iscoroutinefunction(self.writer):
            return await asyncio.to_thread(self._written, request)
        try:
            found = await cast("Awaitable[str | Written]", self.writer(request))
        except SummaryError:
            raise
        except Exception as error:
            raise SummaryError(f"the summarizer failed: {type(error).__name__}: {error}") from error
        return _told(found, time.perf_counter() - started)

    def _late(self) -> SummaryError:
        return SummaryError(f"no summary within {self.seconds:g} s", cause="timeout")

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            # Two: a summary that came too late may still hold the first.
            self._pool = ThreadPoolExecutor(2, thread_name_prefix="lacuna-summary")
        return self._pool


def _told(found: object, seconds: float) -> Written:
    if isinstance(found, str):
        return Written(text=found, seconds=seconds)
    if isinstance(found, Written):
        return found if found.seconds else replace(found, seconds=seconds)
    raise SummaryError(f"the summarizer answered with a {type(found).__name__}; give str or Written", cause="malformed")
