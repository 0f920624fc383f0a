"""`elision sessions show`: one session: what was hidden when and why, what it saved, and any call as it was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from elision.cli.declarations import Option
from elision.cli.options import Output, Pricing, SessionName, StoreUrl, Tokens

if TYPE_CHECKING:
    from elision.manager.session_history import SessionLog
    from elision.trajectory.redact import Redaction


def show(
    *,
    session: SessionName,
    call: Annotated[str | None, Option("--call", help="One call as it was sent: 1, 2, ... or last.")] = None,
    store: StoreUrl = None,
    full: Annotated[bool, Option("--full", help="Name every result; with --call, show long texts in full.")] = False,
    dialect: Annotated[
        str, Option("--dialect", help="With --call: shape of the messages; default: the session's.", rare=True)
    ] = "",
    pricing: Pricing,
    tokens: Tokens = "o200k",
    output: Output,
) -> None:
    """Show what was hidden in a session, when and why, and what it saved."""
    # Slow to import, and help needs none of it.
    from elision.cli.session_names import choose_session
    from elision.config import load_settings
    from elision.lab.run_as_recorded import sizer
    from elision.manager.session_history import add_plateau_guard, load_session_log

    rates = pricing.choose()
    found = load_settings()
    with output.open_store(store) as opened:
        sessions = opened.sessions()
        info = choose_session(sessions, session)
        log = load_session_log(opened, info, sizer(dialect or "openai", tokens), add_plateau_guard(found.guards), rates)
    if call is not None:
        from elision.cli.view_report import build_call_report

        output.show(build_call_report(log, call, dialect, full=full))
        return
    from elision.cli.show_report import build_session_report

    branches = [each for each in sessions if each.parent == info.key and each.key != info.key]
    data = _encode_log(log, found.redaction) if output.json else {}
    output.show(build_session_report(log.build_report(), branches, data, full=full, redaction=found.redaction))


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
