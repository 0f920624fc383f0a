"""Work that nobody waits for: it begins when a view is returned, and is done while the model thinks.

    prepare() returns -> the report of the call, then pieces of the next call's work -> the next call ends it

One thread of the process does it, for all sessions. A call that comes before the thread has begun does the report
itself and takes no pieces: it has lost nothing. A call that comes meanwhile waits for one piece, about a millisecond.
Beside an event loop small work begins a moment later: the thread would want the interpreter just when the loop sends
the request.

Two more threads do what would hold up an event loop. How many bytes it is about decides, not how many messages. A
thread that computes shares the interpreter with the loop: it gives way every few milliseconds, but never within one
call of C, and the more threads want it the longer the loop waits for its turn. So there is one for what is large, and
one more, so that other work never waits behind that.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

from elision.providers.live.client_messages import ParsedMessage

#: Bytes that are read at once, in the thread of the event loop: about a millisecond's work.
INLINE_BYTES: Final = 16 * 1024
#: Bytes from which on work waits for other work of its size.
LARGE_BYTES: Final = 256 * 1024
#: What each value of a JSON text is reckoned to cost beside its letters, in bytes.
_BYTES_PER_VALUE: Final = 16

#: For what is large, for the rest, and for what no caller waits for.
_large_executor: Executor
_small_executor: Executor
_think_executor: Executor


def choose_executor(size: int) -> Executor:
    """Return the executor for work on `size` bytes that is not done inline."""
    if size >= LARGE_BYTES:
        return _large_executor
    return _small_executor


def get_think_executor() -> Executor:
    """Return the executor for what no caller waits for."""
    return _think_executor


def _make_executors() -> None:
    global _large_executor, _small_executor, _think_executor
    _large_executor = ThreadPoolExecutor(1, thread_name_prefix="elision-large-work")
    _small_executor = ThreadPoolExecutor(1, thread_name_prefix="elision-work")
    _think_executor = ThreadPoolExecutor(1, thread_name_prefix="elision-think-time")


_make_executors()
if hasattr(os, "register_at_fork"):
    # A child has no threads but the one that forked: work given to its parent's would never be done.
    os.register_at_fork(after_in_child=_make_executors)


def estimate_size(limit: int, values: Iterable[Any]) -> int:
    """Estimate the size of JSON-like values together, in bytes. Counting ends above `limit`."""
    size = 0
    waiting = list(values)
    while waiting and size <= limit:
        value = waiting.pop()
        size += _BYTES_PER_VALUE
        if isinstance(value, str | bytes):
            size += len(value)
            continue
        if isinstance(value, ParsedMessage):
            size += len(value.raw)
            continue
        # Objects of a provider's package keep their fields in a dictionary.
        if isinstance(value, dict | list | tuple):
            inner = value
        else:
            inner = getattr(value, "__dict__", ())
        if _BYTES_PER_VALUE * len(inner) > limit:
            return _BYTES_PER_VALUE * len(inner)
        if isinstance(inner, dict):
            waiting += inner.values()
        else:
            waiting += inner
    return size


_T = TypeVar("_T")
_log: Final = logging.getLogger("elision.manager")

#: Seconds until small work begins beside an event loop. No model answers earlier, and the request has left by then.
START_SECONDS: Final = 0.1
#: Held while a piece is done, or a deferred value is computed, and while the process forks: a child never gets a
#: session with half of it done. Two, so that a value waits for no piece; neither is held while listeners are called.
_piece_lock = threading.RLock()
_value_lock = threading.RLock()


class Deferred(Generic[_T]):
    """A value that is computed when it is first read, by whichever thread reads it."""

    def __init__(self, compute: Callable[[], _T]) -> None:
        self._compute: Callable[[], _T] | None = compute
        self._values: list[_T] = []

    def __reduce__(self) -> tuple[Callable[[_T], Deferred[_T]], tuple[_T]]:
        return _make_ready, (self.read(),)

    def try_read(self) -> bool:
        """Compute the value where no other thread computes one; return whether it is there."""
        if not self._values and _value_lock.acquire(blocking=False):
            try:
                self.read()
            finally:
                _value_lock.release()
        return bool(self._values)

    def read(self) -> _T:
        """Return the value. Raises what computing it raises, and computes it again then."""
        if not self._values:
            with _value_lock:
                if self._compute is not None:
                    self._values.append(self._compute())
                    # What it was computed from need not stay in memory.
                    self._compute = None
        return self._values[0]


def _make_ready(value: _T) -> Deferred[_T]:
    """Return a value that was computed already, such as one that was pickled."""
    made = Deferred(lambda: value)
    made.read()
    return made


class ThinkTime:
    """The work of one session between two calls. Where the session is dropped, only the report is still made."""

    def __init__(self) -> None:
        self._job: _Job | None = None

    def begin(
        self,
        report: Callable[[], None],
        pieces: Iterator[None],
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """Have `report` called once, and then `pieces` advanced to their end, as far as there is time.

        loop: in which it begins a moment later, for small work: a call that comes before that loses little.
        """
        self.finish()
        job = self._job = _Job(report, pieces, weakref.ref(self), is_small=loop is not None)
        if loop is None:
            job.start()
        else:
            loop.call_later(START_SECONDS, job.start)

    def hold(self, report: Callable[[], None]) -> None:
        """Have `report` called by `finish`, where it is not worth a thread."""
        self.finish()
        self._job = _Job(report, iter(()), weakref.ref(self), is_small=True)

    @property
    def is_under_way(self) -> bool:
        """Whether the thread works on it, or will."""
        return self._job is not None and self._job.is_under_way

    def finish(self) -> None:
        """Return when nothing is done any more; the report was made."""
        job = self._job
        if job is not None:
            job.finish()
            self._job = None

    def try_finish(self) -> bool:
        """Do as `finish` where that neither waits nor takes long; return whether nothing is done any more."""
        if self._job is not None and self._job.is_under_way and not self._job.try_cancel():
            return False
        self.finish()
        return True


class _Job:
    """is_small: whether the report is made in no time, so that the thread need not make it."""

    def __init__(
        self, report: Callable[[], None], pieces: Iterator[None], owner: weakref.ref[ThinkTime], *, is_small: bool
    ) -> None:
        self._report: Callable[[], None] | None = report
        self._is_small = is_small
        self._pieces = pieces
        self._owner = owner
        self._process = os.getpid()
        #: Held while it starts, and while it is told to end.
        self._lock = threading.Lock()
        self.future: Future[None] | None = None
        self._thread = 0
        self._is_over = False

    @property
    def is_under_way(self) -> bool:
        return self.future is not None and not self.future.done()

    def start(self) -> None:
        if self._process != os.getpid():
            # A child goes on with the loop of its parent.
            return
        with self._lock:
            if self._is_over:
                return
            context = contextvars.copy_context()
            try:
                self.future = get_think_executor().submit(context.run, self._work)
                return
            except RuntimeError:
                # The interpreter is ending: no thread begins any more.
                pass
        self._make_report()

    def try_cancel(self) -> bool:
        """Take it back from the thread where that has not begun; return whether it did."""
        return self._is_small and self.future is not None and self.future.cancel()

    def finish(self) -> None:
        if self._process != os.getpid():
            # The thread is the parent's, which makes the report.
            self._is_over = True
            return
        if self._thread == threading.get_ident():
            self._is_over = True
            return
        with self._lock:
            self._is_over = True
            future = self.future
        if future is None or future.cancel():
            # The event loop may have the job for a while.
            self._pieces = iter(())
            self._make_report()
        else:
            # What was raised in the thread is no failure of this call.
            future.exception()

    def _work(self) -> None:
        self._thread = threading.get_ident()
        try:
            self._make_report()
            while not self._is_over and self._owner() is not None:
                with _piece_lock:
                    next(self._pieces)
        except StopIteration:
            pass
        except Exception:  # noqa: BLE001 - no caller waits for it, and each call can do without
            _log.exception("work for the next call failed; the call does it itself")
        finally:
            self._pieces = iter(())
            self._thread = 0

    def _make_report(self) -> None:
        report = self._report
        self._report = None
        if report is not None:
            report()


def _hold_locks() -> None:
    _piece_lock.acquire()
    _value_lock.acquire()


def _release_locks() -> None:
    _value_lock.release()
    _piece_lock.release()


def _renew_locks() -> None:
    global _piece_lock, _value_lock
    _piece_lock = threading.RLock()
    _value_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_hold_locks,
        after_in_parent=_release_locks,
        after_in_child=_renew_locks,
    )
