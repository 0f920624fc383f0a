"""What a session's log tells, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from elision.manager.session_history import CallReport, SessionReport
from elision.telemetry.diagnostics import Costs
from elision.trajectory.plan import make_handle


def encode_session_report(account: SessionReport) -> dict[str, Any]:
    """Totals of a session: tokens, USD."""
    end = account.final
    return {
        "model": account.model,
        "strategy": account.strategy,
        "prices": account.prices.name if account.has_own_prices else f"{account.prices.name} (no model named)",
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
        "stop": asdict(end.stop) if end and end.stop else None,
        "hint": asdict(end.hint) if end and end.hint else None,
    }


def encode_call_report(made: CallReport) -> dict[str, Any]:
    """One pass: what its diagnostics told, and what the log says beside them."""
    told = made.diagnostics
    return {
        "call": told.call,
        "at": made.at,
        "model": told.model,
        "reason": told.reason,
        "tokens": {"before": made.tokens_before, "after": made.sent_tokens, "raw": made.raw_tokens},
        "epoch": told.epoch,
        "masked": [asdict(each) for each in told.masked],
        "clipped": [asdict(each) for each in told.clipped],
        "summarized": asdict(told.summarized) if told.summarized else None,
        "failed": [asdict(each) for each in made.failed_summaries],
        "recalled": [{"handle": make_handle(each.key), "tokens": each.tokens, "by": each.by} for each in made.recalled],
        "head_changed": made.head_changed,
        "amended": made.amended,
        "learned_window": made.learned_window or None,
        "recall_tools_entered": made.tools_entered,
        "exchanged": [{"messages": len(each.messages), "results": len(each.results)} for each in made.exchanged],
        "bill": asdict(made.bills.ours),
        "usage": asdict(made.usage) if made.usage else None,
        "costs": _encode_costs(told.costs),
        "stop": asdict(told.stop) if told.stop else None,
        "hint": asdict(told.hint) if told.hint else None,
    }


def _encode_costs(costs: Costs) -> dict[str, Any]:
    return {**asdict(costs), "saved": costs.saved, "hiding": costs.hiding}
