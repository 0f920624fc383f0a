"""What a session, and an API key, may spend. The log is the ledger: it holds over restarts and for every process.

A session's bill is that of its log when the request arrives. A key's bill is counted where the store counts for all
gateways (`key_leases`); its log only begins that count. With other stores it is the sum over all of its sessions. It
reads only what is new, at most once in `LOOK_SECONDS`, so concurrent calls may exceed a limit. A request that passes
without a session is in no log: the limits of its key apply, and only this process counts it as a turn.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from elision.errors import LimitError, StoreError, UnknownHandle
from elision.gateway.key_leases import MAX_KEYS, USD, KeyLeases, LocalCounter, make_limit_list
from elision.gateway.limits import RequestRefused
from elision.gateway.request_record import RequestRecord
from elision.gateway.settings import GatewaySettings
from elision.manager.context_options import Options
from elision.manager.context_view import SessionStatus
from elision.manager.drivers import run_off_loop
from elision.manager.ledger import Ledger
from elision.stores.store import LeasesSpending, SessionInfo, Store
from elision.trajectory.events import Event, RequestSent
from elision.trajectory.price_lookup import cost_reported_usage
from elision.trajectory.prices import Prices

_log: Final = logging.getLogger("elision.gateway")

#: Between two looks into the store for one key.
LOOK_SECONDS: Final = 2.0
#: A look reads what changed since the newest change that is known, and this long before: clocks of several gateways
#: differ, and what is written first may be seen last.
OVERLAP_SECONDS: Final = 300.0
#: Between two looks at all sessions of a key, in case some clock is further off than that.
FULL_LOOK_SECONDS: Final = 600.0

#: Of a prompt that is not counted yet.
_BYTES_PER_TOKEN: Final = 4

#: In front of the family of what shadow mode keeps.
SHADOW_PREFIX: Final = "shadow/"

#: Says which limit a session has reached, "" for none. Raises LimitError where it goes no further.
LimitCheck: TypeAlias = Callable[[SessionStatus], str]


@dataclass(slots=True)
class SessionSpend:
    """One session's bill, as far as its log was read. price_model: the prices of a model.

    records: events read. calls: requests made. is_own: whether the session's own events have begun, after its parent's.
    """

    price_model: Callable[[str], Prices]
    records: int = 0
    calls: int = 0
    is_own: bool = False
    _ledger: Ledger | None = None

    @property
    def usd(self) -> float:
        """Return its cost: each call as reported, or its prompt's price (a chat stream without usage)."""
        return self._ledger.due_usd if self._ledger is not None else 0.0

    def add_events(self, info: SessionInfo, events: Sequence[Event]) -> None:
        """Add the events after those that were read."""
        self.records += len(events)
        for event in events:
            # A fork begins with a copy of its parent's log, which is on the parent's bill.
            if not self.is_own and isinstance(event, RequestSent):
                self.is_own = event.at is not None and event.at >= info.begun
            if self.is_own or not info.parent:
                self._fold_event(event)

    def _fold_event(self, event: Event) -> None:
        if isinstance(event, RequestSent):
            self._ledger = self._ledger or Ledger(self.price_model(event.model), self.price_model)
            self.calls += 1
        if self._ledger is not None:
            self._ledger.fold_event(event)


@dataclass(slots=True)
class _KeySpend:
    """The spending of one key.

    looked_at:      when the store was read last, monotonic seconds. calls_since: calls admitted since then.
    full_look_at:   when all of its sessions were read last, monotonic seconds.
    newest_change:  when its newest changed session changed, seconds since the epoch; None while none is known.
    unlogged_calls: calls that are in no log. Only this process counts them, and their cost is unknown.
    sessions:       by name and creation time: a name may be used again after its session is deleted.
    """

    looked_at: float = float("-inf")
    calls_since: int = 0
    full_look_at: float = float("-inf")
    newest_change: float | None = None
    unlogged_calls: int = 0
    sessions: dict[tuple[str, float], SessionSpend] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def usd(self) -> float:
        return sum(account.usd for account in self.sessions.values())

    @property
    def calls(self) -> int:
        return self.calls_since + self.unlogged_calls + sum(account.calls for account in self.sessions.values())


class Budgets:
    """Checks limits. Where a store cannot be read, nothing is refused.

    on_lease_failure: called each time when the counter of keys is lost. leases: None where no limit of keys is counted.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        store: Store,
        *,
        on_lease_failure: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock
        self._keys: OrderedDict[str, _KeySpend] = OrderedDict()
        self._price_model = Options(
            prices=settings.library.prices or "", model=settings.library.model or ""
        ).find_prices
        self._is_counted = isinstance(store, LeasesSpending)
        limits = make_limit_list(
            settings.key_max_cost_usd if self._is_counted else None,
            settings.key_max_turns if self._is_counted else None,
            settings.key_requests_per_minute,
        )
        counter = store if isinstance(store, LeasesSpending) else LocalCounter()
        refuses = settings.at_limit == "refuse"
        self.leases = (
            KeyLeases(limits, counter, refuses, self._read_spent, on_lease_failure, clock=clock) if limits else None
        )
        #: Whether keys have a limit.
        self.limits_keys = (
            self.leases is not None or settings.key_max_cost_usd is not None or settings.key_max_turns is not None
        )
        self._giving_back: asyncio.Task[None] | None = None

    @property
    def session_check(self) -> LimitCheck | None:
        """Return the check of a session's limits; None where sessions have no limits."""
        settings = self._settings
        if settings.session_max_cost_usd is not None or settings.session_max_turns:
            return self._check_session
        return None

    def _check_session(self, standing: SessionStatus) -> str:
        settings = self._settings
        costs = standing.costs
        # Where nothing was ever reported our own reckoning has answers as well.
        spent = max(standing.due_usd, costs.ours if costs.billed is None else costs.billed)
        return self._apply_limit(
            _describe_reached(
                "session", spent, settings.session_max_cost_usd, standing.turns, settings.session_max_turns
            )
        )

    async def check_key(self, namespace: str, *, is_logged: bool = True, record: RequestRecord | None = None) -> str:
        """Return the limit that a key has reached, as a sentence; "" for none.

        is_logged: whether this call will be in a log. record: of the request; `settle` counts what it did cost. Raises
        LimitError where it is refused for good, and RequestRefused where it may come again.
        """
        settings = self._settings
        reached = ""
        if self.leases is not None:
            reached = await self._take_leases(self.leases, namespace, record)
        if self._is_counted or (settings.key_max_cost_usd is None and settings.key_max_turns is None):
            return reached
        key = self._get_key(namespace)
        async with key.lock:
            if self._clock() - key.looked_at >= LOOK_SECONDS:
                key.calls_since = 0
                # To its end, whoever gives up: two looks at once would count what is new twice.
                try:
                    await run_off_loop(partial(self._read_new, namespace, key))
                except (StoreError, UnknownHandle) as error:
                    _log.error("what a key has spent could not be read, nothing is stopped for that: %s", error)
                key.looked_at = self._clock()
            reached = self._apply_limit(
                _describe_reached("key", key.usd, settings.key_max_cost_usd, key.calls, settings.key_max_turns)
            )
            if is_logged:
                key.calls_since += 1
            else:
                key.unlogged_calls += 1
        return reached

    async def _take_leases(self, leases: KeyLeases, namespace: str, record: RequestRecord | None) -> str:
        tokens = record.bytes_in // _BYTES_PER_TOKEN if record is not None else 0
        expected = self._price_prompt(record.model if record is not None else "", tokens)
        taking = await leases.take(namespace, expected)
        limit = taking.reached
        if limit is not None and limit.period and self._settings.at_limit == "refuse":
            why = f"{limit.what}: this key has made its {limit.most:g} requests of this minute"
            raise RequestRefused(429, "rate", why, math.ceil(taking.seconds))
        reached = ""
        if limit is not None and limit.period:
            reached = f"{limit.what}: this key has made its {limit.most:g} requests of this minute"
        elif limit is not None and limit.what == USD:
            reached = _describe_reached("key", taking.total, limit.most, 0, None)
        elif limit is not None:
            reached = _describe_reached("key", 0.0, None, round(taking.total), round(limit.most))
        self._apply_limit(reached)
        if record is not None:
            record.namespace, record.taken_usd = namespace, taking.usd
        return reached

    def settle(self, record: RequestRecord) -> None:
        """Count what a request that is over did cost."""
        if self.leases is None or record.taken_usd is None:
            return
        usd = sum(step.summarized.usd for step in record.step_diagnostics if step.summarized is not None)
        if record.usage is not None and record.model:
            usd += cost_reported_usage(record.usage, self._price_model(record.model))
        elif record.rounds and record.model:
            # As the log has it: a prompt of that size.
            diagnostics = record.diagnostics
            tokens = diagnostics.after if diagnostics is not None else record.bytes_up // _BYTES_PER_TOKEN
            usd += self._price_prompt(record.model, tokens)
        self.leases.settle(record.namespace, record.taken_usd, usd)
        record.taken_usd = None

    def give_back_idle(self) -> None:
        """Give back leases that nobody uses, in the background."""
        if self.leases is not None and (self._giving_back is None or self._giving_back.done()):
            self._giving_back = asyncio.ensure_future(self.leases.give_back())

    async def close(self) -> None:
        """Give back what is leased."""
        if self._giving_back is not None:
            await asyncio.wait({self._giving_back})
        if self.leases is not None:
            await self.leases.close()

    def _price_prompt(self, model: str, tokens: int) -> float:
        return self._price_model(model).find_rates(tokens).input * tokens / 1e6

    def _read_spent(self, namespace: str, what: str) -> float:
        """Return what a key has spent by the log. Raises StoreError."""
        key = _KeySpend()
        self._read_new(namespace, key)
        return key.usd if what == USD else key.calls

    def _apply_limit(self, stop: str) -> str:
        if stop and self._settings.at_limit == "refuse":
            raise LimitError(stop)
        return stop

    def _get_key(self, namespace: str) -> _KeySpend:
        key = self._keys.setdefault(namespace, _KeySpend())
        self._keys.move_to_end(namespace)
        while len(self._keys) > MAX_KEYS:
            self._keys.popitem(last=False)
        return key

    def _read_new(self, namespace: str, key: _KeySpend) -> None:
        """Read what is new in the key's sessions. Raises StoreError, UnknownHandle."""
        now = self._clock()
        everything = key.newest_change is None or now - key.full_look_at >= FULL_LOOK_SECONDS
        if everything or key.newest_change is None:
            since = None
        else:
            since = key.newest_change - OVERLAP_SECONDS
        # What is only tried (shadow mode) is paid for as well.
        for prefix in (namespace, f"{SHADOW_PREFIX}{namespace}"):
            for info in self._store.sessions(family_prefix=prefix, changed_since=since):
                if info.family == prefix or info.family.startswith(f"{prefix}/"):
                    self._read_session(info, key)
        key.full_look_at = now if everything else key.full_look_at

    def _read_session(self, info: SessionInfo, key: _KeySpend) -> None:
        account = key.sessions.setdefault((info.key, info.begun), SessionSpend(self._price_model))
        if info.records > account.records:
            account.add_events(info, list(self._store.events(info.key, account.records)))
        if key.newest_change is None:
            key.newest_change = info.changed
        else:
            key.newest_change = max(key.newest_change, info.changed)


def _describe_reached(subject: str, usd: float, max_usd: float | None, turns: int, max_turns: int | None) -> str:
    if max_usd is not None and usd >= max_usd:
        return f"{subject}_max_cost_usd: this {subject} has spent ${usd:.4f} of ${max_usd:.4f}"
    if max_turns is not None and turns >= max_turns:
        return f"{subject}_max_turns: this {subject} has made {turns} of {max_turns} turns"
    return ""
