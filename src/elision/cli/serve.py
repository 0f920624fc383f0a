"""`elision serve`: the gateway between agents and their provider."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import click

from elision.cli.declarations import Option
from elision.cli.options import Output, StoreUrl

if TYPE_CHECKING:
    from elision.gateway.settings import GatewaySettings


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Options of `elision serve`, each named as the setting that it gives."""

    gateway_upstream_openai: Annotated[
        str | None, Option("--upstream-openai", help="Address to which OpenAI requests are forwarded, or none.")
    ] = None
    gateway_upstream_anthropic: Annotated[
        str | None, Option("--upstream-anthropic", help="Address to which Anthropic requests are forwarded, or none.")
    ] = None
    gateway_upstream_gemini: Annotated[
        str | None, Option("--upstream-gemini", help="Address to which Gemini requests are forwarded, or none.")
    ] = None
    store: StoreUrl = None
    strategy: Annotated[
        str | None, Option("--strategy", "-s", help="What may be hidden, such as 'masking(window=20)'.")
    ] = None
    model: Annotated[
        str | None, Option("--model", help="Model whose prices apply to requests with an unknown model.", rare=True)
    ] = None
    gateway_host: Annotated[
        str | None, Option("--host", help="Address to listen on; default: 127.0.0.1.", rare=True)
    ] = None
    gateway_port: Annotated[
        int | None, Option("--port", help="Port to listen on, 0 for a free one; default: 8377.", min=0, max=65_535)
    ] = None
    gateway_workers: Annotated[
        int | None, Option("--workers", help="Processes that share the port.", min=1, rare=True)
    ] = None
    gateway_admin_token: Annotated[
        str | None,
        Option("--token", help="Admin token for dashboard and metrics; prefer ELISION_GATEWAY_ADMIN_TOKEN."),
    ] = None
    gateway_shadow: Annotated[bool | None, Option("--shadow", help="Decide, price and report; change nothing.")] = None
    gateway_off: Annotated[
        bool | None, Option("--off", help="Forward everything unchanged and store nothing.", rare=True)
    ] = None
    recall: Annotated[
        str | None,
        Option(
            "--recall", help="Who offers the recall tools: auto (the gateway), caller (the client) or never.", rare=True
        ),
    ] = None
    gateway_session_max_cost_usd: Annotated[
        float | None, Option("--max-cost-usd", help="USD that a session may cost.", rare=True)
    ] = None
    gateway_session_max_turns: Annotated[
        int | None, Option("--max-turns", help="Turns that a session may have.", min=1, rare=True)
    ] = None
    gateway_key_max_cost_usd: Annotated[
        float | None, Option("--key-max-cost-usd", help="USD that all sessions of an API key may cost.", rare=True)
    ] = None
    gateway_key_max_turns: Annotated[
        int | None, Option("--key-max-turns", help="Turns that all sessions of an API key may have.", min=1, rare=True)
    ] = None
    gateway_key_requests_per_minute: Annotated[
        int | None,
        Option("--key-requests-per-minute", help="Requests that an API key may make in a minute.", min=1, rare=True),
    ] = None
    gateway_at_limit: Annotated[
        str | None, Option("--at-limit", help="At a limit: refuse (429) or hint (a header).", rare=True)
    ] = None
    gateway_log: Annotated[
        str | None, Option("--log", help="Format of the request log: json, text, none or auto.", rare=True)
    ] = None


def serve(
    *,
    options: GatewayOptions,
    check: Annotated[
        bool, Option("--check", help="Show the settings, test providers, store and port, and exit.")
    ] = False,
    output: Output,
) -> None:
    """Serve as the gateway between agents and their provider: change the base URL, nothing else.

    `elision doctor --settings --all` shows the defaults and every other setting. Ctrl-C stops the gateway once running
    responses are complete. With --check the exit code is 1 if a check fails.
    """
    # An extra serves, and help needs no settings.
    from elision.gateway.settings import gateway_settings
    from elision.summarizers.factory import make_summarizer

    settings = gateway_settings(**read_options(options, is_quiet=output.quiet))
    # A summarizer that cannot be asked is an error here: not the first session finds it out.
    make_summarizer(settings.library.summarizer, environment=os.environ, **settings.library.summarizer_options())
    code = _check_gateway(settings, output) if check else _run_gateway(settings, output)
    if code:
        raise click.exceptions.Exit(code)


def read_options(options: GatewayOptions, *, is_quiet: bool = False) -> dict[str, Any]:
    """Return the options as settings, each with its name on the command line. is_quiet: requests are not logged."""
    from elision.cli.declarations import build_parameters
    from elision.config import TypedOption

    names = {each.name: each.opts[0] for each in build_parameters(GatewayOptions)}
    given = {each.name: TypedOption(names[each.name], getattr(options, each.name)) for each in fields(options)}
    if is_quiet and options.gateway_log is None:
        given["gateway_log"] = TypedOption("--quiet", "none")
    return given


def _run_gateway(settings: GatewaySettings, output: Output) -> int:
    from elision.config.setting_readers import conceal_password
    from elision.gateway.request_record import choose_form, log_to_stderr
    from elision.gateway.server import bind_socket, format_url, serve_worker
    from elision.lab.report.report import Sentence

    listening = bind_socket(settings.host, settings.port)
    log_to_stderr(choose_form(settings.log))
    url = format_url(listening)
    store = "nowhere" if settings.off else conceal_password(settings.library.store)
    summaries = settings.library.describe_summarizer()

    def announce() -> None:
        lines = [
            f"OpenAI clients:    {url}/v1",
            f"Anthropic clients: {url}",
            f"Dashboard:         {url}/{', with the token' if settings.admin_token else ''}",
            f"Sessions:          {store}",
            f"Summaries:         {summaries}",
            *_describe_limits(settings),
        ]
        # Nobody should wonder why nothing is saved.
        if settings.off:
            lines.append("Off:               everything is forwarded unchanged; nothing is stored")
        elif settings.shadow:
            lines.append("Shadow mode:       requests are sent unchanged; the dashboard shows what would be saved")
        data = {
            "openai": f"{url}/v1",
            "anthropic": url,
            "dashboard": f"{url}/",
            "store": store,
            "summaries": summaries,
            "shadow": settings.shadow,
            "off": settings.off,
        }
        output.answer("serve", data, *(Sentence(line, whole=True) for line in lines))

    with listening:
        if settings.workers > 1:
            from elision.gateway.supervisor import supervise  # one worker needs no other processes

            return supervise(settings, listening, announce)
        serve_worker(settings, announce, listening_socket=listening)
    return 0


def _describe_limits(settings: GatewaySettings) -> list[str]:
    """Return a further line where sessions or keys have limits: a preset may bring one."""
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
        return []
    beyond = "requests are refused (429)" if settings.at_limit == "refuse" else "responses have a header"
    return [f"Limits:            {', '.join(limits)}; beyond them {beyond}"]


def _check_gateway(settings: GatewaySettings, output: Output) -> int:
    # Slow to import, and no gateway that serves needs it.
    import asyncio

    from elision.cli.doctor_reports import encode_settings, list_settings
    from elision.gateway.self_check import run_checks
    from elision.lab.report.report import Column, Table, TableRow

    results = asyncio.run(run_checks(settings))
    columns = [Column("check"), Column("", 3, "left"), Column("address", 1, "wrap"), Column("found", 2, "wrap")]
    rows = []
    for each in results:
        mark = ("ok", "better") if each.is_ok else ("failed", "worse")
        rows.append(TableRow([each.subject, [mark], each.address, each.message]))
    data = {**encode_settings(settings.library), "checks": [asdict(each) for each in results]}
    blocks = [*list_settings(settings.library, everything=False), Table(columns, rows)]
    output.answer("serve --check", data, *blocks)
    return int(not all(each.is_ok for each in results))
