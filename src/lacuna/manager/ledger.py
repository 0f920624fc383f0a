"""Totals over a session's log: summaries, rewrites by cause, recalls, what the provider billed."""

from __future__ import annotations

from collections import Counter

from lacuna.trajectory.events import Answered, Attempted, Called, Decided, Event, Recalled
from lacuna.trajectory.prices import Prices
from lacuna.trajectory.usage import Usage


class Ledger:
    """A fold: shown the log as it grows, it costs what is new. USD; billed is None while no usage was reported."""

    def __init__(self, prices: Prices) -> None:
        self.prices = prices
        self.summaries = 0
        self.attempts = 0
        self.rewrites: Counter[str] = Counter()
        self.recalls = 0
        self.recall_usd = 0.0
        self.billed: float | None = None
        self._recalled = 0
        self._read = 0
        #: What was reported for the newest request so far: reported again, it is the same request's.
        self._newest = 0.0
        self._call = 0

    def read(self, events: list[Event]) -> None:
        """Fold what is new in `events`."""
        for event in events[self._read :]:
            self.fold(event)
        self._read = len(events)

    def fold(self, event: Event) -> None:
        """The same with one event of a log that nobody holds whole."""
        match event:
            case Decided():
                self._decided(event)
            case Attempted():
                self.attempts += 1
            case Recalled():
                self._recall(event)
            case Called():
                self._newest, self._call = 0.0, event.call
                rates = self.prices.rates(event.tokens)
                self.recall_usd += self._recalled * (rates.cache_read or rates.input) / 1e6
            case Answered():
                self._answered(event)
            case _:
                pass

    def _recall(self, event: Recalled) -> None:
        self.recalls += 1
        if event.by == "tool":
            # Written once to the cache, and read by every call from then on. What the caller read for himself is in no
            # prompt.
            rates = self.prices.rates(event.tokens)
            self.recall_usd += event.tokens * (rates.cache_write or rates.input) / 1e6
            self._recalled += event.tokens

    def _decided(self, event: Decided) -> None:
        cause = "summary" if event.summary else "clip" if event.clips else "mask" if event.masks else ""
        if cause:
            self.rewrites[cause] += 1
        self.summaries += event.summary is not None

    def _answered(self, event: Answered) -> None:
        usd = self._bill(event.usage) if event.usage.usd is None else event.usage.usd
        if event.call != self._call:
            # Of an earlier call, told late by another process.
            self.billed = (self.billed or 0.0) + usd
            return
        self.billed = (self.billed or 0.0) + usd - self._newest
        self._newest = usd

    def _bill(self, usage: Usage) -> float:
        rates = self.prices.rates(usage.prompt)
        written = usage.cache_write * (rates.cache_write or rates.input)
        read = usage.cache_read * (rates.cache_read or rates.input)
        return (usage.input * rates.input + written + read + usage.output * rates.output) / 1e6
