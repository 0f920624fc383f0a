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
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import click

from elision.cli.declarations import Argument, Option
from elision.cli.options import Output, StoreUrl
from elision.errors import ElisionError, MissingExtra, StoreError

if TYPE_CHECKING:
    from elision.cli.session_figures import SessionFigures
    from elision.config import Settings
    from elision.gateway.request_record import RequestRecord
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


@dataclass(slots=True)
class _UsedSessions:
    """The sessions of the requests so far, by name; also in the file `listing`, one a line, once it is known.

    failed: requests that ended with an error of the provider or of the gateway, by status.
    """

    names: set[str] = field(default_factory=set)
    failed: Counter[int] = field(default_factory=Counter)
    listing: Path | None = None

    def add_request(self, record: RequestRecord) -> None:
        if record.status >= HTTPStatus.BAD_REQUEST:
            self.failed[record.status] += 1
        if record.session and record.session not in self.names:
            self.names.add(record.session)
            if self.listing is not None:
                with self.listing.open("a", encoding="utf-8") as file:
                    file.write(f"{record.session}\n")


def wrap(
    *,
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
    output: Output,
) -> None:
    """Run a coding agent behind a gateway: claude, codex, opencode, pi and others, or any command.

    Only environment variables and flags configure the agent; none of your files is edited. The agent's own arguments
    follow its name, and the exit code is the agent's. Standard error shows the address of the dashboard, and at the end
    what was saved.
    """
    # Slow to import, and help needs none of it.
    from elision.config import TypedOption, load_settings
    from elision.wrap.launch_plan import check_agent

    agent = _choose_agent(command or [])
    arguments = (command or [])[1:]
    given: dict[str, Any] = {
        "store": TypedOption("--store", store),
        "strategy": TypedOption("--strategy", strategy),
        "gateway_shadow": TypedOption("--shadow", shadow),
    }
    if mcp:
        given["recall"] = TypedOption("--mcp", "caller")
    settings = load_settings(**given)
    if only_print:
        if mcp:
            raise ElisionError("--mcp needs a new gateway, which --print does not start")
        _print_launch(agent, arguments, gateway, settings, output)
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
            agent = _offer_store(agent, door.store)
        if door.is_own and not output.json:
            output.note(f"elision: dashboard, until {agent.name} ends: {door.url}/")
        code = _run_agent(agent, arguments, door)
    _report_savings(door, began, code, output)
    if code:
        raise click.exceptions.Exit(code)


def _choose_agent(command: list[str]) -> Agent:
    from elision.wrap.agent_table import AGENTS, make_command_agent

    if not command:
        names = ", ".join(row.name for row in AGENTS.values() if not row.refusal)
        raise ElisionError(f"name an agent ({names}), or any other program: elision wrap -- COMMAND")
    return AGENTS.get(command[0]) or make_command_agent(command[0])


def _offer_store(agent: Agent, store: str) -> Agent:
    """Return `agent` with an MCP server that shows the sessions of this agent. Raises MissingExtra, ElisionError."""
    from elision.config.setting_keys import PREFIX, SPECIFIED_PREFIX
    from elision.wrap.agent_table import FOLDER
    from elision.wrap.launch_plan import offer_mcp_server

    if find_spec("mcp") is None:
        raise MissingExtra("elision wrap --mcp", "mcp")
    if store.startswith("memory:"):
        raise ElisionError("--mcp: no other process reads a store in memory; give another --store")
    # Without -P, modules of the user's project would come before ours.
    command = [sys.executable, "-P", "-m", "elision", "mcp", "--session-list", f"{FOLDER}/{_LISTING}"]
    # Both names of the setting: the user's own environment may have either.
    return offer_mcp_server(agent, command, {f"{prefix}STORE": store for prefix in (PREFIX, SPECIFIED_PREFIX)})


def _run_agent(agent: Agent, arguments: list[str], door: _GatewayInUse) -> int:
    from elision.wrap.launch_plan import plan_launch, run_program

    # Names of sessions are listed before the gateway ends, and the folder is removed after that.
    with tempfile.TemporaryDirectory(prefix="elision-") as folder:
        if door.used is not None:
            door.used.listing = Path(folder) / _LISTING
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
    from elision.gateway.server import GatewayThread
    from elision.gateway.settings import gateway_settings
    from elision.wrap.findings import find_gateway, is_gateway, read_upstreams, strip_path

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


def _print_launch(agent: Agent, arguments: list[str], asked: str | None, settings: Settings, output: Output) -> None:
    """Print `export` lines, which sh, bash, zsh, fish and direnv read, and the command as a comment."""
    from elision.lab.report.report import Sentence
    from elision.wrap.findings import configured_url, find_gateway
    from elision.wrap.launch_plan import plan_launch

    url = asked or find_gateway(settings, os.environ)
    if url is None:
        url = configured_url(settings)
        output.note(f"elision: no gateway answers at {url} yet; start it with `elision serve`")
    if agent.refusal:
        raise ElisionError(f"{agent.name}: {agent.refusal}")
    if agent.files:
        names = ", ".join(agent.files)
        raise ElisionError(f"{agent.name} reads a temporary file ({names}) that --print does not write; omit --print")
    plan = plan_launch(agent, arguments, url.rstrip("/"), Path(), os.environ)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in plan.variables.items()]
    lines.append(f"# {shlex.join(plan.command)}")
    data = {"variables": dict(plan.variables), "arguments": list(plan.command)}
    output.answer("wrap --print", data, *(Sentence(line, whole=True) for line in lines))


# -- what was saved ---------------------------------------------------------------------------------------------------


def _read_savings(door: _GatewayInUse, began: float) -> dict[str, SessionFigures] | None:
    """Return the figures of the sessions that changed since `began`, by name; None where their store cannot be read.

    Raises ElisionError where the store is our own and cannot be read.
    """
    from elision.cli.session_figures import FigureReader
    from elision.config import load_settings
    from elision.stores.store_urls import locate_store, open_existing

    try:
        store = open_existing(door.store)
    except StoreError:
        if door.is_own:
            raise
        return None
    reader = FigureReader(store, locate_store(door.store), load_settings().guards)
    with closing(store):
        changed = [info for info in store.sessions() if info.changed >= began]
        if door.used is not None:
            # Other agents may use the same store.
            names = door.used.names
            changed = [info for info in changed if info.key in names or info.parent in names]
        figures = {info.key: reader.read(info) for info in changed}
    reader.save()
    return figures


def _sum_savings(figures: Mapping[str, SessionFigures]) -> dict[str, Any]:
    every = figures.values()
    return {
        "calls": sum(each.calls for each in every),
        "sent_tokens": sum(each.sent_tokens for each in every),
        "raw_tokens": sum(each.raw_tokens for each in every),
        "saved_usd": sum(each.saved for each in every),
    }


def _report_savings(door: _GatewayInUse, began: float, code: int, output: Output) -> None:
    if output.json:
        try:
            found = _read_savings(door, began)
            sessions = None if found is None else list(found)
            data = {"sessions": sessions, **_sum_savings(found or {}), "store": door.store, "problem": None}
        except ElisionError as error:
            data = {"problem": str(error)}
        output.answer("wrap", {"exit_code": code, **data})
    elif not output.quiet:
        output.note(f"elision: {_describe_savings(door, began)}")


def _describe_savings(door: _GatewayInUse, began: float) -> str:
    """Return one line: the calls since `began`, what hiding saved in their sessions, and how to see it."""
    from elision.config import load_settings
    from elision.config.setting_readers import conceal_password
    from elision.lab.report.figures import format_plural, format_tokens, format_usd

    if door.is_own and door.store.startswith("memory:"):
        return "sessions were kept only in memory and are gone; use another --store to see what was saved"
    try:
        found = _read_savings(door, began)
    except ElisionError as error:
        return f"what was saved cannot be read: {error}"
    if found is None:
        return f"the gateway at {door.url} keeps running; its dashboard shows what was saved"
    if not found:
        if door.is_own:
            return (
                "no request came through the gateway: the agent called no model, or not at the given address; run "
                "`elision doctor`"
            )
        return f"see what was saved: {door.url}/"
    look = "elision sessions"
    if len(found) == 1:
        look += f" show {shlex.quote(next(iter(found)))}"
    place = conceal_password(door.store)
    is_usual = load_settings().store == door.store
    look += f" (store: {place})" if is_usual else f" --store {shlex.quote(place)}"
    total = _sum_savings(found)
    saved = total["saved_usd"]
    effect = f"hiding saved {format_usd(saved)}" if saved >= 0 else f"hiding cost {format_usd(-saved)} more"
    tokens = f"{format_tokens(total['sent_tokens'])} of {format_tokens(total['raw_tokens'])} tokens sent"
    failed = ""
    if door.used is not None and door.used.failed:
        statuses = ", ".join(map(str, sorted(door.used.failed)))
        failed = f"{format_plural(door.used.failed.total(), 'request')} failed (status {statuses}), "
    return f"{format_plural(total['calls'], 'call')}, {failed}{tokens}, {effect}: {look}"
