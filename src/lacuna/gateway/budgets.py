"""What a session, and an API key, may spend. The log is the ledger: it holds over restarts and for every process.

A session's own bill is known from its newest pass. A key's is the sum over all of its sessions in the store, read on
from where it was read before, at most once in `SECONDS`; so what runs at once may go past a limit by the calls under
way.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from lacuna.errors import PriceError, StoreError
from lacuna.gateway.identity import Identity
from lacuna.gateway.sessions import LiveSession
from lacuna.gateway.settings import GatewaySettings
from lacuna.manager.ledger import Ledger
from lacuna.stores.store import SessionInfo, Store
from lacuna.trajectory.events import Called, Event
from lacuna.trajectory.price_lookup import for_model
from lacuna.trajectory.price_sets import named
from lacuna.trajectory.prices import Prices

#: Between two looks into the store for one key.
SECONDS = 2.0


@dataclass(slots=True)
class _Account:
    """One session's bill, as far as it was read.

    turns: requests made. own: whether what is its own, and not its parent's, has begun.
    """

    records: int = 0
    turns: int = 0
    usd: float = 0.0
    own: bool = False
    ledger: Ledger | None = None


@dataclass(slots=True)
class _Key:
    """All of one key's. looked: when the store was read last, monotonic seconds."""

    looked: float = float("-inf")
    accounts: dict[str, _Account] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def usd(self) -> float:
        return sum(account.usd for account in self.accounts.values())

    @property
    def turns(self) -> int:
        return sum(account.turns for account in self.accounts.values())


class Budgets:
    """Says when a limit is reached. unread: told of a store that could not be read; nothing is stopped for that."""

    def __init__(
        self,
        settings: GatewaySettings,
        store: Store,
        *,
        unread: Callable[[StoreError], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._store = store
        self._unread = unread
        self._clock = clock
        self._keys: dict[str, _Key] = {}

    async def stop(self, who: Identity, live: LiveSession) -> str:
        """The limit that the session, or its key, has reached, in a sentence; "" for none."""
        return self._of_session(live) or await self._of_key(who.namespace)

    def _of_session(self, live: LiveSession) -> str:
        settings, told = self._settings, live.newest
        if told is None:
            return ""
        spent = told.costs.billed if told.costs.billed is not None else told.costs.ours
        return _reached("session", spent, settings.session_max_cost_usd, told.turns, settings.session_max_turns)

    async def _of_key(self, namespace: str) -> str:
        settings = self._settings
        if settings.key_max_cost_usd is None and settings.key_max_turns is None:
            return ""
        key = self._keys.setdefault(namespace, _Key())
        async with key.lock:
            if self._clock() - key.looked >= SECONDS:
                await asyncio.to_thread(self._look, namespace, key)
                key.looked = self._clock()
        return _reached("key", key.usd, settings.key_max_cost_usd, key.turns, settings.key_max_turns)

    def _look(self, namespace: str, key: _Key) -> None:
        """Read what is new of the key's sessions."""
        try:
            for info in self._store.sessions():
                if info.family == namespace or info.family.startswith(f"{namespace}/"):
                    self._read(info, key.accounts.setdefault(info.key, _Account()))
        except StoreError as error:
            self._unread(error)

    def _read(self, info: SessionInfo, account: _Account) -> None:
        if info.records <= account.records:
            return
        events = list(self._store.events(info.key, account.records))
        account.records += len(events)
        account.ledger = account.ledger or Ledger(_prices(events))
        # A fork begins with a copy of its parent's log, which is on the parent's bill.
        first = next((at for at, event in enumerate(events) if _is_since(event, info.begun)), len(events))
        for event in events[0 if not info.parent or account.own else first :]:
            account.ledger.fold(event)
            account.turns += isinstance(event, Called)
        account.own = account.own or first < len(events)
        account.usd = account.ledger.billed or 0.0


def _is_since(event: Event, begun: float) -> bool:
    return isinstance(event, Called) and event.at is not None and event.at >= begun


def _prices(events: list[Event]) -> Prices:
    model = next((event.model for event in events if isinstance(event, Called)), "")
    try:
        return for_model(model)
    except PriceError:
        return named("anthropic")


def _reached(whose: str, usd: float, most: float | None, turns: int, count: int | None) -> str:
    if most is not None and usd >= most:
        return f"max_cost_usd: this {whose} has spent ${usd:.4f} of ${most:.4f}"
    if count is not None and turns >= count:
        return f"max_turns: this {whose} has made {turns} of {count} turns"
    return ""
