"""Report whether a worker lives, and whether it should be sent requests, to load balancers."""

from __future__ import annotations

import json
from collections.abc import Callable

from elision.gateway.key_leases import KeyLeases
from elision.gateway.settings import GatewaySettings
from elision.gateway.store_monitor import StoreMonitor

#: What is asked -> whether it is as it should be.
Checks = dict[str, bool]


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
        checks: Checks = {
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
