"""Find a gateway that listens already, and where requests went so far."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

from elision.config import Settings
from elision.errors import ElisionError
from elision.gateway.settings import is_loopback
from elision.providers.provider_table import HOSTS
from elision.wrap.agent_table import CLIENT_VARIABLES
from elision.wrap.launch_plan import GATEWAY_VARIABLE

#: Seconds that a gateway has for an answer.
ASK_SECONDS: Final = 2.0
#: A port that nobody gave is the default one.
_PORT: Final = 80
#: Setting of a gateway -> the variables that say where its requests went so far.
_UPSTREAM_VARIABLES: Final = {
    f"gateway_upstream_{host.name}": (host.url_variable, *host.old_url_variables) for host in HOSTS.values()
}


def configured_url(settings: Settings) -> str:
    """Return the address at which the settings let a gateway listen."""
    host = str(settings.gateway["host"])
    if ":" in host:
        host = f"[{host}]"
    return f"http://{host}:{settings.gateway['port']}"


def is_address(url: str) -> bool:
    """Return whether `url` is an http or https address with a host, and with a port that exists if it names one."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


#: What /readyz reports of a gateway that serves requests.
_SERVES: Final = ("store", "upstream_configured", "not_draining")


def is_gateway(url: str) -> bool:
    """Return whether an Elision gateway answers at `url` and can serve, even if it is not warm yet."""
    if not is_address(url) or not url.startswith("http:"):
        return False
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port or _PORT, timeout=ASK_SECONDS)
    try:
        connection.request("GET", "/readyz")
        report = json.loads(connection.getresponse().read())
    except (OSError, HTTPException, ValueError):
        return False
    finally:
        connection.close()
    return isinstance(report, dict) and all(report.get(name) is True for name in _SERVES)


def find_gateway(settings: Settings, environ: Mapping[str, str]) -> str | None:
    """Return the address of a gateway that answers: where clients' variables lead, or as configured; None if none."""
    found = find_gateway_in_use(environ)
    if found is None and is_gateway(configured_url(settings)):
        return configured_url(settings)
    return found


def find_gateway_in_use(environ: Mapping[str, str]) -> str | None:
    """Return the address of the gateway on this machine to which the variables of `environ` lead; None if none."""
    led = [strip_path(environ[name]) for name in (GATEWAY_VARIABLE, *CLIENT_VARIABLES) if environ.get(name)]
    for url in filter(is_address, dict.fromkeys(led)):
        if is_loopback(urlsplit(url).hostname or "") and is_gateway(url):
            return url
    return None


def read_upstreams(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """Return where a gateway must forward requests that clients sent elsewhere so far: setting -> address.

    A setting that the user gave is left out: it decides. Raises ElisionError where a variable holds no address.
    """
    given = {entry.key.name for entry in settings.entries if entry.place != "default"}
    found = {}
    for setting, names in _UPSTREAM_VARIABLES.items():
        name = next((name for name in names if environ.get(name)), "")
        if not name or setting in given:
            continue
        if not is_address(environ[name]):
            # It may hold a password: the value is not shown.
            raise ElisionError(f"{name} is not an http or https address; fix or unset it")
        found[setting] = environ[name]
    return found


def strip_path(base: str) -> str:
    """Return a base URL without `/v1`, `/anthropic` and such at its end: the gateway's own address, if it is one."""
    address = base.rstrip("/").removesuffix("/v1").rstrip("/")
    for name in HOSTS:
        address = address.removesuffix(f"/{name}").rstrip("/")
    return address
