"""Check what a gateway needs from elsewhere: its providers, its store, its port."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elision.config.setting_readers import conceal_password
from elision.errors import ElisionError
from elision.gateway.health import StoreMonitor
from elision.gateway.routes import Route, build_url
from elision.gateway.server import bind_socket
from elision.gateway.settings import GatewaySettings
from elision.gateway.upstream import Upstream, UpstreamError
from elision.providers.host import Host
from elision.providers.provider_table import HOSTS
from elision.stores.store_urls import FILE_SCHEMES, find_state_folder, open_existing, open_store, parse_path

#: Seconds that a provider has for its answer here.
PROVIDER_TIMEOUT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check. address: without secrets. message: what happened."""

    subject: str
    address: str
    is_ok: bool
    message: str


async def run_checks(settings: GatewaySettings) -> list[CheckResult]:
    """Run all checks at once."""
    upstream = Upstream(
        connect_seconds=min(settings.connect_seconds, PROVIDER_TIMEOUT_SECONDS),
        read_seconds=PROVIDER_TIMEOUT_SECONDS,
        proxy_env=settings.proxy_env,
    )
    try:
        providers = await asyncio.gather(
            *(_check_provider(upstream, HOSTS[name], base) for name, base in settings.upstreams.items())
        )
    finally:
        await upstream.close()
    found = list(providers) or [
        CheckResult(subject="upstream", address="none", is_ok=False, message="no provider is configured")
    ]
    return [*found, await _check_store(settings), _check_port(settings)]


async def _check_provider(upstream: Upstream, host: Host, base: str) -> CheckResult:
    """Ask for the provider's models without a key: a refusal means that it was reached."""
    url = build_url(base, Route(api=None, upstream=host.name, kind="pass", path=b"/models"))
    headers = [(name.encode(), value.encode()) for name, value in host.headers.items()]
    try:
        async with await upstream.open("GET", url, headers) as answer:
            status = answer.status
    except UpstreamError as error:
        return CheckResult(subject=f"upstream {host.name}", address=url, is_ok=False, message=str(error))
    return CheckResult(
        subject=f"upstream {host.name}", address=url, is_ok=status < 500, message=_explain_status(status)
    )


def _explain_status(status: int) -> str:
    if status in (401, 403):
        return f"reached; it wants a key ({status}), which clients send"
    if status == 404:
        return "reached, but it lists no models there (404): is the address right?"
    if status >= 500:
        return f"reached, but it failed ({status})"
    return f"reached ({status})"


async def _check_store(settings: GatewaySettings) -> CheckResult:
    address = settings.library.store
    place = conceal_password(address)
    if settings.off:
        return CheckResult(subject="store", address=place, is_ok=True, message="not used: everything only passes")
    if (said := _explain_missing_store(address)) is not None:
        return CheckResult(
            subject="store",
            address=place,
            is_ok=not said,
            message=said or "does not exist yet; it is created at the start",
        )
    try:
        store = await asyncio.to_thread(open_store if address.startswith("memory:") else open_existing, address)
    except ElisionError as error:
        return CheckResult(subject="store", address=place, is_ok=False, message=str(error))
    monitor = StoreMonitor(store)
    try:
        problem = await monitor.find_problem()
    finally:
        await monitor.close()
        store.close()
    return CheckResult(subject="store", address=place, is_ok=not problem, message=problem or "can be written")


def _explain_missing_store(address: str) -> str | None:
    """Return why a missing store in files cannot be made, "" if it can; None for any other store.

    A store makes its file or folder, but not the folder around it, unless that is the default.
    """
    scheme, _, rest = address.partition(":")
    if scheme not in FILE_SCHEMES or (path := Path(parse_path(rest, scheme))).exists():
        return None
    folder = path.absolute().parent
    if folder == find_state_folder():
        # The only folder that a store makes.
        folder = next(each for each in (folder, *folder.parents) if each.is_dir())
    if not folder.is_dir():
        return f"cannot be made: there is no folder {folder}; make it first"
    if os.access(folder, os.W_OK):
        return ""
    return f"cannot be made: {folder} may not be written to"


def _check_port(settings: GatewaySettings) -> CheckResult:
    place = f"{settings.host}:{settings.port}"
    try:
        bind_socket(settings.host, settings.port).close()
    except ElisionError as error:
        return CheckResult(subject="port", address=place, is_ok=False, message=str(error))
    return CheckResult(subject="port", address=place, is_ok=True, message="free")
