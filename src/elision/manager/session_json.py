"""The reports of a stored session as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import msgspec

from elision.manager.session_history import CallReport, SessionReport
from elision.telemetry.diagnostics import Costs
from elision.trajectory.plan import make_handle
from elision.trajectory.redact import Redaction
from elision.trajectory.usage import Usage


def encode_session_report(account: SessionReport) -> dict[str, Any]:
    """Return the totals of a session as JSON, in tokens and USD."""
    end = account.final
    return {
        "model": account.model,
        "strategy": account.strategy,
        "prices": _describe_prices(account),
        "calls": len(account.calls),
        "sent_tokens": account.sent_tokens,
        "raw_tokens": account.raw_tokens,
        "failed_summaries": account.failed_summary_count,
        "epochs": end.epoch if end else 1,
        "rewrites": end.rewrites if end else {},
        "summaries": end.summaries if end else 0,
        "recalls": end.recalls if end else 0,
        "costs": _encode_costs(end.costs) if end else {},
        "savings": asdict(end.savings) if end else {},
        "report": account.context.to_dict() if account.context else None,
        "stop": asdict(end.stop) if end and end.stop else None,
        "hint": asdict(end.hint) if end and end.hint else None,
    }


def encode_summaries(account: SessionReport, redaction: Redaction) -> list[dict[str, Any]]:
    """Return the summaries of a session as JSON, oldest first, with their texts. redaction: of the texts."""
    return [
        {**asdict(each), "text": redaction.redact_text(each.text), "covers_turns": list(each.covers_turns)}
        for each in account.summaries
    ]


def encode_call_report(call: CallReport) -> dict[str, Any]:
    """Return one call as JSON: its diagnostics, and what else the log has about it."""
    diagnostics = call.diagnostics
    return {
        "call": diagnostics.call,
        "at": call.at,
        "model": diagnostics.model,
        "reason": diagnostics.reason,
        "phase": diagnostics.phase,
        "tokens": {"before": call.tokens_before, "after": call.sent_tokens, "raw": call.raw_tokens},
        "epoch": diagnostics.epoch,
        "masked": [asdict(each) for each in diagnostics.masked],
        "clipped": [asdict(each) for each in diagnostics.clipped],
        "folded": [asdict(each) for each in diagnostics.folded],
        "unfolded": list(diagnostics.unfolded),
        "summarized": asdict(diagnostics.summarized) if diagnostics.summarized else None,
        "failed": [msgspec.structs.asdict(each) for each in call.failed_summaries],
        "recalled": [{"handle": make_handle(each.key), "tokens": each.tokens, "by": each.by} for each in call.recalled],
        "head_changed": call.head_changed,
        "amended": call.amended,
        "learned_window": call.learned_window or None,
        "recall_tools_entered": call.tools_entered,
        "exchanged": [{"messages": len(each.messages), "results": len(each.results)} for each in call.exchanged],
        "bill": msgspec.structs.asdict(call.bills.ours),
        "usage": _encode_usage(call.usage) if call.usage else None,
        "costs": _encode_costs(diagnostics.costs),
        "stop": asdict(diagnostics.stop) if diagnostics.stop else None,
        "hint": asdict(diagnostics.hint) if diagnostics.hint else None,
    }


def _describe_prices(account: SessionReport) -> str:
    """Return the name of what the session is priced as, and why where that is not its own model."""
    if account.has_own_prices:
        return account.prices.name
    reason = f"no prices are known for {account.model}" if account.model else "no model named"
    return f"{account.prices.name} ({reason})"


def _encode_costs(costs: Costs) -> dict[str, Any]:
    return {**asdict(costs), "saved": costs.saved, "hiding": costs.hiding}


def _encode_usage(usage: Usage) -> dict[str, Any]:
    others = [(other.model, _encode_usage(other.usage)) for other in usage.others]
    return {**msgspec.structs.asdict(usage), "others": others}
