"""`elision wrap`: a coding agent behind a gateway, with nothing of the user's edited."""

from __future__ import annotations

import logging
import os
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from elision.cli.declarations import Argument, Option
from elision.cli.options import Json, Quiet, StoreUrl
from elision.errors import ElisionError, MissingExtra, StoreError

if TYPE_CHECKING:
    from elision.config import Settings
    from elision.gateway.request_record import RequestRecord
    from elision.stores.store import SessionInfo
    from elision.wrap.agent_table import Agent


#: The file, in the agent's temporary folder, that names the sessions of its requests.
_LISTING: Final = "sessions.txt"


@dataclass(slots=True)
class _GatewayInUse:
    """store: where it keeps sessions, as far as known. is_own: whether it ends with the agent. used: its sessions."""

    url: str
    store: str
    is_own: bool
    used: _UsedSessions | None = None


class _UsedSessions:
    """The sessions of the requests so far, by name; also in a file, one a line, once `list_in` names one.

    failed: requests that ended with an error of the provider or of the gateway, by status.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.failed: Counter[int] = Counter()
        self._listing: Path | None = None

    def list_in(self, path: Path) -> None:
        self._listing = path

    def add_request(self, record: RequestRecord) -> None:
        if record.status >= HTTPStatus.BAD_REQUEST:
            self.failed[record.status] += 1
        if record.session and record.session not in self.names:
            self.names.add(record.session)
            if self._listing is not None:
                with self._listing.open("a", encoding="utf-8") as file:
                    file.write(f"{record.session}\n")


def wrap(
    command: Annotated[
        list[str] | None,
        Argument(help="An agent and its own arguments; or any other program."),
    ] = None,
    gateway: Annotated[
        str | None, Option("--gateway", help="Use this gateway; default: the running one, or a new one.")
    ] = None,
    store: StoreUrl = None,
    strategy: Annotated[
        str | None, Option("--strategy", "-s", help="Strategy of a new gateway, such as 'masking(window=20)'.")
    ] = None,
    shadow: Annotated[
        bool | None, Option("--shadow", help="Start a new gateway that decides and reports, but changes nothing.")
    ] = None,
    mcp: Annotated[
        bool, Option("--mcp", help="Start a new gateway, and offer hidden results to the agent by MCP.")
    ] = False,
    only_print: Annotated[
        bool, Option("--print", help="Print the variables and the command instead of running it.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Run a coding agent behind a gateway: claude, codex, opencode, pi and others, or any command.

    Only environment variables and flags configure the agent; none of your files is edited. The agent's own arguments
    follow its name, and the exit code is the agent's. Standard error shows the address of the dashboard, and at the end
    what was saved.
    """
    # Slow to import, and help needs none of it.
    from elision.config import TypedOption, load_settings
    from elision.config.setting_keys import PREFIX, SPECIFIED_PREFIX
    from elision.wrap.agent_table import AGENTS, make_command_agent
    from elision.wrap.launch_plan import check_agent
    from elision.wrap.mcp_option import offer_mcp_server

    if not command:
        names = ", ".join(row.name for row in AGENTS.values() if not row.refusal)
        raise ElisionError(f"name an agent ({names}), or any other program: elision wrap -- COMMAND")
    agent = AGENTS.get(command[0]) or make_command_agent(command[0])
    arguments = command[1:]
    given: dict[str, Any] = {
        "store": TypedOption("--store", store),
        "strategy": TypedOption("--strategy", strategy),
        "gateway_shadow": TypedOption("--shadow", shadow),
    }
    if mcp:
        given["recall"] = TypedOption("--mcp", "caller")
    settings = load_settings(**given)
    if only_print and mcp:
        raise ElisionError("--mcp needs a new gateway, which --print does not start")
    if only_print:
        _print_launch(agent, arguments, _choose_printed_url(gateway, settings, quiet=quiet), as_json=json)
        return
    check_agent(agent, os.environ)
    needs_own = mcp or any(each is not None for each in (store, strategy, shadow))
    if gateway is not None and needs_own:
        raise ElisionError(
            "--gateway: that gateway has its own settings; give --store, --strategy and --shadow to it, and "
            "leave out --mcp"
        )
    began = time.time()
    with _open_gateway(gateway, settings, given, needs_own=needs_own) as door:
        if mcp:
            # Both names of the setting: the user's own environment may have either.
            variables = {f"{prefix}STORE": door.store for prefix in (PREFIX, SPECIFIED_PREFIX)}
            agent = offer_mcp_server(agent, _make_mcp_command(door.store), variables)
        if door.is_own and not quiet and not json:
            click.echo(f"elision: dashboard, until {agent.name} ends: {door.url}/", err=True)
        code = _run_agent(agent, arguments, door)
    if json:
        from elision.cli.outputs import print_json

        print_json("wrap", {"exit_code": code, **_encode_savings(door, began)})
    elif not quiet:
        click.echo(f"elision: {_describe_savings(door, began)}", err=True)
    if code:
        raise click.exceptions.Exit(code)


def _make_mcp_command(store: str) -> list[str]:
    """Return the command of a server that shows the sessions of this agent alone. Raises MissingExtra, ElisionError."""
    if find_spec("mcp") is None:
        raise MissingExtra("elision wrap --mcp", "mcp")
    if store.startswith("memory:"):
        raise ElisionError("--mcp: no other process reads a store in memory; give another --store")
    # Without -P, modules of the user's project would come before ours.
    from elision.wrap.agent_table import FOLDER

    return [sys.executable, "-P", "-m", "elision", "mcp", "--session-list", f"{FOLDER}/{_LISTING}"]


def _run_agent(agent: Agent, arguments: list[str], door: _GatewayInUse) -> int:
    from elision.wrap.launch_plan import plan_launch
    from elision.wrap.program_runner import run_program

    # Names of sessions are listed before the gateway ends, and the folder is removed after that.
    with tempfile.TemporaryDirectory(prefix="elision-") as folder:
        if door.used is not None:
            door.used.list_in(Path(folder) / _LISTING)
        plan = plan_launch(agent, arguments, door.url, Path(folder), os.environ)
        for path, text in plan.files.items():
            path.write_text(text, encoding="utf-8")
        return run_program(plan.command, {**os.environ, **plan.variables})


# -- the gateway ------------------------------------------------------------------------------------------------------


@contextmanager
def _open_gateway(
    asked: str | None, settings: Settings, given: Mapping[str, Any], *, needs_own: bool
) -> Iterator[_GatewayInUse]:
    """Use the gateway `asked` for, the running one, or one in a thread of this process, which ends with it."""
    # An extra serves, and help must do without it.
    from elision.gateway.gateway_thread import GatewayThread
    from elision.gateway.settings import gateway_settings
    from elision.wrap.gateway_finder import find_gateway, is_gateway, read_upstreams, strip_path

    if asked is not None:
        url = strip_path(asked)
        if not is_gateway(url):
            raise ElisionError(f"--gateway {url}: no gateway answers there; start one with `elision serve`")
        yield _GatewayInUse(url, settings.store, is_own=False)
        return
    running = None if needs_own else find_gateway(settings, os.environ)
    if running is not None:
        yield _GatewayInUse(running, settings.store, is_own=False)
        return
    options = {**given, **read_upstreams(settings, os.environ)}
    # The terminal is the agent's: nothing is logged to it.
    logger = logging.getLogger("elision")
    logger.addHandler(logging.NullHandler())
    logger.propagate = False
    used = _UsedSessions()
    found = gateway_settings(**{**options, "gateway_port": 0, "gateway_log": "none"})
    with GatewayThread(found, used.add_request) as thread:
        yield _GatewayInUse(thread.url, settings.store, is_own=True, used=used)


# -- without running it -----------------------------------------------------------------------------------------------


def _choose_printed_url(asked: str | None, settings: Settings, *, quiet: bool) -> str:
    from elision.wrap.gateway_finder import configured_url, find_gateway

    found = asked or find_gateway(settings, os.environ)
    if found is None:
        found = configured_url(settings)
        if not quiet:
            click.echo(f"elision: no gateway answers at {found} yet; start it with `elision serve`", err=True)
    return found.rstrip("/")


def _print_launch(agent: Agent, arguments: list[str], url: str, *, as_json: bool) -> None:
    """Print `export` lines, which sh, bash, zsh, fish and direnv read, and the command as a comment."""
    if agent.refusal:
        raise ElisionError(f"{agent.name}: {agent.refusal}")
    if agent.files:
        names = ", ".join(agent.files)
        raise ElisionError(f"{agent.name} reads a temporary file ({names}) that --print does not write; omit --print")
    from elision.cli.outputs import print_json
    from elision.wrap.launch_plan import plan_launch

    plan = plan_launch(agent, arguments, url, Path(), os.environ)
    if as_json:
        print_json("wrap --print", {"variables": dict(plan.variables), "arguments": list(plan.command)})
        return
    for name, value in plan.variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    click.echo(f"# {shlex.join(plan.command)}")


# -- what was saved ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Savings:
    """What the sessions of an agent sent, and what hiding saved. sessions: None where their store cannot be read."""

    sessions: tuple[str, ...] | None = None
    calls: int = 0
    sent_tokens: int = 0
    raw_tokens: int = 0
    saved_usd: float = 0.0
    store: str = ""


def _read_savings(door: _GatewayInUse, began: float) -> _Savings:
    """Return what was saved since `began`. Raises ElisionError where the store cannot be read."""
    from elision.cli.session_figures import FigureReader
    from elision.config import load_settings
    from elision.manager.session_history import add_plateau_guard, load_session_log
    from elision.stores.store_urls import locate_store, open_existing
    from elision.trajectory.tokens import Sizer, make_counter

    settings = load_settings()
    try:
        store = open_existing(door.store)
    except StoreError:
        if door.is_own:
            raise
        return _Savings()
    sizer = Sizer(make_counter("o200k"))
    guards = add_plateau_guard(settings.guards)
    figures = FigureReader(store, locate_store(door.store), settings.guards)
    with closing(store):
        changed: list[SessionInfo] = [info for info in store.sessions() if info.changed >= began]
        if door.used is not None:
            # Other agents may use the same store.
            names = door.used.names
            changed = [info for info in changed if info.key in names or info.parent in names]
        reports = [load_session_log(store, info, sizer, guards, None).build_report() for info in changed]
    for info, report in zip(changed, reports, strict=True):
        figures.keep(info, report)
    figures.save()
    return _Savings(
        sessions=tuple(info.key for info in changed),
        calls=sum(len(report.calls) for report in reports),
        sent_tokens=sum(report.sent_tokens for report in reports),
        raw_tokens=sum(report.raw_tokens for report in reports),
        saved_usd=sum(report.final.costs.hiding for report in reports if report.final is not None),
        store="" if settings.store == door.store else door.store,
    )


def _encode_savings(door: _GatewayInUse, began: float) -> dict[str, Any]:
    try:
        return asdict(_read_savings(door, began)) | {"store": door.store, "problem": None}
    except ElisionError as error:
        return {"problem": str(error)}


def _describe_savings(door: _GatewayInUse, began: float) -> str:
    """Return one line: the calls since `began`, what hiding saved in their sessions, and how to see it."""
    from elision.config.setting_readers import conceal_password
    from elision.lab.report import figures

    if door.is_own and door.store.startswith("memory:"):
        return "sessions were kept only in memory and are gone; use another --store to see what was saved"
    try:
        found = _read_savings(door, began)
    except ElisionError as error:
        return f"what was saved cannot be read: {error}"
    if found.sessions is None:
        return f"the gateway at {door.url} keeps running; its dashboard shows what was saved"
    if not found.sessions:
        if door.is_own:
            return "no request came through the gateway: the agent called no model, or not at the given "
            "address; run `elision doctor`"
        return f"see what was saved: {door.url}/"
    look = "elision sessions"
    if len(found.sessions) == 1:
        look += f" show {shlex.quote(found.sessions[0])}"
    place = conceal_password(door.store)
    look += f" --store {shlex.quote(place)}" if found.store else f" (store: {place})"
    if found.saved_usd < 0:
        effect = f"hiding cost {figures.format_usd(-found.saved_usd)} more"
    else:
        effect = f"hiding saved {figures.format_usd(found.saved_usd)}"
    tokens = f"{figures.format_tokens(found.sent_tokens)} of {figures.format_tokens(found.raw_tokens)} tokens sent"
    failed = ""
    if door.used is not None and door.used.failed:
        statuses = ", ".join(map(str, sorted(door.used.failed)))
        failed = f"{figures.format_plural(door.used.failed.total(), 'request')} failed (status {statuses}), "
    return f"{figures.format_plural(found.calls, 'call')}, {failed}{tokens}, {effect}: {look}"
