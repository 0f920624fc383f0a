"""Put a gateway together: one store, one pool of connections, a context manager for each session."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from elision.errors import ElisionError, StoreError
from elision.gateway.budgets import SHADOW_PREFIX, Budgets
from elision.gateway.live_sessions import SessionFactory, SessionRegistry
from elision.gateway.proxy import Proxy
from elision.gateway.request_record import RequestListener
from elision.gateway.settings import GatewaySettings
from elision.gateway.upstream import Upstream
from elision.gateway.websocket_relay import WebSocketRelays
from elision.manager.advanced_options import gather_options
from elision.manager.context_options import Options
from elision.manager.opened_session import OpenedSession
from elision.providers.provider import Api
from elision.stores.store import KeepsSecret, Store
from elision.stores.store_urls import FILE_SCHEMES, parse_path
from elision.summarizers.factory import make_summarizer
from elision.trajectory.run_roles import SaidRole

_log: Final = logging.getLogger("elision.gateway")

#: APIs with models whose checked options are kept. Clients may name any model.
MAX_CACHED_OPTIONS: Final = 64


def make_session_factory(settings: GatewaySettings, store: Store) -> SessionFactory:
    """Return a function that opens sessions over `store`, as the settings say."""
    library = settings.library

    @lru_cache(MAX_CACHED_OPTIONS)
    def check_options(api: Api, model: str) -> Options:
        """Return what the sessions of one API and model have in common: their strategy is built once."""
        flat: dict[str, Any] = {
            **library.options(),
            "summarizer": None,
            "redaction": library.redaction,
            "store": store,
            "dialect": api,
            "model": model or library.model or "",
            "write_behind": True,
            "background": True,
            "shadow": settings.shadow,
            "over_budget": "send",
            # A request from which nothing is hidden is sent unchanged.
            "cache_control": "gaps" if library.cache_control == "auto" else "client",
        }
        return Options(**gather_options(flat))

    def open_session(name: str, family: str, api: Api, model: str, parent: str, role: SaidRole) -> OpenedSession:
        writer = make_summarizer(library.summarizer, environment=os.environ, **library.summarizer_options())
        # What is only tried is never gone on with by what is done.
        family = f"{SHADOW_PREFIX}{family}" if settings.shadow else family
        return OpenedSession(check_options(api, model).for_session(name, family, writer, parent, role))

    return open_session


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway without its sockets."""

    proxy: Proxy
    sessions: SessionRegistry
    upstream: Upstream
    sockets: WebSocketRelays

    async def close(self) -> None:
        """Write pending events, and close the connections."""
        await self.sessions.close()
        await self.proxy.budgets.close()
        await self.upstream.close()


def build_gateway(
    settings: GatewaySettings,
    store: Store,
    listener: RequestListener,
    on_lease_failure: Callable[[], None] = lambda: None,
) -> Gateway:
    """Build the gateway that `settings` describe over `store`, which stays the caller's. Raises StoreError.

    on_lease_failure: called each time when what keys spend can be counted no more.
    """
    upstream = Upstream(
        connect_seconds=settings.connect_seconds, read_seconds=settings.read_seconds, proxy_env=settings.proxy_env
    )
    sessions = SessionRegistry(
        make_session_factory(settings, store),
        max_sessions=settings.max_sessions,
        memory_bytes=settings.session_memory_bytes,
        idle_seconds=settings.session_idle_seconds,
    )
    budgets = Budgets(settings, store, on_store_error=_log_unreadable_store, on_lease_failure=on_lease_failure)
    secret = load_gateway_secret(settings, store)
    proxy = Proxy(settings, secret, sessions, upstream, budgets, listener)
    sockets = WebSocketRelays(settings, secret, upstream, budgets, listener)
    return Gateway(proxy, sessions, upstream, sockets)


def _log_unreadable_store(error: ElisionError) -> None:
    _log.error("what a key has spent could not be read, nothing is stopped for that: %s", error)


_BYTES: Final = 32


def load_gateway_secret(settings: GatewaySettings, store: Store) -> bytes:
    """Return the setting `gateway_secret`, or a random secret that is made once.

    It is kept beside a store in files, or in a database; for a store in memory it is not kept. Raises StoreError where
    it cannot be kept.
    """
    if settings.secret is not None:
        return settings.secret.encode()
    fresh = secrets.token_bytes(_BYTES)
    scheme, _, rest = settings.library.store.partition(":")
    if settings.off:
        return fresh
    if scheme in FILE_SCHEMES:
        return keep_in_file(Path(f"{parse_path(rest, scheme).rstrip('/')}.secret"), fresh)
    if isinstance(store, KeepsSecret):
        return store.keep_secret(fresh)
    return fresh


def keep_in_file(path: Path, fresh: bytes) -> bytes:
    """Store `fresh` at `path` for its owner alone; return it, or what is there already. Raises StoreError."""
    try:
        if not path.exists():
            _write_once(path, fresh)
        found = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise StoreError(
            f"{path}: the secret that API keys are hashed with cannot be kept here ({error.strerror}); make the folder "
            "writable, or give one: ELISION_GATEWAY_SECRET"
        ) from error
    except ValueError:
        found = b""
    if len(found) < _BYTES:
        raise StoreError(
            f"{path}: holds no secret ({2 * _BYTES} hex digits); restore the file, or delete it: then the sessions "
            "of every client start again"
        )
    return found


def _write_once(path: Path, fresh: bytes) -> None:
    """Write the whole file or nothing, and never over another's."""
    beside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(fresh.hex().encode() + b"\n")
            out.flush()
            os.fsync(out.fileno())
        os.link(beside, path)
    except FileExistsError:
        # Another gateway was first.
        pass
    finally:
        beside.unlink()
