"""`elision show`: one session: what was hidden when and why, what it saved, and any call as it was sent."""

from __future__ import annotations

import json as json_module
from contextlib import closing
from typing import Annotated

import typer

from elision.cli.console import open_console
from elision.cli.options import Model, Price, PriceSet, SessionName, StoreUrl, Tokens, choose_prices
from elision.cli.session_names import choose_session
from elision.cli.show_call import show_call
from elision.cli.show_screen import SessionScreen
from elision.config import load_settings
from elision.lab.dialect import sizer
from elision.manager.session_history import SessionLog, add_plateau_guard, load_session_log
from elision.manager.session_json import encode_call_report, encode_session_report, encode_summaries
from elision.stores.store_urls import open_existing
from elision.trajectory.redact import Redaction


def show(
    session: SessionName,
    call: Annotated[
        str | None, typer.Option("--call", help="One call as it was sent: 1, 2, ... or last.", show_default=False)
    ] = None,
    store: StoreUrl = None,
    json: Annotated[bool, typer.Option("--json", help="The same as JSON.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Every result by name; with --call long texts whole.")] = False,
    dialect: Annotated[
        str, typer.Option("--dialect", help="With --call: whose messages; default: the session's own.")
    ] = "",
    model: Model = None,
    price: Price = None,
    prices: PriceSet = None,
    tokens: Tokens = "o200k",
) -> None:
    """Show what was hidden in a session, when and why, and what it saved; with --call, one request."""
    rates = choose_prices(model, price, prices)
    found = load_settings()
    with closing(open_existing(store or found.store)) as opened:
        sessions = opened.sessions()
        info = choose_session(sessions, session)
        log = load_session_log(opened, info, sizer(dialect or "openai", tokens), add_plateau_guard(found.guards), rates)
    if call is not None:
        show_call(log, call, dialect, open_console(), json=json, full=full)
    elif json:
        typer.echo(json_module.dumps(_log_json(log, found.redaction), indent=1))
    else:
        branches = [each for each in sessions if each.parent == info.key and each.key != info.key]
        SessionScreen(open_console(), full=full, redaction=found.redaction).show(log.build_report(), branches)


def _log_json(log: SessionLog, redaction: Redaction) -> dict[str, object]:
    account = log.build_report()
    return {
        "format": "elision.session/1",
        "session": log.info.key,
        "parent": log.info.parent,
        "relation": log.info.relation,
        "begun": log.info.begun,
        "changed": log.info.changed,
        "turns": log.info.turns,
        **encode_session_report(account),
        "summary_texts": encode_summaries(account, redaction),
        "passes": [encode_call_report(each) for each in account.calls],
    }
