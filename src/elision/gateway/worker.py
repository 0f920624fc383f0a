"""Put one process's gateway together: a store, the gateway over it, pages, metrics and log."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from elision.errors import MissingExtra
from elision.gateway.app import Asgi, GatewayApp
from elision.gateway.assembly import build_gateway, serve_sample_requests
from elision.gateway.health import HealthChecks, StoreMonitor
from elision.gateway.live_sessions import LiveSession
from elision.gateway.request_record import RequestListener, RequestLog, RequestRecord, choose_form
from elision.gateway.settings import GatewaySettings
from elision.stores.memory import MemoryStore
from elision.stores.store import Store
from elision.stores.store_urls import open_or_replace
from elision.trajectory.price_lookup import list_models
from elision.trajectory.tokens import make_counter

if TYPE_CHECKING:
    from elision.gateway.request_metrics import MetricsPage

_log: Final = logging.getLogger("elision.gateway")

#: Seconds that a request waits while another process keeps a SQLite file locked; then it goes out without the store.
BUSY_SECONDS: Final = 0.4


class Worker:
    """One process's gateway. `app` is what a server runs; call `warm_up` once, `update_gauges` regularly, then `close`.

    listener: gets every request when it is over, besides metrics and log.
    Raises StoreError, MissingExtra and SettingError where something that the settings name is missing.
    """

    def __init__(self, settings: GatewaySettings, listener: RequestListener | None = None) -> None:
        self._settings = settings
        # A gateway that only passes on keeps nothing, and needs no place for it.
        if settings.off:
            self.store: Store = MemoryStore()
        else:
            self.store, damage = open_or_replace(settings.library.store, busy_seconds=BUSY_SECONDS)
            if damage:
                _log.error("%s", damage)
        self._metrics_page = page = _make_metrics_page()
        self._is_warm = False
        #: Looks whether the store can be written.
        self.monitor = StoreMonitor(
            self.store,
            page.add_store_outage if page is not None else lambda: None,
            lambda: self.gateway.sessions.settle_sessions(),
        )
        listeners = _ListenerGroup([self.monitor.note_request, *_make_listeners(page, settings, listener)])
        self.gateway = build_gateway(
            settings, self.store, listeners, page.add_lease_failure if page is not None else lambda: None
        )
        health = HealthChecks(
            settings,
            self.monitor,
            lambda: self.app.is_draining,
            lambda: self.gateway.upstream.is_reached,
            lambda: self._is_warm,
            self.gateway.proxy.budgets.leases,
            lambda: self.gateway.sessions.is_settling,
        )
        self.app = GatewayApp(
            settings,
            self.gateway.proxy,
            partial(self._make_admin_app, settings, health),
            listeners,
            self.gateway.sockets,
        )

    def warm_up(self) -> None:
        """Load all that requests need: a vocabulary, lists of prices, the own pages, and what sample requests load.

        Call it in a thread of its own: requests are served meanwhile, and wait longer. A second call does nothing.
        """
        if self._is_warm:
            return
        try:
            if not self._settings.off:
                counter = make_counter(self._settings.library.tokens)
                # The fast encoder counts the one, and leaves the other to the reference.
                for text in ("warm", "गर्म"):
                    counter.count(text)
                list_models()
                serve_sample_requests(self._settings)
            _ = self.app.admin
        finally:
            # A worker that could not load something serves all the same.
            self._is_warm = True

    def _make_admin_app(self, settings: GatewaySettings, health: HealthChecks) -> Asgi:
        # A tenth of a second to import, which requests to a provider do not need.
        from elision.gateway.dashboard.pages import make_admin_app, make_routes

        dashboard = make_routes(
            self.store, guards=settings.library.guards, shadow=settings.shadow, busy=self._list_busy_sessions
        )
        scraped = None if self._metrics_page is None else self._render_metrics
        return make_admin_app(settings, health, scraped, dashboard)

    def update_gauges(self) -> None:
        """Update the gauges of this worker: any worker may be scraped next."""
        if self._metrics_page is not None:
            turns = self.app.limits.request_gate
            memory = self.app.limits.memory_gate
            self._metrics_page.set_gauges(
                in_flight=turns.in_use,
                waiting=turns.waiting + memory.waiting,
                held_bytes=memory.in_use,
                sessions=len(self.gateway.sessions),
            )

    def _render_metrics(self) -> tuple[str, bytes]:
        assert self._metrics_page is not None
        self.update_gauges()
        return self._metrics_page.content_type, self._metrics_page.render()

    async def close(self) -> None:
        """Write pending events, and close everything."""
        await self.gateway.close()
        await self.monitor.close()
        self.store.close()

    def _list_busy_sessions(self) -> frozenset[str]:
        sessions: list[LiveSession] | None = None
        while sessions is None:
            # In a thread of the dashboard: a copy is made again where the event loop disturbs it.
            with suppress(RuntimeError):
                sessions = list(self.gateway.sessions)
        busy = [(session.newest_diagnostics, session.name) for session in sessions if session.is_busy]
        return frozenset(name if newest is None else newest.branch for newest, name in busy)


class _ListenerGroup:
    """Calls several listeners. A failing listener is logged, and does not fail the request."""

    def __init__(self, listeners: list[RequestListener]) -> None:
        self._listeners = listeners

    def __call__(self, record: RequestRecord) -> None:
        for watch in self._listeners:
            try:
                watch(record)
            except Exception:  # noqa: BLE001 - a named boundary: telemetry is never a reason to fail a request
                _log.exception("a request could not be counted or logged")


def _make_metrics_page() -> MetricsPage | None:
    try:
        from elision.gateway.request_metrics import MetricsPage

        return MetricsPage()
    except MissingExtra:
        return None
    except OSError as error:
        # Several workers share theirs in files; telemetry is never a reason not to serve.
        _log.error("no metrics of this worker, as their files cannot be written: %s", error)
        return None


def _make_listeners(
    metrics: MetricsPage | None, settings: GatewaySettings, listener: RequestListener | None
) -> list[RequestListener]:
    found: list[RequestListener] = [] if metrics is None else [metrics.add_request]
    if listener is not None:
        found.append(listener)
    form = choose_form(settings.log)
    if form != "none":
        found.append(RequestLog(form, redaction=settings.library.redaction).log_request)
    return found
