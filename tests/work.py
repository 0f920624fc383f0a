"""How much work a function does, measured so that what else the machine does is no part of it."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

#: So many times the linear work still pass: caches, allocators and a busy sibling core take up to twice.
SLACK: Final = 4
#: Processor seconds below which nothing is measured reliably.
LEAST: Final = 0.005
TRIES: Final = 4


def assert_linear(work: Callable[[int], object], size: int, times: int = 16) -> None:
    """Fail if work(times * size) takes much more than `times` as long as work(size).

    Processor time of this thread counts, so a busy machine changes little; what disturbs it passes, so it is measured
    up to `TRIES` times. Linear work takes `times` as long, quadratic work `times` squared: the bar is between them.
    """
    assert times >= 4 * SLACK, "linear and quadratic must lie far apart"
    ratios = []
    for _ in range(TRIES):
        small = min(_measure_seconds(work, size) for _ in range(3))
        large = _measure_seconds(work, times * size)
        ratios.append(large / max(small, LEAST))
        if ratios[-1] <= SLACK * times:
            return
    raise AssertionError(f"{times} times the size takes {', '.join(f'{ratio:.0f}' for ratio in ratios)} times as long")


def _measure_seconds(work: Callable[[int], object], size: int) -> float:
    """Processor seconds of this thread, without the collector's."""
    # Not collected before: that takes seconds where earlier tests left a large heap, and nothing collects meanwhile.
    gc.disable()
    try:
        begun = time.thread_time()
        work(size)
        return time.thread_time() - begun
    finally:
        gc.enable()


def count_calls(work: Callable[[], object]) -> int:
    """How many functions, Python's and built-in ones, `work` calls in this thread: the same number every time."""
    count = 0

    def see(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
