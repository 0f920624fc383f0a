"""What a session's log tells, as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from elision.manager.session_log import Account, Pass
from elision.telemetry.diagnostics import Costs
from elision.trajectory.plan import handle


def account_json(account: Account) -> dict[str, Any]:
    """Totals of a session: tokens, USD."""
    end = account.end
    return {
        "model": account.model,
        "strategy": account.strategy,
        "prices": account.prices.name if account.priced else f"{account.prices.name} (no model named)",
        "calls": len(account.passes),
        "sent_tokens": account.sent,
        "raw_tokens": account.raw,
        "failed_summaries": account.failures,
        "epochs": end.epoch if end else 1,
        "rewrites": end.rewrites if end else {},
        "summaries": end.summaries if end else 0,
        "recalls": end.recalls if end else 0,
        "costs": _costs_json(end.costs) if end else {},
        "savings": asdict(end.savings) if end else {},
        "stop": asdict(end.stop) if end and end.stop else None,
        "hint": asdict(end.hint) if end and end.hint else None,
    }


def pass_json(made: Pass) -> dict[str, Any]:
    """One pass: what its diagnostics told, and what the log says beside them."""
    told = made.told
    return {
        "call": told.call,
        "at": made.at,
        "model": told.model,
        "reason": told.reason,
        "tokens": {"before": made.before, "after": made.sent, "raw": made.raw},
        "epoch": told.epoch,
        "masked": [asdict(each) for each in told.masked],
        "clipped": [asdict(each) for each in told.clipped],
        "summarized": asdict(told.summarized) if told.summarized else None,
        "failed": [asdict(each) for each in made.failed],
        "recalled": [{"handle": handle(each.key), "tokens": each.tokens, "by": each.by} for each in made.recalled],
        "head_changed": made.head,
        "amended": made.amended,
        "learned_window": made.learned or None,
        "recall_tools_entered": made.offers,
        "exchanged": [{"messages": len(each.messages), "results": len(each.results)} for each in made.exchanged],
        "bill": asdict(made.bills.ours),
        "usage": asdict(made.usage) if made.usage else None,
        "costs": _costs_json(told.costs),
        "stop": asdict(told.stop) if told.stop else None,
        "hint": asdict(told.hint) if told.hint else None,
    }


def _costs_json(costs: Costs) -> dict[str, Any]:
    return {**asdict(costs), "saved": costs.saved, "hiding": costs.hiding}
