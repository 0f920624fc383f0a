"""Route a request: its API, its provider, and the address to forward it to.

Matching uses the decoded path, without repeated or trailing slashes. Path and query are forwarded byte for byte. A path
with a `.` or `..` segment has no route: it could leave the provider's address, or end at a page of ours.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

from elision.providers.host import Host
from elision.providers.provider import Api, Provider, Target
from elision.providers.provider_table import DEFAULT_PROVIDER, HOSTS, PROVIDERS

#: Answered by the model; counted only; none of our business.
RequestKind: TypeAlias = Literal["complete", "count", "pass"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """Where one request goes.

    api:      the API of its body; None where it is forwarded unread.
    upstream: which of the providers gets it.
    kind:     what it asks for.
    path:     as the client wrote it, without `/v1` (or, where `is_rooted`, from the provider's root).
    query:    as the client wrote it, without the "?".
    target:   what the path says of the request; None where the body says it.
    """

    api: Api | None
    upstream: str
    kind: RequestKind
    path: bytes
    query: bytes = b""
    is_rooted: bool = False
    target: Target | None = None


def _map_versions() -> dict[bytes, Host | None]:
    """Return each version of an API -> who serves it; None where several do."""
    found: dict[bytes, Host | None] = {}
    for host in HOSTS.values():
        for version in host.versions:
            found[version] = None if version in found else host
    return found


#: First segment of a path -> the provider that it names.
_PREFIXES: Final[Mapping[bytes, Host]] = {name.encode(): host for name, host in HOSTS.items()}
_VERSIONS: Final[Mapping[bytes, Host | None]] = _map_versions()
#: Behind a provider's prefix: what stands beside `/v1`, not below it. Other versions; Claude Code's `/api/...`; Azure's
#: `/openai/deployments/...`.
_ROOTED: Final = re.compile(rb"/(?:v\d\w*|api|deployments)(?:/|$)")
_SLASHES: Final = re.compile(rb"/+")
_VERSION: Final = re.compile(r"v\d\w*")
#: Everything that may stand in a request line; "#" would end the path.
_SAFE: Final = "!\"$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def find_route(method: str, raw_path: bytes, query: bytes, headers: Container[str]) -> Route | None:
    """Return where a request goes; None if it is for no provider. headers: their names, in lower case."""
    segments = unquote_to_bytes(raw_path).replace(b"\\", b"/").split(b"/")
    if raw_path[:1] != b"/" or b".." in segments or b"." in segments:
        return None
    first, slash, rest = raw_path[1:].partition(b"/")
    rest = slash + rest
    if first in _PREFIXES:
        named = _PREFIXES[first]
        version = next((each for each in named.versions if (rest + b"/").startswith(b"/%b/" % each)), b"")
        if version:
            rest = rest[1 + len(version) :]
        elif _ROOTED.match(rest):
            return Route(api=None, upstream=named.name, kind="pass", path=rest, query=query, is_rooted=True)
        return _route_below_version(method, named, version, rest, query, headers)
    if first in _VERSIONS:
        return _route_below_version(method, _VERSIONS[first], first, rest, query, headers)
    return None


def _route_below_version(
    method: str, named: Host | None, version: bytes, rest: bytes, query: bytes, headers: Container[str]
) -> Route:
    """Return the route of a path below an API's version. named: the provider that the path names, if it does.

    version: as the path has it; b"" without one.
    """
    meant = _SLASHES.sub(b"/", unquote_to_bytes(rest)).rstrip(b"/")
    provider, purpose = _find_api(meant) if method == "POST" else (None, "pass")
    target = None
    if provider is not None and provider.read_target is not None and purpose == "complete":
        target = provider.read_target(meant, query)
        if target is None:
            named = named or provider.host
            provider, purpose = None, "pass"
    host = named or (provider.host if provider else _guess_host(meant, headers))
    is_rooted = len(host.versions) > 1
    if is_rooted:
        rest = b"/" + (version or host.versions[0]) + rest
    return Route(
        api=provider.name if provider else None,
        upstream=host.name,
        kind=purpose,
        path=rest,
        query=query,
        is_rooted=is_rooted,
        target=target,
    )


def _find_api(meant: bytes) -> tuple[Provider | None, RequestKind]:
    """Return whose API a POST to a path below the version speaks, and what it asks for."""
    for provider in PROVIDERS.values():
        for pattern, purpose in provider.paths.items():
            if pattern.fullmatch(meant):
                return provider, purpose
    return None, "pass"


def build_url(base: str, route: Route) -> str:
    """Return the address of `route` at the provider whose address is `base`.

    base: an http or https address as the provider's own clients take it: with or without `/v1`, with or without a path
    before it (`https://host/api/v1`). A version in an OpenAI base replaces our `/v1` wherever it is, as in
    `/v1beta/openai` or `/v1/ACCOUNT/GATEWAY/openai`. Anthropic's clients always write `/v1` themselves, so there only
    the last segment counts.
    """
    root, version = _split_base(base, route.upstream)
    place = (root if route.is_rooted else root + version) + quote_from_bytes(route.path, safe=_SAFE)
    return f"{place}?{quote_from_bytes(route.query, safe=_SAFE)}" if route.query else place


def _guess_host(meant: bytes, headers: Container[str]) -> Host:
    """Return the provider of an unknown path below /v1: `/v1/models` and `/v1/files` exist at both."""
    for host in HOSTS.values():
        if (meant + b"/").startswith(host.own_paths) or any(name in headers for name in host.own_headers):
            return host
    return DEFAULT_PROVIDER.host


@lru_cache(maxsize=64)
def _split_base(base: str, host: str) -> tuple[str, str]:
    """Return (root, version) of an address: `https://host/api/v1` is `https://host/api` and `/v1`."""
    base = base.rstrip("/")
    segments = urlsplit(base).path.split("/")
    if _VERSION.fullmatch(segments[-1]):
        return base.removesuffix("/" + segments[-1]), "/" + segments[-1]
    versioned = HOSTS[host].version_anywhere and any(map(_VERSION.fullmatch, segments))
    return base, "" if versioned else "/" + HOSTS[host].versions[0].decode()
