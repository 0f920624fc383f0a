"""One process's gateway, put together: a store, the door over it, pages, metrics and log around it."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from elision.errors import MissingExtra
from elision.gateway.admin import pages
from elision.gateway.app import App
from elision.gateway.dashboard.pages import routes
from elision.gateway.door import Door
from elision.gateway.health import Health
from elision.gateway.request_log import RequestLog
from elision.gateway.served import Served, Watch
from elision.gateway.sessions import LiveSession
from elision.gateway.settings import GatewaySettings
from elision.stores.memory import MemoryStore
from elision.stores.store import Store
from elision.stores.store_urls import open_store
from elision.trajectory.price_lookup import known_models
from elision.trajectory.tokens import counter

if TYPE_CHECKING:
    from elision.gateway.scrape import Scrape

_log: Final = logging.getLogger("elision.gateway")


class Worker:
    """`app` is what a server runs; `tick` it now and then, and `close` it at the end.

    Raises StoreError, MissingExtra and SettingError where what the settings name cannot be had.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        # A gateway that only passes on keeps nothing, and needs no place for it.
        self.store: Store = MemoryStore() if settings.off else open_store(settings.library.store)
        self._metrics = _metrics()
        watch = _Watches(_watches(self._metrics, settings))
        self.door = Door.of(settings, self.store, watch)
        health = Health(settings, self.store, lambda: self.app.draining, lambda: self.door.upstream.reached)
        dashboard = routes(self.store, guards=settings.library.guards, shadow=settings.shadow, busy=self._busy)
        scraped = None if self._metrics is None else self._page
        self.app = App(settings, self.door.proxy, pages(settings, health, scraped, dashboard), watch)
        if not settings.off:
            # Loading a vocabulary takes a second, and so do lists of prices, which no request should.
            counter(settings.library.tokens).count("warm")
            known_models()

    def tick(self) -> None:
        """Note how things stand, for whichever worker is scraped next."""
        if self._metrics is not None:
            turns = self.app.limits.turns
            memory = self.app.limits.memory
            self._metrics.stand(
                in_flight=turns.taken,
                waiting=turns.waiting + memory.waiting,
                held=memory.taken,
                sessions=len(self.door.sessions),
            )

    def _page(self) -> tuple[str, bytes]:
        assert self._metrics is not None
        self.tick()
        return self._metrics.content_type, self._metrics.page()

    async def close(self) -> None:
        """Write what is not written, and let go of everything."""
        await self.door.close()
        self.store.close()

    def _busy(self) -> frozenset[str]:
        flying = [(live.newest, live.name) for live in self._live() if live.flying]
        return frozenset(name if newest is None else newest.branch for newest, name in flying)

    def _live(self) -> list[LiveSession]:
        """The sessions of this moment. A thread of the dashboard's asks, while the event loop adds and removes some:
        where that falls into the midst of copying, it is begun anew."""
        while True:
            with suppress(RuntimeError):
                return list(self.door.sessions)


class _Watches:
    """Tells several of a served request; what fails in one is logged, and no reason to fail the request."""

    def __init__(self, watches: list[Watch]) -> None:
        self._watches = watches

    def __call__(self, served: Served) -> None:
        for watch in self._watches:
            try:
                watch(served)
            except Exception:  # noqa: BLE001 - a named boundary: telemetry is never a reason to fail a request
                _log.exception("a request could not be counted or logged")


def _metrics() -> Scrape | None:
    try:
        from elision.gateway.scrape import Scrape

        return Scrape()
    except MissingExtra:
        return None
    except OSError as error:
        # Several workers share theirs in files; telemetry is never a reason not to serve.
        _log.error("no metrics of this worker, as their files cannot be written: %s", error)
        return None


def _watches(metrics: Scrape | None, settings: GatewaySettings) -> list[Watch]:
    found: list[Watch] = [] if metrics is None else [metrics.take]
    if settings.log != "none":
        found.append(RequestLog(settings.log, redaction=settings.library.redaction).take)
    return found
