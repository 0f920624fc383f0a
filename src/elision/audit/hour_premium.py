"""Whether the dearer cache writes for an hour were paid back by a read after the shorter lifetime."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

from elision.trajectory.cache import HOUR_SECONDS


@dataclass(frozen=True, slots=True)
class _OpenWrite:
    """Tokens `start` to `stop` of a prompt, written for an hour by `call`. rate: what each cost more, USD."""

    call: int
    start: int
    stop: int
    rate: float

    @property
    def usd(self) -> float:
        return (self.stop - self.start) * self.rate


@dataclass(slots=True)
class HourPremiums:
    """The premiums of one model's calls, in USD by the call that paid them. short_seconds: the shorter lifetime.

    paid, lost: of entries whose fate is known; `close` settles the rest.
    """

    short_seconds: float
    paid: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    lost: defaultdict[int, float] = field(default_factory=lambda: defaultdict(float))
    _open: list[_OpenWrite] = field(default_factory=list)
    _last: float | None = None

    def add_call(self, call: int, now: float | None, read: int, written: int, rate: float) -> None:
        """Record a call that read `read` tokens and wrote the next `written` ones for an hour."""
        pause = None if now is None or self._last is None else now - self._last
        kept: list[_OpenWrite] = []
        for entry in self._open:
            alive = replace(entry, stop=min(entry.stop, max(entry.start, read)))
            # What was not read was written again, or is gone.
            self.lost[entry.call] += entry.usd - alive.usd
            if pause is not None and self.short_seconds < pause <= HOUR_SECONDS:
                self.paid[entry.call] += alive.usd
            elif alive.start < alive.stop:
                kept.append(alive)
        self._open = kept
        self._last = now
        if written and rate > 0:
            if now is None:
                # Without times nobody can say that it was not worth it.
                self.paid[call] += written * rate
            else:
                self._open.append(_OpenWrite(call, read, read + written, rate))

    def close(self) -> None:
        """Settle what is open: no later call used it."""
        for entry in self._open:
            self.lost[entry.call] += entry.usd
        self._open = []
