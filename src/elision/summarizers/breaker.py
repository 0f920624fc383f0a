"""When a summary may be asked for again: never every turn (a fold over calls, without a clock)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The policy.

    back_off: calls to wait after the first, second, ... failure in a row; the last one for all that follow.
    breaker_after: failures in a row after which the circuit is open. open_for: calls until it is tried again.
    """

    back_off: tuple[int, ...] = (5, 10, 20, 40)
    breaker_after: int = 3
    open_for: int = 60


class Breaker:
    """One session's memory of failed summaries."""

    def __init__(self, retry: Retry | None = None) -> None:
        self.retry = retry or Retry()
        self.failures = 0
        self.retry_at = 0

    @property
    def open(self) -> bool:
        """Whether so many failed in a row that the summarizer counts as gone."""
        return self.failures >= self.retry.breaker_after

    def may(self, call: int) -> bool:
        """Whether call `call` may ask."""
        return call >= self.retry_at

    def failed(self, call: int) -> int:
        """A summary asked for at call `call` was not taken; the next call that may ask."""
        self.failures += 1
        steps = self.retry.back_off
        if self.open:
            wait = self.retry.open_for
        else:
            wait = steps[min(self.failures, len(steps)) - 1]
        self.retry_at = call + wait
        return self.retry_at

    def succeeded(self) -> None:
        self.failures = 0
        self.retry_at = 0
