"""Report whether a worker lives, and whether it should be sent requests, to load balancers."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Final

from elision.errors import StoreError, UnknownHandle
from elision.gateway.settings import GatewaySettings
from elision.stores.store import Store

#: Seconds that the store has for an answer, and for which an answer holds.
STORE_TIMEOUT_SECONDS: Final = 2.0
CACHE_SECONDS: Final = 1.0
#: A session that nobody has: asking for it asks the store, and reads nothing.
_MISSING_SESSION: Final = "elision/readiness"

#: What is asked -> whether it is as it should be.
Checks = dict[str, bool]


class HealthChecks:
    """Health and readiness.

    is_draining: whether the server stops. is_upstream_reached: of the newest request. is_warm: whether all is loaded
    that the first requests need.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        store: Store,
        is_draining: Callable[[], bool],
        is_upstream_reached: Callable[[], bool | None],
        is_warm: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._store = store
        self._is_draining = is_draining
        self._is_upstream_reached = is_upstream_reached
        self._is_warm = is_warm
        self._checked_at = float("-inf")
        self._is_store_reachable = False
        self._lock = asyncio.Lock()

    def render_alive(self) -> bytes:
        """Return the body of /healthz: any response means alive."""
        return b'{"alive": true}\n'

    async def check_ready(self) -> tuple[bool, bytes]:
        """Return whether the worker is ready, and the body of /readyz, which says what is not.

        Whether the provider is reached is only reported. A worker that gets no requests would never notice that
        the provider is back, and its clients would get no response instead of an error with its cause. A worker that
        is not warm yet serves requests, and they wait longer.
        """
        checks: Checks = {
            "store": await self._check_store(),
            "upstream_configured": bool(self._settings.upstreams),
            "not_draining": not self._is_draining(),
            "warm": self._is_warm(),
        }
        ready = all(checks.values())
        report = {"ready": ready, **checks, "upstream_reached": self._is_upstream_reached()}
        return ready, json.dumps(report).encode() + b"\n"

    async def _check_store(self) -> bool:
        if self._settings.off:
            return True
        async with self._lock:
            if time.monotonic() - self._checked_at > CACHE_SECONDS:
                self._is_store_reachable = await is_store_reachable(self._store)
                self._checked_at = time.monotonic()
        return self._is_store_reachable


async def is_store_reachable(store: Store) -> bool:
    """Return whether the store answers in time."""
    try:
        async with asyncio.timeout(STORE_TIMEOUT_SECONDS):
            await asyncio.to_thread(store.length, _MISSING_SESSION)
    except UnknownHandle:
        return True
    except (StoreError, TimeoutError):
        return False
    return True
