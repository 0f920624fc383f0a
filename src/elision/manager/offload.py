"""Threads for work that would hold up an event loop. How many bytes it is about decides, not how many messages.

A thread that computes shares the interpreter with the loop: it gives way every few milliseconds, but never within one
call of C, and the more threads want it the longer the loop waits for its turn. So there is one for what is large, and
one more, so that other work never waits behind that.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Final

from elision.providers.live.parsed_message import ParsedMessage

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
