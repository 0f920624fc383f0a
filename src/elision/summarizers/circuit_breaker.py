"""When a failed summary may be requested again, counted in calls, without a clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """How many calls to wait after failures.

    back_off: calls to wait after the first, second, ... failure in a row; the last one for all that follow.
    breaker_after: failures in a row that open the circuit. open_for: calls to wait then.
    """

    back_off: tuple[int, ...] = (5, 10, 20, 40)
    breaker_after: int = 3
    open_for: int = 60


class CircuitBreaker:
    """One session's memory of failed summaries."""

    def __init__(self, policy: BreakerPolicy | None = None) -> None:
        self.policy = policy or BreakerPolicy()
        self.failures = 0
        self.retry_at = 0

    def may_ask(self, call: int) -> bool:
        """Return whether a summary may be requested at call `call`."""
        return call >= self.retry_at

    def find_retry(self, call: int) -> int:
        """Return the next call that may request a summary if the one requested at call `call` is not used."""
        failures = self.failures + 1
        if failures >= self.policy.breaker_after:
            return call + self.policy.open_for
        steps = self.policy.back_off
        return call + steps[min(failures, len(steps)) - 1]

    def record_failure(self, call: int) -> int:
        """Record that the summary requested at call `call` was not used; return the next call that may request one."""
        self.retry_at = self.find_retry(call)
        self.failures += 1
        return self.retry_at

    def record_success(self) -> None:
        self.failures = 0
        self.retry_at = 0
