"""`elision sessions show`: one session: what was hidden when and why, what it saved, and any call as it was sent."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

from elision.cli.declarations import Option
from elision.cli.options import Json, Model, Price, PriceSet, Quiet, SessionName, StoreUrl, Tokens, choose_prices

if TYPE_CHECKING:
    from elision.manager.session_history import SessionLog
    from elision.trajectory.redact import Redaction


def show(
    session: SessionName,
    call: Annotated[str | None, Option("--call", help="One call as it was sent: 1, 2, ... or last.")] = None,
    store: StoreUrl = None,
    full: Annotated[bool, Option("--full", help="Every result by name; with --call long texts whole.")] = False,
    dialect: Annotated[
        str, Option("--dialect", help="With --call: whose messages; default: the session's own.", rare=True)
    ] = "",
    model: Model = None,
    price: Price = None,
    prices: PriceSet = None,
    tokens: Tokens = "o200k",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show what was hidden in a session, when and why, and what it saved. One request alone with --call."""
    # Slow to import, and help needs none of it.
    from elision.cli.console import name_store, open_console
    from elision.cli.outputs import print_json
    from elision.cli.session_names import choose_session
    from elision.config import load_settings
    from elision.lab.dialect import sizer
    from elision.manager.session_history import add_plateau_guard, load_session_log
    from elision.stores.store_urls import open_for_reading

    rates = choose_prices(model, price, prices)
    found = load_settings()
    with closing(open_for_reading(name_store(store or found.store, quiet=quiet))) as opened:
        sessions = opened.sessions()
        info = choose_session(sessions, session)
        log = load_session_log(opened, info, sizer(dialect or "openai", tokens), add_plateau_guard(found.guards), rates)
    if call is not None:
        from elision.cli.show_call import show_call

        show_call(log, call, dialect, open_console(), json=json, full=full)
    elif json:
        print_json("sessions show", _encode_log(log, found.redaction))
    else:
        from elision.cli.show_screen import SessionScreen

        branches = [each for each in sessions if each.parent == info.key and each.key != info.key]
        SessionScreen(open_console(), full=full, redaction=found.redaction).show(log.build_report(), branches)


def _encode_log(log: SessionLog, redaction: Redaction) -> dict[str, Any]:
    from elision.cli.sessions import encode_info
    from elision.manager.session_json import encode_call_report, encode_session_report, encode_summaries

    account = log.build_report()
    return {
        **encode_info(log.info),
        **encode_session_report(account),
        "summary_texts": encode_summaries(account, redaction),
        "passes": [encode_call_report(each) for each in account.calls],
    }
