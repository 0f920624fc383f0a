"""The parts of a gateway, put together: one store, one pool of connections, a context manager for each session."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from elision.dialects.capabilities import find_capabilities
from elision.errors import ElisionError
from elision.gateway.budgets import SHADOW, Budgets
from elision.gateway.proxy import Proxy
from elision.gateway.routes import Api
from elision.gateway.secret import gateway_secret
from elision.gateway.served import Watch
from elision.gateway.sessions import Maker, Sessions
from elision.gateway.settings import GatewaySettings
from elision.gateway.upstream import Upstream
from elision.manager import ContextManager
from elision.stores.store import Store

_log: Final = logging.getLogger("elision.gateway")

Offer: TypeAlias = Literal["first", "start", "never"]


def offer(settings: GatewaySettings, api: Api, model: str) -> Offer:
    """When the recall tools enter a session's tools: with its first gap, where nothing is bound to what stands in front
    of it."""
    if not settings.recall:
        return "never"
    if api == "anthropic" and find_capabilities(model).binds_thinking:
        return settings.recall_bound
    return "first"


def maker(settings: GatewaySettings, store: Store) -> Maker:
    """Makes context managers over `store`, as the settings say."""

    def make(name: str, family: str, api: Api, model: str) -> ContextManager:
        return ContextManager.from_settings(
            settings.library,
            os.environ,
            store=store,
            session=name,
            # What is only tried is never gone on with by what is done.
            family=f"{SHADOW}{family}" if settings.shadow else family,
            dialect=api,
            model=model or settings.library.model or "",
            write_behind=True,
            background=True,
            shadow=settings.shadow,
            over_budget="send",
            offer=offer(settings, api, model),
            # A request from which nothing is hidden goes out as it came.
            cache_control="gaps" if settings.library.cache_control == "auto" else "client",
        )

    return make


@dataclass(frozen=True, slots=True)
class Door:
    """A gateway without its sockets."""

    proxy: Proxy
    sessions: Sessions
    upstream: Upstream

    @classmethod
    def of(cls, settings: GatewaySettings, store: Store, watch: Watch) -> Door:
        """The door that `settings` describe, over `store`, which stays the caller's. Raises StoreError."""
        sessions = Sessions(
            maker(settings, store),
            most=settings.max_sessions,
            memory_bytes=settings.session_memory_bytes,
            idle_seconds=settings.session_idle_seconds,
        )
        upstream = Upstream(
            connect_seconds=settings.connect_seconds, read_seconds=settings.read_seconds, proxy_env=settings.proxy_env
        )
        budgets = Budgets(settings, store, unread=_unread)
        secret = gateway_secret(settings, store)
        return cls(Proxy(settings, secret, sessions, upstream, budgets, watch), sessions, upstream)

    async def close(self) -> None:
        """Write what is not written yet, and let go of the connections."""
        await self.sessions.close()
        await self.upstream.close()


def _unread(error: ElisionError) -> None:
    _log.error("what a key has spent could not be read, nothing is stopped for that: %s", error)
