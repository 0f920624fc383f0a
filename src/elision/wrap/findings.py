"""Find out whether agents on this machine reach a gateway: what is installed, set, answering and used.

A gateway that listens already is found here, and where requests went so far.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit

from elision.config import Settings
from elision.config.setting_readers import conceal_password
from elision.errors import ElisionError, MissingExtra, MissingStore
from elision.gateway.settings import is_loopback
from elision.providers.provider_table import HOSTS
from elision.stores.store_errors import CHECK_COMMAND
from elision.stores.store_urls import open_for_reading
from elision.wrap.agent_table import AGENTS, CLIENT_VARIABLES, Agent
from elision.wrap.launch_plan import GATEWAY_VARIABLE, fill_variables

#: Seconds that a gateway has for an answer.
ASK_SECONDS: Final = 2.0
#: A port that nobody gave is the default one.
_PORT: Final = 80

#: What /readyz reports of a gateway that serves requests.
_SERVES: Final = ("store", "upstream_configured", "not_draining")
#: Setting of a gateway -> the variables that say where its requests went so far.
_UPSTREAM_VARIABLES: Final = {
    f"gateway_upstream_{host.name}": (host.url_variable, *host.old_url_variables) for host in HOSTS.values()
}

#: Extra -> a package that it brings.
_EXTRAS: Final[Mapping[str, str]] = {
    "gateway": "uvicorn",
    "postgres": "psycopg",
    "prometheus": "prometheus_client",
    "otel": "opentelemetry",
    "mcp": "mcp",
    "report": "resvg_py",
    "tune": "optuna",
}
_KEYS: Final = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY")


@dataclass(frozen=True, slots=True)
class SetupFinding:
    """One thing that was looked at.

    status: "failed" where something that is set cannot work. fix: what to do, "" for nothing. No value of a variable
    is in either text.
    """

    subject: str
    status: Literal["ok", "note", "failed"]
    message: str
    fix: str = ""


def collect_findings(settings: Settings, environ: Mapping[str, str]) -> list[SetupFinding]:
    """Look at everything, in the order in which it is needed. No provider is asked, and nothing is written."""
    url = find_gateway(settings, environ)
    keys = [name for name in _KEYS if environ.get(name)]
    key_finding = SetupFinding("API keys", "note", "none is set; agents that are logged in need none")
    if keys:
        key_finding = SetupFinding("API keys", "ok", f"set: {', '.join(keys)}")
    # Each agent on the PATH: whether it can be wrapped, and whether it reaches the gateway as it is.
    agents = [
        _check_agent_environment(agent, environ, url)
        for agent in AGENTS.values()
        if shutil.which(agent.binary, path=environ.get("PATH"))
    ]
    if not agents:
        names = ", ".join(AGENTS)
        agents = [SetupFinding("agents", "note", f"none on the PATH of: {names}", "elision wrap -- COMMAND")]
    return [
        *_check_installation(),
        _check_gateway(settings, url),
        *_check_base_urls(environ, url),
        key_finding,
        *agents,
        _check_sessions(settings),
    ]


def _check_installation() -> Iterator[SetupFinding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield SetupFinding("elision", "ok", f"{version('elision')} on Python {python}")
    missing = [extra for extra, package in _EXTRAS.items() if find_spec(package) is None]
    if "gateway" in missing:
        error = MissingExtra("the gateway", "gateway")
        yield SetupFinding("extras", "failed", "gateway is not installed", str(error))
        return
    if missing:
        message = f"gateway is installed; not installed, and only needed for their features: {', '.join(missing)}"
    else:
        message = "all are installed"
    yield SetupFinding("extras", "ok", message)


def _check_gateway(settings: Settings, url: str | None) -> SetupFinding:
    if url is not None:
        return SetupFinding("gateway", "ok", f"answers at {url}, and is ready")
    return SetupFinding(
        "gateway", "note", f"none answers at {configured_url(settings)}", "elision serve; elision wrap AGENT needs none"
    )


def _check_base_urls(environ: Mapping[str, str], url: str | None) -> Iterator[SetupFinding]:
    """Report each base URL that is set: to the gateway, past it, or to a port of this machine where none answers."""
    for name in CLIENT_VARIABLES:
        base = environ.get(name, "")
        if not base:
            continue
        if not is_address(base):
            yield SetupFinding(name, "failed", "set, but not an http or https address", f"fix or unset {name}")
        elif url is not None and strip_path(base) == url:
            yield SetupFinding(name, "ok", "set; leads to the gateway")
        elif is_loopback(urlsplit(base).hostname or ""):
            yield SetupFinding(
                name,
                "failed",
                "set; leads to this machine, where no gateway answers",
                f"elision serve at that port, or unset {name}",
            )
        else:
            yield SetupFinding(name, "note", "set; leads past the gateway", "elision wrap forwards requests there")


def _check_agent_environment(agent: Agent, environ: Mapping[str, str], url: str | None) -> SetupFinding:
    if agent.refusal:
        return SetupFinding(agent.name, "note", "found; cannot be wrapped", agent.refusal)
    for name, why in agent.clashes.items():
        if environ.get(name, "") not in ("", "0", "false"):
            return SetupFinding(agent.name, "failed", f"found; {name} is set: {why}", f"unset {name}")
    missing = [name for name in agent.needs if not environ.get(name)]
    if missing:
        return SetupFinding(
            agent.name,
            "note",
            f"found; to be wrapped it needs {' and '.join(missing)}",
            f"set {missing[0]}: {agent.needs[missing[0]]}",
        )
    overridden = _find_overridden(agent, environ)
    if overridden:
        return SetupFinding(
            agent.name,
            "failed",
            f"found; ~/{agent.env_file} sets {overridden}, which wins, so requests bypass the gateway",
            f"remove it there and export {overridden}: the gateway forwards requests to it",
        )
    if url is not None and agent.environment and not agent.arguments:
        try:
            wanted = fill_variables(agent.environment, url, "", environ)
        except ElisionError as error:
            return SetupFinding(agent.name, "failed", "found; cannot be wrapped", str(error))
        if all(environ.get(name) == wanted[name] for name in agent.environment):
            return SetupFinding(agent.name, "ok", "found; its requests go to the gateway")
    return SetupFinding(
        agent.name, "note", "found; started by itself it does not use the gateway", f"elision wrap {agent.name}"
    )


def _find_overridden(agent: Agent, environ: Mapping[str, str]) -> str:
    """Return the variable of `agent` that its own settings file sets too; "" if none, or if it cannot be read."""
    if not agent.env_file:
        return ""
    try:
        settings = json.loads((Path(environ.get("HOME", "")) / agent.env_file).read_bytes())
    except (OSError, ValueError):
        return ""
    own = settings.get("env") if isinstance(settings, dict) else None
    if not isinstance(own, dict):
        return ""
    return next((name for name in agent.environment if name in own and name in CLIENT_VARIABLES), "")


def _check_sessions(settings: Settings) -> SetupFinding:
    """Report the newest session of the store: the sign that requests came through."""
    shown = conceal_password(settings.store)
    if settings.store.startswith("memory:"):
        return SetupFinding("sessions", "note", "kept in memory; lost when the gateway ends")
    try:
        with closing(open_for_reading(settings.store)) as store:
            sessions = store.sessions()
    except MissingStore:
        return SetupFinding("sessions", "note", f"{shown}: not there; the first request makes it")
    except ElisionError as error:
        return SetupFinding("sessions", "failed", f"{shown}: {error}", f"{CHECK_COMMAND}, or --store")
    if not sessions:
        return SetupFinding("sessions", "ok", f"{shown}: none yet")
    minutes = max(0.0, time.time() - sessions[0].changed) / 60
    message = f"{shown}: {len(sessions):,}, the newest of {minutes:,.0f} min ago"
    return SetupFinding("sessions", "ok", message)


# -- gateways that listen ----------------------------------------------------------------------------------------------


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
