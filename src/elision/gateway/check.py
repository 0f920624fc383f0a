"""What a gateway needs from elsewhere, tried: its providers, its store, its port."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from elision.config.values import concealed
from elision.errors import ElisionError
from elision.gateway.health import answers
from elision.gateway.routes import Provider, Route, target
from elision.gateway.server import bound
from elision.gateway.settings import GatewaySettings
from elision.gateway.upstream import Upstream, UpstreamError
from elision.stores.store_urls import open_existing, open_store, parse_path

#: Seconds that a provider has for its answer here.
PATIENCE: Final = 10.0
#: What Anthropic wants of every request.
_HEADERS: Final[dict[Provider, list[tuple[bytes, bytes]]]] = {
    "openai": [],
    "anthropic": [(b"anthropic-version", b"2023-06-01")],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One thing that was tried. place: its address, without secrets. said: how it went, in words."""

    what: str
    place: str
    ok: bool
    said: str


async def tried(settings: GatewaySettings) -> list[Tried]:
    """Everything, at once."""
    upstream = Upstream(
        connect_seconds=min(settings.connect_seconds, PATIENCE), read_seconds=PATIENCE, proxy_env=settings.proxy_env
    )
    try:
        providers = await asyncio.gather(*(_provider(upstream, *each) for each in _providers(settings)))
    finally:
        await upstream.close()
    found = list(providers) or [Tried(what="upstream", place="none", ok=False, said="no provider is configured")]
    return [*found, await _store(settings), _port(settings)]


def _providers(settings: GatewaySettings) -> Iterator[tuple[Provider, str]]:
    if settings.upstream_openai:
        yield "openai", settings.upstream_openai
    if settings.upstream_anthropic:
        yield "anthropic", settings.upstream_anthropic


async def _provider(upstream: Upstream, name: Provider, base: str) -> Tried:
    """Ask for its models without a key: whoever refuses that was reached."""
    url = target(base, Route(api=None, upstream=name, kind="pass", path=b"/models"))
    try:
        async with await upstream.open("GET", url, _HEADERS[name]) as answer:
            status = answer.status
    except UpstreamError as error:
        return Tried(what=f"upstream {name}", place=url, ok=False, said=str(error))
    return Tried(what=f"upstream {name}", place=url, ok=status < 500, said=_meaning(status))


def _meaning(status: int) -> str:
    if status in (401, 403):
        return f"reached; it wants a key ({status}), which clients send"
    if status == 404:
        return "reached, but it lists no models there (404): is the address right?"
    if status >= 500:
        return f"reached, but it failed ({status})"
    return f"reached ({status})"


async def _store(settings: GatewaySettings) -> Tried:
    address = settings.library.store
    place = concealed(address)
    if settings.off:
        return Tried(what="store", place=place, ok=True, said="not used: everything only passes")
    if (said := _not_there(address)) is not None:
        return Tried(what="store", place=place, ok=not said, said=said or "not there yet; it is made at the start")
    try:
        store = await asyncio.to_thread(open_store if address.startswith("memory:") else open_existing, address)
    except ElisionError as error:
        return Tried(what="store", place=place, ok=False, said=str(error))
    try:
        ok = await answers(store)
    finally:
        store.close()
    return Tried(what="store", place=place, ok=ok, said="answers" if ok else "does not answer")


def _not_there(address: str) -> str | None:
    """Of a store in files that is not there yet, why it cannot be made, "" if it can; None for any other.

    A store makes its file or folder, and not the folders that it is to stand in.
    """
    scheme, _, rest = address.partition(":")
    if scheme not in ("sqlite", "linear-hash") or (path := Path(parse_path(rest, scheme))).exists():
        return None
    folder = path.absolute().parent
    if not folder.is_dir():
        return f"cannot be made: there is no folder {folder}; make it first"
    if os.access(folder, os.W_OK):
        return ""
    return f"cannot be made: {folder} may not be written to"


def _port(settings: GatewaySettings) -> Tried:
    place = f"{settings.host}:{settings.port}"
    try:
        bound(settings.host, settings.port).close()
    except ElisionError as error:
        return Tried(what="port", place=place, ok=False, said=str(error))
    return Tried(what="port", place=place, ok=True, said="free")
