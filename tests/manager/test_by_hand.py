"""Turns added by hand: whatever happens between them, the views are those of a run that nothing disturbed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import Advanced
from elision.errors import SettingError
from elision.manager import ContextManager
from elision.stores.memory import MemoryStore
from tests.manager.agents import LONG

STRATEGIES = [
    "masking(window=1, schedule=every-turn)",
    "hybrid(window=1, summarize_at=5, tail=2, summary_max_tokens=100, schedule=every-turn)",
    "masking(window=2)",
]
STEP = st.fixed_dictionaries(
    {
        "lines": st.integers(0, 120),
        "calls": st.integers(0, 2),
        "restart": st.booleans(),
        "views": st.integers(0, 2),
    }
)


@given(strategy=st.sampled_from(STRATEGIES), dialect=st.sampled_from(["openai", "anthropic"]), steps=st.lists(STEP))
def test_restarts_change_no_byte(strategy: str, dialect: Any, steps: list[dict[str, Any]]) -> None:
    """Opened anew between any two calls, a session goes on as it would have, and every raw turn is in its store."""
    stores = [MemoryStore(), MemoryStore()]
    contexts = [opened(strategy, dialect, store) for store in stores]
    for context in contexts:
        context.turns.begin("Find it.", system="Be careful.")
    for number, step in enumerate(steps, start=1):
        results = [f"{number}.{call}\n{LONG[: step['lines'] * 20]}" for call in range(step["calls"])]
        actions = [{"name": "bash", "arguments": {"command": f"cat {number}_{call}"}} for call in range(step["calls"])]
        for context in contexts:
            context.turns.add(f"thought {number}", actions, results, text=f"step {number}")
        for _ in range(step["views"]):
            assert contexts[0].turns.view().messages == contexts[1].turns.view().messages
        if step["restart"]:
            contexts[0].close()
            contexts[0] = opened(strategy, dialect, stores[0])
    seen = [context.turns.view() for context in contexts]
    assert seen[0].messages == seen[1].messages
    assert stores[0].turns("s") == stores[1].turns("s")
    assert len(stores[0].turns("s")) == len(steps)


def opened(strategy: str, dialect: Any, store: MemoryStore) -> ContextManager:
    return ContextManager(
        strategy,
        advanced=Advanced(dialect=dialect, clock=lambda: 0.0, tokens="estimate"),
        store=store,
        session="s",
    )


@pytest.mark.parametrize("action", [{"arguments": "{}"}, {"name": 3}, 5])
def test_an_action_without_a_name_is_refused(action: Any) -> None:
    """The sentence says what an action is."""
    with opened(STRATEGIES[0], "openai", MemoryStore()) as context:
        context.turns.begin("Find it.")
        with pytest.raises(
            SettingError, match=r"an action is a text or \{'name': ..., 'arguments': ...\}, not (dict|int)"
        ):
            context.turns.add("thought", action, "result")
