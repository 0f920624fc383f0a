"""What an API key may spend with all gateways together: leased from one counter, slice by slice, and spent here.

    counter (PostgreSQL) -> lease of this worker -> requests

A lease is counted as spent when it is given, so all workers together never hold more than the limit allows. A request
takes one request and one turn, and the dollars that it is expected to cost; what it did cost is settled behind it.
So only dollars may exceed a limit, with the calls that were under way when it was reached. A slice is at most a
hundredth of the limit, and as small as what a worker spends in two seconds: so little is lost with a worker that dies.

If the counter is not reached, the last lease stays valid, and what is spent beyond it is counted as soon as the counter
is back: an outage refuses nobody whose limit was not reached before.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Final

from elision.errors import ElisionError
from elision.stores.store import LeasesSpending, SpendingLease

_log: Final = logging.getLogger("elision.gateway")

#: Seconds in which a slice should be used up; it grows where it is sooner. Seconds that a limit which was reached is
#: taken for reached, that the counter has for an answer, and that a lease may lie unused.
SLICE_SECONDS: Final = 2.0
EXHAUSTED_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 10.0
#: The largest slice, and the smallest of dollars, as parts of the limit.
LARGEST_SLICE: Final = 0.01
SMALLEST_SLICE: Final = 0.0001
#: Keys that are known at a time.
MAX_KEYS: Final = 1_000
USD: Final = "key_max_cost_usd"
_MINUTE: Final = 60


@dataclass(frozen=True, slots=True)
class KeyLimit:
    """One limit of every key. what: its name. period: seconds for which it holds; 0 for ever. unit: of a request."""

    what: str
    most: float
    period: int = 0
    unit: float = 1.0

    @property
    def largest_slice(self) -> float:
        return max(self.unit, self.most * LARGEST_SLICE)


def make_limit_list(usd: float | None, turns: int | None, requests_per_minute: int | None) -> list[KeyLimit]:
    """Return the limits that are set."""
    limits = []
    if requests_per_minute is not None:
        limits.append(KeyLimit("key_requests_per_minute", requests_per_minute, period=_MINUTE))
    if turns is not None:
        limits.append(KeyLimit("key_max_turns", turns))
    if usd is not None:
        limits.append(KeyLimit(USD, usd, unit=usd * SMALLEST_SLICE))
    return limits


@dataclass(slots=True)
class _Lease:
    """This worker's part of what one key may spend.

    left: below 0 it is spent and not counted yet. total: what the counter had given when it was asked last.
    is_exhausted: whether it gave nothing then. pending: its answer that is still to come. debt: that it is told of.
    """

    limit: KeyLimit
    left: float = 0.0
    slice: float = 0.0
    total: float = 0.0
    is_exhausted: bool = False
    asked_at: float = float("-inf")
    used_at: float = float("-inf")
    ends_at: float = float("inf")
    pending: asyncio.Future[SpendingLease | None] | None = None
    debt: float = 0.0

    def end_if_over(self, now: float) -> None:
        """Forget what is left, or owed, of a period that is over: it is no part of the next one."""
        if now >= self.ends_at:
            self.left, self.is_exhausted, self.ends_at = 0.0, False, float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Taking:
    """What a request took. reached: the limit that is reached, with its total, and the seconds that it still holds."""

    usd: float
    reached: KeyLimit | None = None
    total: float = 0.0
    seconds: float = 0.0


class LocalCounter:
    """The counter of a gateway that is alone: for limits that begin anew, which no log is asked for."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._counts: dict[tuple[str, str], tuple[int, float]] = {}
        self._lock = Lock()

    def lease_spending(
        self, key: str, what: str, *, charge: float, amount: float, most: float, period: int = 0, spent: float | None
    ) -> SpendingLease:
        number, gone = divmod(self._clock(), period)
        with self._lock:
            counted, base = self._counts.get((key, what), (number, 0.0))
            base = max(0.0, (base if counted == number else 0.0) + charge)
            granted = max(0.0, min(amount, most - base))
            self._counts[key, what] = (int(number), base + granted)
        return SpendingLease(granted=granted, total=base + granted, seconds=period - gone)


@dataclass(slots=True)
class _Key:
    """usual_usd: what its calls cost of late; None before the first."""

    leases: dict[str, _Lease]
    usual_usd: float | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class KeyLeases:
    """Leases of all keys of one worker, for one event loop.

    refuses: whether a request beyond a limit is not made. read_spent: what a key has spent of something by the log, for
    a count that begins. on_failure: called each time when the counter is lost. problem: why it is not reached, "" if it
    is.
    """

    def __init__(
        self,
        limits: list[KeyLimit],
        counter: LeasesSpending,
        refuses: bool,
        read_spent: Callable[[str, str], float],
        on_failure: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.problem = ""
        self._limits = limits
        self._counter = counter
        self._refuses = refuses
        self._read_spent = read_spent
        self._on_failure = on_failure
        self._clock = clock
        self._keys: OrderedDict[str, _Key] = OrderedDict()
        # Threads of their own: those of requests may all be waiting for the store.
        self._threads = ThreadPoolExecutor(2, thread_name_prefix="elision-leases")

    async def take(self, name: str, expected_usd: float) -> Taking:
        """Take what a request needs from the leases of a key.

        expected_usd: what it may cost, for a key of which nothing is known yet.
        """
        key = self._find_key(name)
        usd = expected_usd if key.usual_usd is None else key.usual_usd
        reached: _Lease | None = None
        async with key.lock:
            for lease in key.leases.values():
                amount = usd if lease.limit.what == USD else 1.0
                await self._extend_if_due(name, lease, amount)
                if lease.left <= 0 and (lease.is_exhausted or not self.problem):
                    reached = reached or lease
                lease.used_at = self._clock()
            if reached is None or not self._refuses:
                for lease in key.leases.values():
                    lease.left -= usd if lease.limit.what == USD else 1.0
        if reached is None:
            return Taking(usd=usd)
        return Taking(
            usd=usd, reached=reached.limit, total=reached.total, seconds=max(1.0, reached.ends_at - self._clock())
        )

    def settle(self, name: str, taken_usd: float, usd: float) -> None:
        """Count what a call that took `taken_usd` did cost."""
        key = self._find_key(name)
        lease = key.leases.get(USD)
        if lease is not None:
            lease.left += taken_usd - usd
            key.usual_usd = usd if key.usual_usd is None else 0.8 * key.usual_usd + 0.2 * usd

    async def give_back(self, idle_seconds: float = IDLE_SECONDS) -> None:
        """Give back, to the counter, leases that were not used for so long."""
        now = self._clock()
        for name, key in list(self._keys.items()):
            for lease in key.leases.values():
                lease.end_if_over(now)
                is_idle = now - lease.used_at >= idle_seconds and not key.lock.locked()
                if lease.left and lease.pending is None and is_idle:
                    async with key.lock:
                        await self._ask(name, lease, 0.0)
                    if self.problem:
                        # Each would wait as long.
                        return

    async def close(self) -> None:
        """Give back all leases; an answer that does not come is not waited for."""
        await self.give_back(0.0)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _find_key(self, name: str) -> _Key:
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = _Key({limit.what: _Lease(limit) for limit in self._limits})
        self._keys.move_to_end(name)
        while len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)
        return key

    async def _extend_if_due(self, name: str, lease: _Lease, amount: float) -> None:
        now = self._clock()
        lease.end_if_over(now)
        if lease.left >= amount and lease.left > 0:
            return
        if lease.is_exhausted and now - lease.asked_at < EXHAUSTED_SECONDS:
            return
        least = max(amount, lease.limit.unit)
        if now - lease.asked_at < SLICE_SECONDS:
            lease.slice = min(lease.limit.largest_slice, 2 * lease.slice)
        else:
            lease.slice = min(lease.limit.largest_slice, lease.slice / 2)
        lease.slice = max(least, lease.slice)
        await self._ask(name, lease, lease.slice)

    async def _ask(self, name: str, lease: _Lease, amount: float) -> None:
        """Count what is owed, or left, and lease `amount` more; an answer that is late is taken when it is there."""
        if lease.pending is None:
            lease.debt = -lease.left if lease.left < 0 or not amount else 0.0
            lease.asked_at = self._clock()
            ask = partial(self._ask_counter, name, lease.limit, lease.debt, amount)
            lease.pending = asyncio.get_running_loop().run_in_executor(self._threads, ask)
        pending = lease.pending
        await asyncio.wait({pending}, timeout=ANSWER_SECONDS)
        if not pending.done():
            self._set_problem(f"no answer within {ANSWER_SECONDS:g} s")
            return
        lease.pending = None
        try:
            found = pending.result()
        except ElisionError as error:
            self._set_problem(str(error))
            return
        assert found is not None
        self._set_problem("")
        lease.left += lease.debt + found.granted
        lease.total = found.total
        lease.is_exhausted = bool(amount) and not found.granted
        lease.ends_at = self._clock() + found.seconds

    def _ask_counter(self, name: str, limit: KeyLimit, debt: float, amount: float) -> SpendingLease | None:
        lease = partial(
            self._counter.lease_spending,
            name,
            limit.what,
            charge=debt,
            amount=amount,
            most=limit.most,
            period=limit.period,
        )
        # A minute begins with nothing; what was spent for good is in the log.
        found = lease(spent=0.0 if limit.period else None)
        return found or lease(spent=self._read_spent(name, limit.what))

    def _set_problem(self, problem: str) -> None:
        if problem and not self.problem:
            _log.error("what keys spend cannot be counted, their last leases stay valid: %s", problem)
            self._on_failure()
        if self.problem and not problem:
            _log.warning("what keys spend is counted again")
        self.problem = problem
