"""Sessions opened with options by flat names, as settings have them, with what only the gateway sets among them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from elision import ContextManager
from elision.manager.advanced_options import gather_options
from elision.manager.context import manage_session
from elision.manager.context_options import Options
from elision.manager.opened_session import OpenedSession
from elision.strategies.decision_context import Budget
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy

#: What the documents call options of a strategy's budget.
BUDGET: Final = {"reserved_for_response": "reserved", "max_context_pct": "max_context_pct"}


def open_session(strategy: str | Strategy = "masking", **options: Any) -> OpenedSession:
    """Return a session. options: by flat names such as `dialect`, `write_behind` or `reserved_for_response`."""
    given = {own: value for name, own in BUDGET.items() if (value := options.pop(name, None)) is not None}
    if given:
        parsed = parse_strategy(strategy) if isinstance(strategy, str) else strategy
        strategy = replace(parsed, budget=replace(parsed.budget or Budget(), **given))
    return OpenedSession(Options(strategy=strategy, **gather_options(options)))


def open_context(strategy: str | Strategy = "masking", **options: Any) -> ContextManager:
    """Return a context manager; see `open_session`."""
    return manage_session(open_session(strategy, **options))
