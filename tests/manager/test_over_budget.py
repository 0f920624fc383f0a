"""Where no view fits its budget: the caller is told, or the smallest one is sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.errors import BudgetError, SettingError
from elision.manager import ContextManager
from elision.stores.memory import MemoryStore
from elision.testing.request_rules import list_new_violations
from tests import flat_options
from tests.manager.agents import SHAPES, make_history

FOLDING = "hybrid(window=2, summarize_at=6, tail=2, summary_max_tokens=100)"


def manager(store: MemoryStore, strategy: str = "masking(window=2)", **options: Any) -> ContextManager:
    given = {"session": "s", "cache_control": "client", "over_budget": "send", "token_budget": 700, **options}
    strategy = f"{strategy[:-1]}, budget=budget(reserved=100))"
    return flat_options.open_context(strategy, store=store, **given)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("strategy", ["masking(window=2)", FOLDING])
def test_the_smallest_view_is_sent(shape: str, strategy: str) -> None:
    """Every old result is masked, the newest is cut, the provider's rules hold, and the diagnostics say what is
    missing."""
    context = manager(MemoryStore(), strategy)
    messages = make_history(shape, 8, "Mend the parser. " * 300)
    view = context.prepare(messages)
    (fault,) = view.diagnostics.faults
    assert (fault.kind, fault.cause) == ("budget", "BudgetError")
    assert "tokens, but only" in fault.what
    assert view.diagnostics.reason == "over budget"
    assert view.diagnostics.clipped
    assert "Mend the parser. Mend" in json.dumps(view.messages[0])
    assert len(json.dumps(view.messages[1:])) < len(json.dumps(messages[1:])) / 5
    assert not list_new_violations(
        view.dialect, {"messages": messages, "input": messages}, {"messages": view.messages, "input": view.messages}
    )


def test_what_was_hidden_for_it_is_stored() -> None:
    """The decision is durable before the view goes out, and another process sends the same bytes."""
    store = MemoryStore()
    messages = make_history("openai", 8, "Mend the parser. " * 300)
    view = manager(store, write_behind=True).prepare(messages)
    assert len(store.turns("s")) == 8
    again = manager(store).prepare(messages)
    assert json.dumps(again.messages) == json.dumps(view.messages)


def test_a_budget_that_is_missed_now_may_be_met_later() -> None:
    """The next request that fits is sent without a word of it."""
    context = manager(MemoryStore(), token_budget=2_000)
    long, short = "Mend the parser. " * 600, "Mend the parser."
    told = [
        context.prepare([*make_history("openai", 4), {"role": "user", "content": words}]).diagnostics
        for words in (long, short)
    ]
    assert [[fault.kind for fault in each.faults] for each in told] == [["budget"], []]


def test_unless_told_otherwise_the_caller_hears_of_it() -> None:
    """BudgetError, as ever; and the option takes two words."""
    with pytest.raises(BudgetError):
        manager(MemoryStore(), over_budget="raise").prepare(make_history("openai", 4, "Mend the parser. " * 300))
    with pytest.raises(SettingError, match="raise or send"):
        manager(MemoryStore(), over_budget="drop")
