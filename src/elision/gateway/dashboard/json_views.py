"""Render the dashboard's values as JSON, and the calls of a session as a file, CSV or JSON.

Text of sessions passes unchanged; the page displays it as text.
"""

from __future__ import annotations

import base64
import binascii
import csv
import io
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from elision.errors import UnknownHandle
from elision.gateway.dashboard.session_cache import SessionRow, describe_api, find_command
from elision.gateway.dashboard.totals import SavingsTotals, compute_totals, count_shared_calls
from elision.manager.session_history import CallReport, SessionReport
from elision.manager.session_json import encode_call_report, encode_session_report
from elision.stores.store import SessionInfo
from elision.telemetry.diagnostics import Hidden
from elision.trajectory.price_lookup import cost_reported_usage
from elision.trajectory.tokens import TOKENS_PER_MESSAGE
from elision.trajectory.trajectory import find_task
from elision.trajectory.turn import Observation, Opaque, Turn

#: Seconds since its last change for which a session counts as live: as long as the shortest provider cache lives.
LIVE_SECONDS: Final = 300.0
#: Letters of a hidden text that one answer holds.
MAX_TEXT_CHARS: Final = 65_536
#: Calls that one answer holds.
MAX_CALLS: Final = 500


def encode_key(key: str) -> str:
    """Return a session's key, any text, as a segment of a path."""
    return "k" + base64.urlsafe_b64encode(key.encode("utf-8", "surrogatepass")).decode().rstrip("=")


def decode_key(name: str) -> str:
    """Return the key of which `encode_key` made `name`. Raises UnknownHandle."""
    text = name.removeprefix("k")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        return key.decode("utf-8", "surrogatepass")
    except (binascii.Error, ValueError):
        raise UnknownHandle(f"{name[:80]!r} names no session") from None


def render_totals(found: SavingsTotals) -> dict[str, Any]:
    """Render totals: tokens as the provider counts them, USD.

    `hit` and `simulated` are shares of prompt tokens read from cache, as billed and as simulated.
    """
    usage = found.usage
    return {
        "calls": found.calls,
        "sent_tokens": found.sent_tokens,
        "raw_tokens": found.raw_tokens,
        "usd": found.ours.total,
        "raw_usd": found.raw.total,
        "saved_usd": found.saved_usd,
        "hiding_usd": found.hiding_usd,
        "parts": asdict(found.ours),
        "raw_parts": asdict(found.raw),
        "recalls_usd": found.recalls_usd,
        "caching_usd": found.caching_usd,
        "billed_usd": found.billed_usd,
        "reported": found.reported_calls,
        "played": found.played_calls,
        "played_usd": found.played_usd,
        "billed_tokens": usage.prompt,
        "billed_read": usage.cache_read,
        "billed_write": usage.cache_write,
        "hit": usage.cache_read / usage.prompt if usage.prompt else None,
        "simulated": found.cached_tokens / found.sent_tokens if found.sent_tokens else None,
        "rewrites": found.rewrites,
        "summaries": found.summaries,
        "failed_summaries": found.failed_summaries,
    }


def render_row(info: SessionInfo, row: SessionRow | None, now: float, busy: Collection[str]) -> dict[str, Any]:
    """Render a session in one line; without totals while it is not read yet."""
    rendered = {
        **_render_info(info),
        "live": now - info.changed < LIVE_SECONDS,
        "busy": info.key in busy,
        "read": row is not None,
    }
    if row is None:
        return rendered
    return rendered | {
        "model": row.model,
        "strategy": row.strategy,
        "shared": row.shared_calls,
        "task": row.task,
        "api": row.api,
        "role": row.role,
        "points": row.points,
        "shadow": row.shadow,
        "hint": row.hint,
        "fault": row.fault,
        "all_calls": row.calls,
        **render_totals(row.own_totals),
    }


def render_session(
    account: SessionReport, branches: Iterable[SessionInfo], amendments: int, after: int
) -> dict[str, Any]:
    """Render a session and its calls after the first `after`, at most `MAX_CALLS` of them.

    edition: where it differs from before, earlier calls may have changed.
    """
    prices = account.prices
    info = account.info
    calls = [render_call(each, account.turns) for each in account.calls[after : after + MAX_CALLS]]
    return {
        **_render_info(info),
        **encode_session_report(account),
        "task": find_task(account.head),
        "api": describe_api(account.dialect),
        "price_list": {
            "name": prices.name,
            "source": prices.source,
            "dated": prices.dated,
            "own": account.has_own_prices,
        },
        "figures": render_totals(compute_totals(account)),
        "shared": count_shared_calls(account),
        "shadow": account.shadow,
        "branches": [_render_info(each) for each in branches],
        "edition": f"{amendments}:{prices.name}",
        "first": after,
        "made": calls,
        "more": after + MAX_CALLS < len(account.calls),
    }


def render_call(made: CallReport, turns: Sequence[Turn]) -> dict[str, Any]:
    """Render a call as `elision sessions show --json` does, with what the page needs beside it.

    results: by handle, the command, and the tokens of the text and of what is shown instead, as the provider counts
    them. A message costs tokens beyond its text; they are left out, as in the count of ours that placeholders state.
    """
    usage = made.usage
    summary = made.summary
    shown = made.diagnostics
    # Of a result that is in several, the last one counts.
    changed = (*made.covered, *shown.folded, *shown.clipped, *shown.masked)
    return {
        **encode_call_report(made),
        "raw_bill": msgspec.structs.asdict(made.bills.raw),
        "billed_usd": cost_reported_usage(usage, made.prices) if usage else None,
        "hit": usage.cache_read / usage.prompt if usage and usage.prompt else None,
        "summary": {"text": summary.text, "covers": summary.covers} if summary else None,
        "covered": [{"handle": each.handle, "tool": each.tool, "tokens": each.tokens} for each in made.covered],
        "results": {each.handle: _render_result(each, turns) for each in changed},
    }


def _render_result(hidden: Hidden, turns: Sequence[Turn]) -> dict[str, Any]:
    number, position = hidden.handle.removeprefix("t").split(".")
    return {
        "command": find_command(turns, (int(number), int(position))),
        "tokens": max(0, hidden.tokens - TOKENS_PER_MESSAGE),
        "left": max(0, hidden.left - TOKENS_PER_MESSAGE),
    }


def render_observation(observation: Observation, start: int) -> dict[str, Any]:
    """Render a part of a hidden text, from character `start` on.

    end: where the next part starts, in characters of Python. parts: content that is not text, such as images.
    """
    text = observation.text
    part = text[start : start + MAX_TEXT_CHARS]
    return {
        "tool": observation.tool,
        "error": observation.error,
        "letters": len(text),
        "end": start + len(part),
        "text": part,
        "parts": [part.kind for part in observation.content if isinstance(part, Opaque)],
    }


def _render_info(info: SessionInfo) -> dict[str, Any]:
    return {
        "id": encode_key(info.key),
        "name": info.key,
        "parent": info.parent,
        "parent_id": encode_key(info.parent) if info.parent else "",
        "relation": info.relation,
        "begun": info.begun,
        "changed": info.changed,
        "turns": info.turns,
    }


# -- files ------------------------------------------------------------------------------------------------------------

#: Columns of the CSV; tokens as the provider counts them, USD.
COLUMNS: Final = (
    "call",
    "at",
    "model",
    "sent_tokens",
    "raw_tokens",
    "masked_results",
    "masked_tokens",
    "folded_results",
    "folded_tokens",
    "unfolded_results",
    "summarized_turns",
    "recalled_results",
    "cache_rewrites",
    "reason",
    "prompt_usd",
    "raw_prompt_usd",
    "saved_by_hiding_usd",
    "reported_input",
    "reported_cache_write",
    "reported_cache_read",
    "reported_output",
    "reported_usd",
    "played",
)


def export_calls_as_csv(account: SessionReport) -> bytes:
    """Return one line for each call after a line of `COLUMNS`; UTF-8, unknown values empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for made in account.calls:
        writer.writerow([_write_cell(value) for value in _list_values(made)])
    return text.getvalue().encode("utf-8", "backslashreplace")


def export_calls_as_json(account: SessionReport) -> bytes:
    """Return the session's names and all of its calls, each as the API gives it."""
    value = {
        "session": account.info.key,
        "task": find_task(account.head),
        "model": account.model,
        "api": describe_api(account.dialect),
        "strategy": account.strategy,
        "calls": [render_call(each, account.turns) for each in account.calls],
    }
    return json.dumps(value, allow_nan=False, indent=1).encode()


def name_file(account: SessionReport, ending: str) -> str:
    """Return a file name in plain ASCII for `account`."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", account.info.key).strip("-.")[:60]
    return f"elision-{name or 'session'}.{ending}"


def _list_values(made: CallReport) -> list[Any]:
    """Return the values of `COLUMNS`."""
    told = made.diagnostics
    usage = made.usage
    return [
        told.call,
        datetime.fromtimestamp(made.at, UTC).isoformat(timespec="seconds") if made.at is not None else None,
        told.model,
        made.sent_tokens,
        made.raw_tokens,
        len(told.masked) + len(told.clipped),
        sum(each.tokens - each.left for each in (*told.masked, *told.clipped)),
        len(told.folded),
        sum(each.tokens - each.left for each in told.folded),
        len(told.unfolded),
        f"{told.summarized.first}-{told.summarized.last}" if told.summarized else None,
        len(made.recalled),
        told.epoch - 1,
        told.reason,
        made.bills.ours.usd,
        made.bills.raw.usd,
        told.costs.hiding,
        usage.input if usage else None,
        usage.cache_write if usage else None,
        usage.cache_read if usage else None,
        usage.output if usage else None,
        cost_reported_usage(usage, made.prices) if usage else None,
        usage.played if usage else None,
    ]


def _write_cell(value: Any) -> Any:
    """Return `value`; a text that a table program would run as a formula begins with an apostrophe."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.8f}".rstrip("0").rstrip(".")
    if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return f"'{value}"
    return value
