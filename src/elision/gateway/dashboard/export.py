"""The calls of a session as a file: CSV for tables, JSON for programs."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime
from typing import Any, Final

from elision.gateway.dashboard.json_views import render_call
from elision.gateway.dashboard.session_text import describe_api
from elision.manager.session_history import CallReport, SessionReport
from elision.trajectory.task_text import find_task
from elision.trajectory.usage_cost import cost_reported_usage

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
