"""When a failed summary may be requested again, counted in calls, without a clock."""

from __future__ import annotations

from typing import Final

#: Calls to wait after the first and the second failure in a row, and after all further ones.
BACK_OFF: Final = (5, 10, 60)


class CircuitBreaker:
    """One session's memory of failed summaries."""

    def __init__(self) -> None:
        self.failures = 0
        self.retry_at = 0

    def may_ask(self, call: int) -> bool:
        """Return whether a summary may be requested at call `call`."""
        return call >= self.retry_at

    def find_retry(self, call: int) -> int:
        """Return the next call that may request a summary if the one requested at call `call` is not used."""
        return call + BACK_OFF[min(self.failures, len(BACK_OFF) - 1)]

    def record_failure(self, call: int) -> int:
        """Record that the summary requested at call `call` was not used; return the next call that may request one."""
        self.retry_at = self.find_retry(call)
        self.failures += 1
        return self.retry_at

    def record_success(self) -> None:
        self.failures = 0
        self.retry_at = 0
