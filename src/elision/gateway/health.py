"""Whether a worker lives, and whether it should be sent requests: for load balancers, and no more than that."""

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
PATIENCE: Final = 2.0
HOLDS: Final = 1.0
#: A session that nobody has: asking for it asks the store, and reads nothing.
_NOBODY: Final = "elision/readiness"

#: What is asked -> whether it is as it should be.
Checks = dict[str, bool]


class Health:
    """draining: whether the server is about to stop. reached: whether the newest request reached its provider."""

    def __init__(
        self,
        settings: GatewaySettings,
        store: Store,
        draining: Callable[[], bool],
        reached: Callable[[], bool | None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._draining = draining
        self._reached = reached
        self._asked = float("-inf")
        self._answers = False
        self._lock = asyncio.Lock()

    def alive(self) -> bytes:
        """/healthz: that this is answered at all is the answer."""
        return b'{"alive": true}\n'

    async def ready(self) -> tuple[bool, bytes]:
        """/readyz: whether all is as it should be, and which of it is not.

        Whether the provider is reached is said and changes nothing: a worker that is sent no requests for that would
        never notice that it is reached again, and its clients would get no answer instead of one that says why.
        """
        checks: Checks = {
            "store": await self._store_answers(),
            "upstream_configured": bool(self._settings.upstream_openai or self._settings.upstream_anthropic),
            "not_draining": not self._draining(),
        }
        ready = all(checks.values())
        told = {"ready": ready, **checks, "upstream_reached": self._reached()}
        return ready, json.dumps(told).encode() + b"\n"

    async def _store_answers(self) -> bool:
        if self._settings.off:
            return True
        async with self._lock:
            if time.monotonic() - self._asked > HOLDS:
                self._answers = await answers(self._store)
                self._asked = time.monotonic()
        return self._answers


async def answers(store: Store) -> bool:
    """Whether the store answers in time."""
    try:
        async with asyncio.timeout(PATIENCE):
            await asyncio.to_thread(store.length, _NOBODY)
    except UnknownHandle:
        return True
    except (StoreError, TimeoutError):
        return False
    return True
