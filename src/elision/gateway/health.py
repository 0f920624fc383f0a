"""Report to load balancers whether a worker lives, and whether it should be sent requests.

Whether the store can be written is watched: looked at in the background, and tried where a request could not write.
Requests go out either way. What changes is `/readyz`, a metric, and two lines of the log: one when the store is lost,
one when it is back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from elision.errors import ElisionError, describe_error
from elision.gateway.key_leases import KeyLeases
from elision.gateway.request_record import RequestRecord
from elision.gateway.settings import GatewaySettings
from elision.stores.store import ChecksWrites, Store

_log: Final = logging.getLogger("elision.gateway")

#: Seconds from one look in the background to the next, and for which a look holds when readiness is asked for.
LOOK_SECONDS: Final = 2.0
FRESH_SECONDS: Final = 1.0
#: Seconds that the store has for its answer. With the pause before it, an outage is known within five.
ANSWER_SECONDS: Final = 2.0


class StoreMonitor:
    """Looks whether `store` can be written. For one event loop, whose other work never waits for it.

    problem: why nothing can be written, "" if it can. on_outage: called each time when that begins. on_return: called
    when a write is tried and succeeds after one failed, whether or not the outage was noticed.
    """

    def __init__(
        self,
        store: Store,
        on_outage: Callable[[], None] = lambda: None,
        on_return: Callable[[], None] = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self.problem = ""
        # A store in memory can always be written.
        self._store = store if isinstance(store, ChecksWrites) else None
        self._on_outage = on_outage
        self._on_return = on_return
        self._clock = clock
        self._answer_seconds = answer_seconds
        self._looked_at = float("-inf")
        #: Whether a write failed since one succeeded here: then only a write shows that the store is back.
        self._is_suspect = False
        #: Whether the look that is going on tries a write.
        self._is_tried = False
        # A thread of its own: those of requests may all be waiting for the store.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elision-store-monitor")
        self._look: asyncio.Future[str] | None = None
        self._background: asyncio.Task[str] | None = None

    def note_request(self, record: RequestRecord) -> None:
        """Note that a request is over: where it could not write, the next look tries to."""
        faults = (fault.kind for step in record.step_diagnostics for fault in step.faults)
        if record.cause == "store" or "store" in faults:
            self._is_suspect = True
            self._looked_at = float("-inf")

    def look_if_due(self) -> None:
        """Begin a look in the background where the last one is long ago."""
        is_idle = self._background is None or self._background.done()
        if is_idle and self._clock() - self._looked_at >= LOOK_SECONDS:
            self._background = asyncio.ensure_future(self.find_problem())

    async def find_problem(self) -> str:
        """Return why nothing can be written, "" if it can; as of the last look if that was just now."""
        if self._store is None or self._clock() - self._looked_at < FRESH_SECONDS:
            return self.problem
        look = self._look
        if look is None:
            # One at a time, however long it takes: a store that hangs holds one thread.
            self._is_tried = self._is_suspect or bool(self.problem)
            look = asyncio.get_running_loop().run_in_executor(self._thread, _find_problem, self._store, self._is_tried)
            self._look = look
            self._is_suspect = False
        await asyncio.wait({look}, timeout=self._answer_seconds)
        if look.done():
            # One of those that wait for the same look tells of its end.
            is_back = self._look is look and self._is_tried and not look.result()
            self._look = None
            self._set_problem(look.result())
            if is_back:
                self._on_return()
        else:
            self._set_problem(f"the store did not answer within {self._answer_seconds:g} s")
        return self.problem

    async def close(self) -> None:
        """Stop looking; a look that hangs is not waited for."""
        if self._background is not None:
            self._background.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _set_problem(self, problem: str) -> None:
        self._looked_at = self._clock()
        if problem and not self.problem:
            _log.error("the store cannot be written, requests continue without it: %s", problem)
            self._on_outage()
        if self.problem and not problem:
            _log.warning("the store can be written again")
        self.problem = problem


def _find_problem(store: ChecksWrites, is_tried: bool) -> str:
    try:
        store.check_writes(is_tried=is_tried)
    except ElisionError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - whatever it is, the store cannot be written
        return describe_error(error)
    return ""


class HealthChecks:
    """Health and readiness.

    is_draining: whether the server stops. is_upstream_reached: of the newest request. is_warm: whether all is loaded
    that the first requests need. leases: of what keys may spend, where that is limited. is_settling: whether what the
    store missed while it was away is still to be written, which is lost with the process.
    """

    def __init__(
        self,
        settings: GatewaySettings,
        monitor: StoreMonitor,
        is_draining: Callable[[], bool],
        is_upstream_reached: Callable[[], bool | None],
        is_warm: Callable[[], bool],
        leases: KeyLeases | None,
        is_settling: Callable[[], bool],
    ) -> None:
        self._settings = settings
        self._monitor = monitor
        self._is_draining = is_draining
        self._is_upstream_reached = is_upstream_reached
        self._is_warm = is_warm
        self._leases = leases
        self._is_settling = is_settling

    def render_alive(self) -> bytes:
        """Return the body of /healthz: any response means alive."""
        return b'{"alive": true}\n'

    async def check_ready(self) -> tuple[bool, bytes]:
        """Return whether the worker is ready, and the body of /readyz, which says what is not.

        Whether the provider is reached, and whether limits of keys are counted, is only reported. A worker that gets no
        requests would never notice that the provider is back, and its clients would get no response instead of an error
        with its cause. A worker that is not warm yet serves requests, and they wait longer.
        """
        problem = await self._monitor.find_problem()
        checks = {
            "store": not problem,
            "stored": not self._is_settling(),
            "upstream_configured": bool(self._settings.upstreams),
            "not_draining": not self._is_draining(),
            "warm": self._is_warm(),
        }
        ready = all(checks.values())
        report: dict[str, object] = {"ready": ready, **checks, "upstream_reached": self._is_upstream_reached()}
        if self._leases is not None:
            report["limits_counted"] = not self._leases.problem
        if problem:
            # Anyone may ask. Where the store is, which an error begins with, is for the log alone.
            report["store_problem"] = problem.partition(": ")[2] or problem
        return ready, json.dumps(report).encode() + b"\n"
