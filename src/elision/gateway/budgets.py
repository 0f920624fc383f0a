"""What a session, and an API key, may spend. The log is the ledger: it holds over restarts and for every process.

A session is looked at as its log has it when the request came. A key's bill is the sum over all of its sessions in the
store, read on from where it was read before, at most once in `SECONDS`; so what runs at once may go past a limit by the
calls under way. What passes without a session is in no log: it is asked for its key's limits, and counts as a turn in
this process alone.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

from elision.errors import ElisionError, LimitError, StoreError, UnknownHandle
from elision.gateway.settings import GatewaySettings
from elision.manager.context_options import Options
from elision.manager.context_view import SessionStatus
from elision.manager.drivers import run_off_loop
from elision.manager.ledger import Ledger
from elision.stores.store import SessionInfo, Store
from elision.trajectory.events import Called, Event
from elision.trajectory.prices import Prices

#: Between two looks into the store for one key.
SECONDS: Final = 2.0
#: A look reads what changed since the newest change that is known, and this long before: clocks of several gateways
#: differ, and what is written first may be seen last.
OVERLAP: Final = 300.0
#: Between two looks at all sessions of a key, in case some clock is further off than that.
ALL_SECONDS: Final = 600.0
#: Keys that are known at a time; another one's sessions are read anew.
KEYS: Final = 1_000

#: In front of the family of what shadow mode keeps.
SHADOW: Final = "shadow/"

#: Says which limit a session has reached, "" for none. Raises LimitError where it goes no further.
Limit: TypeAlias = Callable[[SessionStatus], str]


@dataclass(slots=True)
class Account:
    """One session's bill, as far as it was read. priced: what calls of a model are billed at.

    records: read. calls: requests made. own: whether what is its own, and not its parent's, has begun.
    """

    priced: Callable[[str], Prices]
    records: int = 0
    calls: int = 0
    own: bool = False
    _ledger: Ledger | None = None

    @property
    def usd(self) -> float:
        """Each call as the provider reported it, else (a chat stream without usage) as its prompt costs."""
        if self._ledger is not None:
            return self._ledger.due_usd
        return 0.0

    def read(self, info: SessionInfo, events: Sequence[Event]) -> None:
        """What stands behind what was read."""
        self.records += len(events)
        for event in events:
            # A fork begins with a copy of its parent's log, which is on the parent's bill.
            self.own = self.own or not info.parent or _is_since(event, info.begun)
            if self.own:
                self._fold(event)

    def _fold(self, event: Event) -> None:
        if isinstance(event, Called):
            self._ledger = self._ledger or Ledger(self.priced(event.model), self.priced)
            self.calls += 1
        if self._ledger is not None:
            self._ledger.fold(event)


@dataclass(slots=True)
class _Key:
    """All of one key's. looked: when the store was read last, monotonic seconds. since: calls let through behind that.

    whole:    when all of its sessions were looked at last, monotonic seconds. newest: when the one changed last was
              changed, seconds since the epoch; None while none is known.
    passed:   calls that are in no log: only this process knows of them, and not what they cost.
    accounts: by name and beginning: a name may be taken again when its session is deleted.
    """

    looked: float = float("-inf")
    since: int = 0
    whole: float = float("-inf")
    newest: float | None = None
    passed: int = 0
    accounts: dict[tuple[str, float], Account] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def usd(self) -> float:
        return sum(account.usd for account in self.accounts.values())

    @property
    def calls(self) -> int:
        return self.since + self.passed + sum(account.calls for account in self.accounts.values())


class Budgets:
    """Says when a limit is reached. unread: told of a store that could not be read; nothing is stopped for that."""

    def __init__(
        self,
        settings: GatewaySettings,
        store: Store,
        *,
        unread: Callable[[ElisionError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._store = store
        self._unread = unread
        self._clock = clock
        self._keys: OrderedDict[str, _Key] = OrderedDict()
        self._priced = Options(prices=settings.library.prices or "", model=settings.library.model or "").find_prices

    @property
    def of_session(self) -> Limit | None:
        """What is asked with each session as it stands; None where sessions have no limits."""
        settings = self._settings
        if settings.session_max_cost_usd is not None or settings.session_max_turns:
            return self._session
        return None

    def _session(self, standing: SessionStatus) -> str:
        settings = self._settings
        costs = standing.costs
        # Where nothing was ever reported our own reckoning has answers as well.
        spent = max(standing.due_usd, costs.ours if costs.billed is None else costs.billed)
        return self._said(
            _reached("session", spent, settings.session_max_cost_usd, standing.turns, settings.session_max_turns)
        )

    async def of_key(self, namespace: str, *, logged: bool = True) -> str:
        """The limit that a key has reached, in a sentence; "" for none. Raises LimitError where it goes no further.

        logged: whether the call that is asked for will be in a log.
        """
        settings = self._settings
        if settings.key_max_cost_usd is None and settings.key_max_turns is None:
            return ""
        key = self._known(namespace)
        async with key.lock:
            if self._clock() - key.looked >= SECONDS:
                key.since = 0
                # To its end, whoever gives up: two looks at once would count what is new twice.
                await run_off_loop(partial(self._look, namespace, key))
                key.looked = self._clock()
            said = self._said(_reached("key", key.usd, settings.key_max_cost_usd, key.calls, settings.key_max_turns))
            if logged:
                key.since += 1
            else:
                key.passed += 1
        return said

    def _said(self, stop: str) -> str:
        if stop and self._settings.at_limit == "refuse":
            raise LimitError(stop)
        return stop

    def _known(self, namespace: str) -> _Key:
        key = self._keys.setdefault(namespace, _Key())
        self._keys.move_to_end(namespace)
        while len(self._keys) > KEYS:
            self._keys.popitem(last=False)
        return key

    def _look(self, namespace: str, key: _Key) -> None:
        """Read what is new of the key's sessions."""
        now = self._clock()
        everything = key.newest is None or now - key.whole >= ALL_SECONDS
        if everything or key.newest is None:
            since = None
        else:
            since = key.newest - OVERLAP
        try:
            # What is only tried (shadow mode) is paid for as well.
            for prefix in (namespace, f"{SHADOW}{namespace}"):
                for info in self._store.sessions(family_prefix=prefix, changed_since=since):
                    if info.family == prefix or info.family.startswith(f"{prefix}/"):
                        self._read(info, key)
            key.whole = now if everything else key.whole
        except (StoreError, UnknownHandle) as error:
            self._unread(error)

    def _read(self, info: SessionInfo, key: _Key) -> None:
        account = key.accounts.setdefault((info.key, info.begun), Account(self._priced))
        if info.records > account.records:
            account.read(info, list(self._store.events(info.key, account.records)))
        if key.newest is None:
            key.newest = info.changed
        else:
            key.newest = max(key.newest, info.changed)


def _is_since(event: Event, begun: float) -> bool:
    return isinstance(event, Called) and event.at is not None and event.at >= begun


def _reached(whose: str, usd: float, most: float | None, turns: int, count: int | None) -> str:
    if most is not None and usd >= most:
        return f"{whose}_max_cost_usd: this {whose} has spent ${usd:.4f} of ${most:.4f}"
    if count is not None and turns >= count:
        return f"{whose}_max_turns: this {whose} has made {turns} of {count} turns"
    return ""
