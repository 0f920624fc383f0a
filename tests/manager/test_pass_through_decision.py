"""Requests that go out as they came, whatever is in them: what `foregone` says is so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision import Advanced
from elision.manager import ContextManager
from elision.manager.advanced_options import gather_options
from elision.stores.memory import MemoryStore
from tests.manager.agents import SHAPES, make_history

DIALECTS = ("openai", "openai-responses", "anthropic")
WORDS = st.tuples(st.text(max_size=12), st.sampled_from([1, 5_000]))
SAID = {
    "openai": st.sampled_from(["system", "developer", "user", "tool"]),
    "openai-responses": st.sampled_from(["system", "developer", "user"]),
    "anthropic": st.just("user"),
}
STRATEGIES = st.sampled_from(
    [
        "raw",
        "masking(window=1, schedule=every-turn)",
        "hybrid(window=1, summarize_at=2, tail=1, schedule=every-turn)",
        "summarization(every=1, tail=1, schedule=every-turn)",
    ]
)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "recall": st.sampled_from(["auto", "caller", "never"]),
        "cache_control": st.sampled_from(["auto", "gaps", "client"]),
        "token_budget": st.sampled_from([1_200, 2_000, 100_000]),
        "shadow": st.booleans(),
        "model": st.sampled_from(["gpt-5.2", "claude-sonnet-4-5", "claude-opus-5-5"]),
        "thinking": st.sampled_from(["auto", "native", "drop_block", "defer", "ignore"]),
    },
)


@given(
    dialect=st.sampled_from(DIALECTS),
    strategy=STRATEGIES,
    options=OPTIONS,
    tools=st.booleans(),
    steps=st.integers(0, 6),
    words=st.lists(WORDS, min_size=1, max_size=4),
    data=st.data(),
)
def test_what_is_said_of_it_is_so(
    dialect: Any,
    strategy: str,
    options: dict[str, Any],
    tools: bool,
    steps: int,
    words: list[tuple[str, int]],
    data: st.DataObject,
) -> None:
    """Of every request: where it is foregone, its pass adds, hides and changes nothing."""
    context = ContextManager(
        strategy,
        store=MemoryStore(),
        session="s",
        **gather_options({"advanced": Advanced(dialect=dialect, over_budget="send", clock=lambda: 1.0), **options}),
    )
    messages: list[Any] = [{"role": data.draw(SAID[dialect]), "content": word * times} for word, times in words]
    defined = [{"name": "bash", "input_schema": {"type": "object"}}] if tools else None
    for step in range(steps + 1):
        before = json.dumps(messages)
        foregone = context._opened.is_pass_through(begun=step > 0, model="")
        view = context.prepare(list(messages), tools=defined, request={"thinking": {"type": "enabled"}})
        if foregone:
            assert json.dumps(view.messages) == before
            assert (view.added_tools, dict(view.extra), view.betas, view.tools) == ([], {}, (), defined)
        messages += SHAPES[dialect](step + 1)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_it_is_said_of_what_matters(dialect: Any) -> None:
    """First requests and shadow mode, as the gateway has them."""
    given = {"dialect": dialect, "cache_control": "gaps", "model": "gpt-5.2"}
    context = ContextManager(store=MemoryStore(), **gather_options(given))
    assert context._opened.is_pass_through(begun=False)
    assert not context._opened.is_pass_through(begun=True)
    assert not context._opened.is_pass_through(begun=False, model="claude-opus-5-5"), (
        "its thinking is bound to what we may add"
    )
    context.prepare(make_history(dialect, 0))
    assert ContextManager(store=MemoryStore(), shadow=True, **gather_options(given))._opened.is_pass_through(begun=True)


def test_tools_that_entered_before() -> None:
    """A session that began with our tools in its requests has them there at its first message too."""
    store = MemoryStore()
    given = {"store": store, "family": "f", "dialect": "anthropic", "cache_control": "gaps", "over_budget": "send"}
    tools = [{"name": "bash", "input_schema": {"type": "object"}}]
    bound = ContextManager(
        session="s", model="claude-opus-5-5", **gather_options({"advanced": Advanced(thinking="drop_block"), **given})
    )
    assert bound.prepare(make_history("anthropic", 1), tools=tools).added_tools
    context = ContextManager(session="t", model="claude-sonnet-4-5", **gather_options(given))
    assert context.prepare(make_history("anthropic", 2), tools=[]).added_tools
    assert not context._opened.is_pass_through(begun=False)
    assert context.prepare(make_history("anthropic", 0), tools=[]).added_tools
