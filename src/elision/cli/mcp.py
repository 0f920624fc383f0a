"""`elision mcp`: stored sessions for hosts of the Model Context Protocol."""

from __future__ import annotations

import ipaddress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated

from elision.cli.declarations import Option
from elision.cli.options import Output, StoreUrl
from elision.errors import MissingExtra, MissingStore, SettingError


def mcp(
    *,
    store: StoreUrl = None,
    session: Annotated[
        str,
        Option(
            "--session",
            help="Show only this session and its relatives: a name or its beginning, or a client's id at "
            "the gateway; default: ELISION_SESSION.",
        ),
    ] = "",
    prefix: Annotated[str, Option("--prefix", help="Show only sessions whose name begins with this.")] = "",
    owner: Annotated[
        str,
        Option("--owner", help="Show only sessions of this family, or of this API key's hash."),
    ] = "",
    listing: Annotated[
        Path | None,
        Option(
            "--session-list",
            help="Show only the sessions named in this file, one per line, and their relatives; the file may grow.",
        ),
    ] = None,
    http: Annotated[bool, Option("--http", help="Serve streamable HTTP instead of standard input.")] = False,
    host: Annotated[str, Option("--host", help="With --http: address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, Option("--port", help="With --http: port to listen on, 0 for a free one.", min=0, max=65_535)
    ] = 8379,
    token: Annotated[
        str,
        Option(
            "--token",
            envvar="ELISION_MCP_TOKEN",
            help="With --http: token that requests must send; required beyond this machine.",
        ),
    ] = "",
    output: Output,
) -> None:
    """Serve stored sessions to hosts of the Model Context Protocol: search, recall, what they cost and why.

    It only reads, so agents and gateways can write to the same store meanwhile. Hosts start it themselves with the
    command `elision mcp --store URL`.
    """
    if output.json and not http:
        raise SettingError("--json prints the address of --http; without it, standard output is the protocol's")
    if http and not token and not is_local(host):
        raise SettingError(f"--host {host}: others could read every session; give --token, or listen at 127.0.0.1")
    server = _import_server()
    from importlib.metadata import version

    from elision.config import load_settings
    from elision.manager.session_history import add_plateau_guard
    from elision.mcp.stored_sessions import SessionScope, StoredSessions
    from elision.stores.store_urls import open_for_reading
    from elision.trajectory.tokens import Sizer, make_counter

    settings = load_settings()
    sessions = StoredSessions(
        open_store=partial(open_for_reading, store or settings.store),
        scope=SessionScope(session=session or settings.session or "", prefix=prefix, owner=owner, listing=listing),
        sizer=Sizer(make_counter("o200k")),
        guards=add_plateau_guard(settings.guards),
    )
    try:
        sessions.find_store()
        output.name_store(store)
    except MissingStore as error:
        # Hosts start their servers first, and agents make the store later.
        output.note(f"elision: {error}; waiting for it")
    served = server.build_mcp_server(sessions, version("elision"))
    try:
        if http:
            server.serve_http(served, host, port, token, lambda bound: _announce(host, bound, server.PATH, output))
        else:
            served.run("stdio")
    finally:
        sessions.close()


def _import_server() -> ModuleType:
    """Return the module that serves. Raises MissingExtra without what it needs."""
    try:
        from elision.mcp import mcp_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types", "pydantic", "uvicorn"):
            raise
        raise MissingExtra("elision mcp", "mcp") from error
    return mcp_server


def is_local(host: str) -> bool:
    """Return whether only this machine reaches `host`."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _announce(host: str, port: int, path: str, output: Output) -> None:
    from elision.lab.report.report import Sentence

    shown = f"[{host}]" if ":" in host else host
    url = f"http://{shown}:{port}{path}"
    output.answer("mcp", {"url": url}, Sentence(f"MCP: {url}", whole=True))
