"""`elision serve`: the gateway between agents and their provider."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import click

from elision.cli.declarations import Option
from elision.cli.options import Json, Quiet, StoreUrl
from elision.trajectory.control_characters import escape_controls

if TYPE_CHECKING:
    from elision.gateway.settings import GatewaySettings

_Usd = Annotated[float | None, Option("--max-cost-usd", help="USD that a session may cost.", rare=True)]


def serve(
    upstream_openai: Annotated[
        str | None, Option("--upstream-openai", help="Address to which OpenAI requests are forwarded, or none.")
    ] = None,
    upstream_anthropic: Annotated[
        str | None, Option("--upstream-anthropic", help="Address to which Anthropic requests are forwarded, or none.")
    ] = None,
    upstream_gemini: Annotated[
        str | None, Option("--upstream-gemini", help="Address to which Gemini requests are forwarded, or none.")
    ] = None,
    store: StoreUrl = None,
    strategy: Annotated[
        str | None, Option("--strategy", "-s", help="What may be hidden, such as 'masking(window=20)'.")
    ] = None,
    model: Annotated[
        str | None, Option("--model", help="Model whose prices apply to requests with an unknown model.", rare=True)
    ] = None,
    host: Annotated[str | None, Option("--host", help="Address to listen on; default: 127.0.0.1.", rare=True)] = None,
    port: Annotated[
        int | None, Option("--port", help="Port to listen on, 0 for a free one; default: 8377.", min=0, max=65_535)
    ] = None,
    workers: Annotated[int | None, Option("--workers", help="Processes that share the port.", min=1, rare=True)] = None,
    token: Annotated[
        str | None,
        Option("--token", help="Admin token for dashboard and metrics; prefer ELISION_GATEWAY_ADMIN_TOKEN."),
    ] = None,
    shadow: Annotated[bool | None, Option("--shadow", help="Decide, price and report; change nothing.")] = None,
    off: Annotated[
        bool | None, Option("--off", help="Forward everything unchanged and store nothing.", rare=True)
    ] = None,
    recall: Annotated[
        str | None,
        Option(
            "--recall", help="Who offers the recall tools: auto (the gateway), caller (the client) or never.", rare=True
        ),
    ] = None,
    max_cost_usd: _Usd = None,
    max_turns: Annotated[
        int | None, Option("--max-turns", help="Turns that a session may have.", min=1, rare=True)
    ] = None,
    key_max_cost_usd: Annotated[
        float | None, Option("--key-max-cost-usd", help="USD that all sessions of an API key may cost.", rare=True)
    ] = None,
    key_max_turns: Annotated[
        int | None, Option("--key-max-turns", help="Turns that all sessions of an API key may have.", min=1, rare=True)
    ] = None,
    key_requests: Annotated[
        int | None,
        Option("--key-requests-per-minute", help="Requests that an API key may make in a minute.", min=1, rare=True),
    ] = None,
    at_limit: Annotated[
        str | None, Option("--at-limit", help="At a limit: refuse (429) or hint (a header).", rare=True)
    ] = None,
    log: Annotated[
        str | None, Option("--log", help="Format of the request log: json, text, none or auto.", rare=True)
    ] = None,
    check: Annotated[
        bool, Option("--check", help="Show the settings, test providers, store and port, and exit.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Serve as the gateway between agents and their provider: change the base URL, nothing else.

    `elision doctor --settings --all` shows the defaults and every other setting. Ctrl-C stops the gateway once running
    responses are complete. With --check the exit code is 1 if a check fails.
    """
    from elision.config import TypedOption  # help needs no settings

    if quiet and log is None:
        log = "none"
    given = {
        "gateway_upstream_openai": TypedOption("--upstream-openai", upstream_openai),
        "gateway_upstream_anthropic": TypedOption("--upstream-anthropic", upstream_anthropic),
        "gateway_upstream_gemini": TypedOption("--upstream-gemini", upstream_gemini),
        "store": TypedOption("--store", store),
        "strategy": TypedOption("--strategy", strategy),
        "model": TypedOption("--model", model),
        "gateway_host": TypedOption("--host", host),
        "gateway_port": TypedOption("--port", port),
        "gateway_workers": TypedOption("--workers", workers),
        "gateway_admin_token": TypedOption("--token", token),
        "gateway_shadow": TypedOption("--shadow", shadow),
        "gateway_off": TypedOption("--off", off),
        "recall": TypedOption("--recall", recall),
        "gateway_session_max_cost_usd": TypedOption("--max-cost-usd", max_cost_usd),
        "gateway_session_max_turns": TypedOption("--max-turns", max_turns),
        "gateway_key_max_cost_usd": TypedOption("--key-max-cost-usd", key_max_cost_usd),
        "gateway_key_max_turns": TypedOption("--key-max-turns", key_max_turns),
        "gateway_key_requests_per_minute": TypedOption("--key-requests-per-minute", key_requests),
        "gateway_at_limit": TypedOption("--at-limit", at_limit),
        "gateway_log": TypedOption("--log", log),
    }
    code = _check_gateway(given, as_json=json) if check else _run_gateway(given, as_json=json)
    if code:
        raise click.exceptions.Exit(code)


def _run_gateway(given: dict[str, Any], *, as_json: bool) -> int:
    # An extra serves, and the other commands must do without it.
    from elision.cli.outputs import print_json
    from elision.config.setting_readers import conceal_password
    from elision.gateway.request_log import choose_form, log_to_stderr
    from elision.gateway.server import bind_socket, format_url
    from elision.gateway.server import serve_worker as serve_here
    from elision.gateway.settings import gateway_settings

    settings = gateway_settings(**given)
    _check_summarizer(settings)
    listening = bind_socket(settings.host, settings.port)
    log_to_stderr(choose_form(settings.log))
    url = format_url(listening)
    store = "nowhere" if settings.off else escape_controls(conceal_password(settings.library.store))

    def up() -> None:
        if as_json:
            addresses = {"openai": f"{url}/v1", "anthropic": url, "dashboard": f"{url}/"}
            modes = {"shadow": settings.shadow, "off": settings.off}
            print_json(
                "serve", {**addresses, "store": store, "summaries": settings.library.describe_summarizer(), **modes}
            )
            return
        if settings.admin_token:
            locked = ", with the token"
        else:
            locked = ""
        click.echo(
            f"OpenAI clients:    {url}/v1\nAnthropic clients: {url}\n"
            f"Dashboard:         {url}/{locked}\n"
            f"Sessions:          {store}\n"
            f"Summaries:         {escape_controls(settings.library.describe_summarizer())}"
            f"{_describe_limits(settings)}{_describe_mode(settings)}"
        )

    with listening:
        if settings.workers > 1:
            from elision.gateway.supervisor import supervise  # one worker needs no other processes

            return supervise(settings, listening, up)
        serve_here(settings, listening, up)
    return 0


def _describe_limits(settings: GatewaySettings) -> str:
    """A further line where sessions or keys have limits, "" otherwise: a preset may bring one."""
    limits = []
    for subject, turns, usd in (
        ("a session", settings.session_max_turns, settings.session_max_cost_usd),
        ("an API key", settings.key_max_turns, settings.key_max_cost_usd),
    ):
        if turns is not None:
            limits.append(f"{turns:,} turns {subject}")
        if usd is not None:
            limits.append(f"${usd:g} {subject}")
    if settings.key_requests_per_minute is not None:
        limits.append(f"{settings.key_requests_per_minute:,} requests a minute an API key")
    if not limits or settings.off:
        return ""
    beyond = "requests are refused (429)" if settings.at_limit == "refuse" else "responses have a header"
    return f"\nLimits:            {', '.join(limits)}; beyond them {beyond}"


def _check_summarizer(settings: GatewaySettings) -> None:
    """Raise SpecError or MissingExtra for a summarizer that cannot be asked: not the first session finds it out."""
    from elision.summarizers.factory import make_summarizer  # help needs no summarizer

    make_summarizer(settings.library.summarizer, environment=os.environ, **settings.library.summarizer_options())


def _describe_mode(settings: GatewaySettings) -> str:
    """A further line where requests are not touched, "" otherwise: nobody should wonder why nothing is saved."""
    if settings.off:
        return "\nOff:               everything is forwarded unchanged; nothing is stored"
    if settings.shadow:
        return "\nShadow mode:       requests are sent unchanged; the dashboard shows what would be saved"
    return ""


def _check_gateway(given: dict[str, Any], *, as_json: bool) -> int:
    # Slow to import, and no gateway that serves needs it.
    import asyncio

    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from elision.cli.console import open_console
    from elision.cli.outputs import print_json
    from elision.cli.settings_table import encode_settings, print_settings
    from elision.gateway.self_check import run_checks
    from elision.gateway.settings import gateway_settings

    settings = gateway_settings(**given)
    _check_summarizer(settings)
    console = open_console()
    if as_json:
        results = asyncio.run(run_checks(settings))
        print_json("serve --check", {**encode_settings(settings.library), "checks": [asdict(each) for each in results]})
        return int(not all(each.is_ok for each in results))
    print_settings(settings.library, console, everything=False)
    results = asyncio.run(run_checks(settings))
    shown = Table(box=SIMPLE_HEAD, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False)
    for name in ("tried", "", "at", "which"):
        shown.add_column(name, overflow="fold", no_wrap=name == "")
    for each in results:
        if each.is_ok:
            mark = Text("ok", style="green")
        else:
            mark = Text("failed", style="bold red")
        shown.add_row(each.subject, mark, Text(escape_controls(each.address)), Text(escape_controls(each.message)))
    console.print(shown)
    if all(each.is_ok for each in results):
        return 0
    return 1
