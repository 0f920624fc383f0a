"""In the shadow: everything is decided, priced and recorded, and the request is sent unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.stores.memory import MemoryStore
from elision.trajectory.events import PassDecided, SessionOpened
from tests.manager.agents import SHAPES, make_history

EAGER = "masking(window=2, schedule=every-turn)"
TOOLS = [{"name": "bash", "description": "Runs.", "input_schema": {"type": "object"}}]


def manager(store: MemoryStore, strategy: str = EAGER, **options: Any) -> ContextManager:
    return ContextManager(strategy, store=store, **gather_options({"session": "s", "shadow": True, **options}))


@pytest.mark.parametrize("shape", SHAPES)
def test_what_goes_out_is_what_came(shape: str) -> None:
    """The very objects, no breakpoint, no further field; the log has the decisions of a session that hides."""
    store, open_ = MemoryStore(), MemoryStore()
    told: dict[str, Any] = {"dialect": "openai" if shape == "text" else shape}
    if shape == "anthropic":
        # The provider would be asked to clear, which is a further field.
        told["thinking"] = "native"
    context, other = manager(store, **told), manager(open_, shadow=False, **told)
    tools = TOOLS if shape != "text" else None
    for steps in range(7):
        messages = make_history(shape, steps)
        view = context.prepare(messages, tools=tools, system="Be careful.")
        seen = other.prepare(messages, tools=tools, system="Be careful.")
        assert len(view.messages) == len(messages)
        assert all(one is two for one, two in zip(view.messages, messages, strict=True))
        assert (view.tools is tools, view.system, dict(view.extra), view.betas) == (True, "Be careful.", {}, ())
        assert view.diagnostics.masked == seen.diagnostics.masked
        assert (view.diagnostics.shadow, seen.diagnostics.shadow) == (True, False)
    decided = [[event for event in each.events("s") if isinstance(event, PassDecided)] for each in (store, open_)]
    assert decided[0] == decided[1]
    assert sum(len(event.masks) for event in decided[0]) > 2


def test_usage_is_of_the_whole_prompt() -> None:
    """What the provider reported corrects the count of what it was sent, in the process that asked and in another."""
    store = MemoryStore()
    context = manager(store)
    for steps in range(7):
        view = context.prepare(make_history("openai", steps))
        context.record({"prompt_tokens": view.diagnostics.raw - view.diagnostics.anchor + 77, "completion_tokens": 5})
        assert view.diagnostics.anchor == (77 if steps else 0)
    assert view.diagnostics.after < view.diagnostics.raw / 2
    context.close()
    again = manager(store)
    assert again.prepare(make_history("openai", 7)).diagnostics.anchor == 77


def test_out_of_the_shadow_and_into_it() -> None:
    """A later process may send what was decided, or stop doing so; the log says from where on."""
    store = MemoryStore()
    with manager(store) as context:
        for steps in range(5):
            context.prepare(make_history("openai", steps))
    with manager(store, shadow=False) as context:
        view = context.prepare(make_history("openai", 5))
        assert "tokens hidden" in json.dumps(view.messages)
        assert not view.diagnostics.shadow
        context.record({"prompt_tokens": view.diagnostics.after + 50, "completion_tokens": 5})
        assert context.prepare(make_history("openai", 6)).diagnostics.anchor == 50
    with manager(store) as context:
        assert context.prepare(make_history("openai", 7)).messages == make_history("openai", 7)
    assert [event.shadow for event in store.events("s") if isinstance(event, SessionOpened)] == [True, False, True]


def test_no_budget_is_missed_in_the_shadow() -> None:
    """A request that no view of would fit is sent unchanged, and the diagnostics say so."""
    context = manager(MemoryStore(), EAGER.replace(")", ", budget=budget(tokens=300, reserved=100))"))
    messages = make_history("openai", 4, "Mend the parser. " * 200)
    view = context.prepare(messages)
    assert view.messages == messages
    assert [fault.kind for fault in view.diagnostics.faults] == ["budget"]


def test_a_fork_stays_in_the_shadow() -> None:
    """A history that turns back is no way out of it."""
    context = manager(MemoryStore())
    for steps in range(6):
        context.prepare(make_history("openai", steps))
    other = [*make_history("openai", 4), *SHAPES["openai"](77)]
    view = context.prepare(other)
    assert (view.messages, view.diagnostics.shadow, view.diagnostics.branch) == (other, True, "s~2")
