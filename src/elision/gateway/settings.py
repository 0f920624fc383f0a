"""The settings of a gateway as one frozen value: its own, and those of all its sessions."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from elision.config import OPTION, Settings, load_settings
from elision.errors import SettingError
from elision.providers.provider_table import HOSTS
from elision.stores.store_urls import STORE_KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """`docs/reference/settings.md` has the meanings and defaults. Raises SettingError.

    upstreams: host -> where requests to it go, for the hosts that have an address.
    library: strategy, store and all else that a session goes by; `library.options()` are a ContextManager's.
    Sizes are bytes, of one worker. A limit that is None is none.
    """

    host: str
    port: int
    workers: int
    admin_token: str | None = field(repr=False)
    secret: str | None = field(repr=False)
    log: Literal["auto", "none", "text", "json"]
    upstreams: Mapping[str, str]
    connect_seconds: float
    read_seconds: float
    proxy_env: bool
    off: bool
    shadow: bool
    pin_tools: bool
    max_read_bytes: int
    max_body_bytes: int
    memory_bytes: int
    max_concurrent: int
    max_waiting: int
    wait_seconds: float
    body_seconds: float
    drain_seconds: float
    max_sessions: int
    session_memory_bytes: int
    session_idle_seconds: float
    session_max_cost_usd: float | None
    session_max_turns: int | None
    key_max_cost_usd: float | None
    key_max_turns: int | None
    key_requests_per_minute: int | None
    at_limit: Literal["hint", "refuse"]
    library: Settings = field(repr=False)

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.admin_token is None:
            raise SettingError(
                f"{self._name_setting('host')} {self.host!r}: others can reach it there, and dashboard and metrics "
                "would be open to them; give an admin token (ELISION_GATEWAY_ADMIN_TOKEN), or listen at 127.0.0.1"
            )
        scheme = self.library.store.partition(":")[0]
        if self.workers > 1 and not STORE_KINDS[scheme].is_shared:
            raise SettingError(
                f"{self._name_setting('workers')} {self.workers}: a store at {scheme}: serves one process; give "
                "another store, such as sqlite: or postgresql://..., or one worker"
            )
        if self.workers > 1 and self.key_requests_per_minute is not None and not scheme.startswith("postgres"):
            raise SettingError(
                f"{self._name_setting('key_requests_per_minute')}: {self.workers} workers count together in PostgreSQL "
                f"only; give a store at postgresql://..., or one worker"
            )
        if self.max_read_bytes > self.memory_bytes:
            raise SettingError(
                f"gateway_max_read_bytes {self.max_read_bytes:_}: more than gateway_memory_bytes "
                f"{self.memory_bytes:_} can hold; lower the first, or raise the second"
            )

    def _name_setting(self, name: str) -> str:
        """Return a setting's name as the user gave it: the option, or the setting."""
        place = next((each.place for each in self.library.entries if each.key.name == f"gateway_{name}"), "")
        return place if place.startswith(OPTION) else f"gateway_{name}"

    @property
    def shared(self) -> bool:
        """Return whether other processes may serve the same sessions."""
        return self.workers > 1 or self.library.store.startswith("postgres")


def gateway_settings(
    environ: Mapping[str, str] | None = None, folder: Path | None = None, **arguments: object
) -> GatewaySettings:
    """Return the effective settings, as `elision.config.load_settings` finds them.

    arguments: named as `elision doctor --settings` shows them, such as gateway_port and store. Raises SettingError.
    """
    found = load_settings(environ, folder, **arguments)
    own = dict(found.gateway)
    addresses = {name: own.pop(f"upstream_{name}") for name in HOSTS}
    upstreams = {name: address for name, address in addresses.items() if address}
    return GatewaySettings(**own, upstreams=upstreams, library=found)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches `host`: a loopback address, or the name localhost."""
    name = host.strip("[]").lower().rstrip(".")
    try:
        return name == "localhost" or name.endswith(".localhost") or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
