"""Whoever writes the summaries of a session: in time, in the background if wished, and never a reason to stop."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import dataclass, replace
from typing import Any, cast

from elision.engine import NotReady, SummaryAnswer
from elision.errors import SummaryError, describe_error
from elision.manager.context_options import SummaryWriter
from elision.manager.offload import LARGE_BYTES, choose_executor
from elision.summarizers.factory import DigestSummarizer
from elision.summarizers.request_redaction import redact_request
from elision.summarizers.summary_result import SummaryResult, parse_answer
from elision.trajectory.plan import SummaryRequest


@dataclass(frozen=True, slots=True)
class _SummaryJob:
    """A summary that is being written. started: by `time.monotonic`."""

    request: SummaryRequest
    future: Future[SummaryResult]
    started: float

    def is_for(self, request: SummaryRequest) -> bool:
        """Whether what is written is of the history that `request` is about: not undone, and of no other branch."""
        ours = self.request
        return (
            ours.turns == request.turns[: len(ours.turns)]
            and ours.previous == request.previous
            and ours.task == request.task
        )


class SummaryRunner:
    """Asks `writer`, and turns whatever goes wrong into a SummaryError.

    seconds: one summary may take. background: whether passes go on while it is written.
    """

    def __init__(self, writer: SummaryWriter, *, seconds: float, background: bool) -> None:
        self.writer = writer
        # No thread waits longer, and none at all where it is told to.
        self.seconds = min(seconds, threading.TIMEOUT_MAX)
        self.background = background
        self.waited_seconds = 0.0
        self._job: _SummaryJob | None = None

    def request_summary(self, request: SummaryRequest) -> SummaryAnswer:
        """The summary that `request` asks for, an error, or Later."""
        if self.background:
            return self._answer_in_background(request)
        started = time.perf_counter()
        try:
            # A digest waits for nobody: a thread for it would only be waited for.
            at_once = isinstance(self.writer, DigestSummarizer)
            if at_once:
                return self._write_summary(request)
            return self._start_thread(request).result(self.seconds)
        except Late:
            return self._make_timeout_error()
        except SummaryError as error:
            return error
        finally:
            self.waited_seconds += time.perf_counter() - started

    async def request_summary_async(self, request: SummaryRequest) -> SummaryAnswer:
        """The same without blocking the event loop."""
        if self.background:
            return self._answer_in_background(request)
        started = time.perf_counter()
        try:
            return await asyncio.wait_for(self._write_summary_async(request), self.seconds)
        except TimeoutError:
            return self._make_timeout_error()
        except SummaryError as error:
            return error
        finally:
            self.waited_seconds += time.perf_counter() - started

    def close(self) -> None:
        """Nothing is waited for."""
        self._job = None

    # -- writing -------------------------------------------------------------------------------------------------

    def _answer_in_background(self, request: SummaryRequest) -> SummaryAnswer:
        """What was written meanwhile, else Later; begins to write if nobody does."""
        job = self._job
        if job is None or not job.is_for(request):
            job = self._job = _SummaryJob(request, self._start_thread(request), time.monotonic())
        if not job.future.done():
            if time.monotonic() - job.started < self.seconds:
                return NotReady()
            return self._abandon_job()
        self._job = None
        try:
            written = job.future.result()
        except SummaryError as error:
            return error
        self.waited_seconds += written.seconds
        return replace(written, covers=written.covers or job.request.turns[-1].index)

    def _abandon_job(self) -> SummaryError:
        self._job = None
        return self._make_timeout_error()

    def _write_summary(self, request: SummaryRequest) -> SummaryResult:
        started = time.perf_counter()
        try:
            # Before anybody cuts it: half a key has no beginning that tells what it is.
            found = self.writer(redact_request(request))
            if inspect.isawaitable(found):
                found = asyncio.run(cast("Coroutine[Any, Any, str | SummaryResult]", found))
            return _with_seconds(parse_answer(found), time.perf_counter() - started)
        except SummaryError:
            raise
        except Exception as error:
            raise _wrap_failure(error) from error

    async def _write_summary_async(self, request: SummaryRequest) -> SummaryResult:
        started = time.perf_counter()
        if not inspect.iscoroutinefunction(self.writer):
            return await asyncio.wrap_future(self._start_thread(request))
        try:
            # All of a history is read: other work does not wait for that.
            clean = await asyncio.get_running_loop().run_in_executor(
                choose_executor(LARGE_BYTES), redact_request, request
            )
            found = await cast("Awaitable[str | SummaryResult]", self.writer(clean))
            return _with_seconds(parse_answer(found), time.perf_counter() - started)
        except SummaryError:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled the pass: the summarizer gave up by itself.
            raise _wrap_failure(error) from error
        except (KeyboardInterrupt, GeneratorExit):
            # The user's, and the event loop's that is closed.
            raise
        except BaseException as error:
            # SystemExit would end the event loop, and what else is no Exception the agent.
            raise _wrap_failure(error) from error

    def _make_timeout_error(self) -> SummaryError:
        return SummaryError(f"no summary within {self.seconds:g} s", cause="timeout")

    def _start_thread(self, request: SummaryRequest) -> Future[SummaryResult]:
        """The summary, written in a thread of its own: one that never ends holds up no other, nor the end of the
        process."""
        future: Future[SummaryResult] = Future()
        context = contextvars.copy_context()

        def write() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(context.run(self._write_summary, request))
                except SummaryError as error:
                    future.set_exception(error)
                except BaseException as error:  # noqa: BLE001 - nobody else's exception is raised in this thread
                    future.set_exception(_wrap_failure(error))

        threading.Thread(target=write, name="elision-summary", daemon=True).start()
        return future


def _with_seconds(written: SummaryResult, seconds: float) -> SummaryResult:
    if written.seconds:
        return written
    return replace(written, seconds=seconds)


def _wrap_failure(error: BaseException) -> SummaryError:
    """What a summarizer raised, as the summary that there is not: SystemExit must not end the agent."""
    return SummaryError(f"the summarizer failed: {describe_error(error)}")
