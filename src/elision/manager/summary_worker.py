"""Request the summaries of a session: within a time limit, in the background if wished, with errors as values."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures import wait as wait_for_futures
from dataclasses import dataclass, replace
from typing import Any, cast

from elision.engine import NotReady, SummaryAnswer
from elision.errors import SummaryError, describe_error
from elision.manager.context_options import SummaryWriter
from elision.manager.think_time import LARGE_BYTES, choose_executor
from elision.summarizers.factory import DigestSummarizer
from elision.summarizers.request_redaction import redact_request
from elision.summarizers.summary_checks import SummaryResult, parse_answer
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.turn import Turn


@dataclass(frozen=True, slots=True)
class _SummaryJob:
    """A summary that is being written. started: by `time.monotonic`."""

    request: SummaryRequest
    future: Future[SummaryResult]
    started: float

    def is_for(self, request: SummaryRequest) -> bool:
        """Return whether the job summarizes the history of `request`: not one that was undone, or another branch."""
        ours = self.request
        return (
            ours.turns == request.turns[: len(ours.turns)]
            and ours.previous == request.previous
            and ours.task == request.task
        )


class SummaryRunner:
    """Calls `writer`, and returns its failures as SummaryError.

    seconds:    time limit of one summary. background: whether calls are prepared while it is written; an urgent
                request waits for it all the same.
    """

    def __init__(self, writer: SummaryWriter, *, seconds: float, background: bool) -> None:
        self.writer = writer
        # A thread that is told to wait longer raises OverflowError.
        self.seconds = min(seconds, threading.TIMEOUT_MAX)
        self.background = background
        #: Spent on summaries since the call before; whoever reports them sets it back.
        self.waited_seconds = 0.0
        self._job: _SummaryJob | None = None
        #: A digest that was written before it was asked for, and the redacted request that it answers.
        self._ahead: tuple[SummaryRequest, SummaryResult] | None = None

    def request_summary(self, request: SummaryRequest) -> SummaryAnswer:
        """Return the summary for `request`, a SummaryError, or NotReady where it is written in the background."""
        if self.background:
            job = self._find_job(request)
            if request.is_urgent:
                wait_for_futures([job.future], self._count_seconds_left(job))
            return self._answer_in_background(job, request)
        started = time.perf_counter()
        try:
            if isinstance(self.writer, DigestSummarizer):
                # It computes, and waits for nothing: a thread would gain nothing.
                return self._write_summary(request)
            return self._start_thread(request).result(self.seconds)
        except FutureTimeoutError:
            return self._make_timeout_error()
        except SummaryError as error:
            return error
        finally:
            self.waited_seconds += time.perf_counter() - started

    async def request_summary_async(self, request: SummaryRequest) -> SummaryAnswer:
        """Do as `request_summary`, without blocking the event loop."""
        if self.background:
            job = self._find_job(request)
            if request.is_urgent:
                written = asyncio.wrap_future(job.future)
                # Its error is read from the job. asyncio would log it as one that was never read.
                written.add_done_callback(lambda future: future.cancelled() or future.exception())
                await asyncio.wait([written], timeout=self._count_seconds_left(job))
            return self._answer_in_background(job, request)
        started = time.perf_counter()
        try:
            return await asyncio.wait_for(self._write_summary_async(request), self.seconds)
        except TimeoutError:
            return self._make_timeout_error()
        except SummaryError as error:
            return error
        finally:
            self.waited_seconds += time.perf_counter() - started

    def look_ahead(self, turn: Turn) -> None:
        """Look through a turn that a summary may cover later, where the writer is the digest."""
        if isinstance(self.writer, DigestSummarizer):
            self.writer.look_ahead(turn)

    def write_ahead(self, request: SummaryRequest) -> None:
        """Write the summary that a later call is expected to request, where the writer is the digest.

        Then only that call waits for it: one that comes meanwhile would write the same.
        """
        if isinstance(self.writer, DigestSummarizer):
            try:
                clean = redact_request(request)
                self._ahead = clean, self.writer(clean)
            except SummaryError:
                # The call that requests it reports the error.
                self._ahead = None

    def _take_written(self, clean: SummaryRequest) -> SummaryResult | None:
        """Return the digest that was written ahead for a request like `clean`; None if there is none."""
        ahead = self._ahead
        self._ahead = None
        if ahead is None:
            return None
        asked, result = ahead
        # A digest has no use for the live prefix.
        if asked == replace(clean, route=asked.route, live=asked.live):
            return result
        return None

    def close(self) -> None:
        """Forget the summary that is being written. Its thread ends by itself."""
        self._job = None

    # -- writing -------------------------------------------------------------------------------------------------

    def _find_job(self, request: SummaryRequest) -> _SummaryJob:
        """Return the job that writes the summary of this history. Start one if there is none."""
        job = self._job
        if job is None or not job.is_for(request):
            job = _SummaryJob(request, self._start_thread(request), time.monotonic())
            self._job = job
        return job

    def _count_seconds_left(self, job: _SummaryJob) -> float:
        return max(0.0, self.seconds - (time.monotonic() - job.started))

    def _answer_in_background(self, job: _SummaryJob, request: SummaryRequest) -> SummaryAnswer:
        """Return the summary if it is written, else NotReady. An urgent request has waited for it."""
        is_done = job.future.done()
        if not is_done and not request.is_urgent and self._count_seconds_left(job) > 0:
            return NotReady()
        self._job = None
        if not is_done:
            return self._make_timeout_error()
        try:
            result = job.future.result()
        except SummaryError as error:
            return error
        self.waited_seconds += result.seconds
        covers = result.covers or job.request.turns[-1].index
        return replace(result, covers=covers)

    def _write_summary(self, request: SummaryRequest) -> SummaryResult:
        """Call the writer in this thread. Raises SummaryError for whatever it raises."""
        started = time.perf_counter()
        try:
            # Redacted before the writer truncates it: half a key may look like no key.
            clean = redact_request(request)
            answer = self._take_written(clean) or self.writer(clean)
            if inspect.isawaitable(answer):
                answer = asyncio.run(cast("Coroutine[Any, Any, str | SummaryResult]", answer))
            return _with_seconds(parse_answer(answer), time.perf_counter() - started)
        except SummaryError:
            raise
        except Exception as error:
            raise _wrap_failure(error) from error

    async def _write_summary_async(self, request: SummaryRequest) -> SummaryResult:
        """Call the writer beside the event loop. Raises SummaryError for what it raises, and CancelledError."""
        started = time.perf_counter()
        if not inspect.iscoroutinefunction(self.writer):
            return await asyncio.wrap_future(self._start_thread(request))
        try:
            # Redaction reads the whole history: smaller work must not wait for it.
            clean = await asyncio.get_running_loop().run_in_executor(
                choose_executor(LARGE_BYTES), redact_request, request
            )
            answer = await cast("Awaitable[str | SummaryResult]", self.writer(clean))
            return _with_seconds(parse_answer(answer), time.perf_counter() - started)
        except SummaryError:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # This task was not cancelled: the summarizer cancelled its own work.
            raise _wrap_failure(error) from error
        except (KeyboardInterrupt, GeneratorExit):
            # The user interrupts, or the event loop is closed.
            raise
        except BaseException as error:
            # SystemExit would end the event loop, and any other BaseException the agent.
            raise _wrap_failure(error) from error

    def _make_timeout_error(self) -> SummaryError:
        return SummaryError(f"no summary within {self.seconds:g} s", cause="timeout")

    def _start_thread(self, request: SummaryRequest) -> Future[SummaryResult]:
        """Write the summary in a thread of its own, and return its future.

        A writer that hangs then blocks neither the next summary nor the end of the process.
        """
        future: Future[SummaryResult] = Future()
        context = contextvars.copy_context()

        def write() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(context.run(self._write_summary, request))
                except SummaryError as error:
                    future.set_exception(error)
                except BaseException as error:  # noqa: BLE001 - the writer alone runs in this thread
                    future.set_exception(_wrap_failure(error))

        threading.Thread(target=write, name="elision-summary", daemon=True).start()
        return future


def _with_seconds(result: SummaryResult, seconds: float) -> SummaryResult:
    if result.seconds:
        return result
    return replace(result, seconds=seconds)


def _wrap_failure(error: BaseException) -> SummaryError:
    """Return what a summarizer raised as a SummaryError. SystemExit must not end the agent."""
    return SummaryError(f"the summarizer failed: {describe_error(error)}")
