"""A head that changes within a session is named once: what of it, where, and what it costs."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from elision import ContextManager
from elision.manager.changed_heads import describe_head_change, find_head_change
from elision.testing import builders
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.turn import Head
from tests.manager.agents import make_history

RULES = "Follow the rules. " * 400


def tool(name: str, about: str = "") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": about, "parameters": {"type": "object"}}}


def ask(context: ContextManager, step: int, system: str, tools: list[dict[str, Any]]) -> tuple[str, ...]:
    messages = [{"role": "system", "content": system}, *make_history("openai", step)]
    notes = context.prepare(messages, tools=tools).diagnostics.notes
    context.record({"prompt_tokens": 2_000 + step, "completion_tokens": 5})
    return notes


def test_a_clock_in_the_system_prompt(caplog: pytest.LogCaptureFixture) -> None:
    """The place is that of the first character that differs; the prompt is not quoted, and nothing is said twice."""
    with ContextManager("masking", model="gpt-5.2", store="memory:") as context:
        assert ask(context, 1, f"It is 10:01. {RULES}", [tool("a")]) == ()
        (note,) = ask(context, 2, f"It is 10:02. {RULES}", [tool("a")])
        assert note.startswith("the system prompt changed, from character 11 on, so up to ")
        assert "for about $0.0" in note
        assert "10:0" not in note
        assert ask(context, 3, f"It is 10:03. {RULES}", [tool("a")]) == ()
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING] == [
        f"session {context.session.name}: {note}"
    ]


def test_tools_in_another_order_and_other_tools() -> None:
    with ContextManager("masking", model="gpt-5.2", store="memory:") as context:
        assert ask(context, 1, RULES, [tool("a"), tool("b"), tool("c")]) == ()
        (note,) = ask(context, 2, RULES, [tool("a"), tool("c"), tool("b")])
        assert note.startswith("the tools came in another order, from 'c' on, so ")
        (note,) = ask(context, 3, RULES, [tool("a"), tool("c"), tool("b", "anew")])
        assert note.startswith("the tools changed, from 'b' on, so ")


def test_a_change_that_cost_nothing_hides_no_later_one() -> None:
    """A prompt that is too short for the cache may grow, and its clock then costs."""
    with ContextManager("masking", model="gpt-5.2", store="memory:") as context:
        assert ask(context, 0, "a", []) == ()
        assert ask(context, 0, "b", []) == ()
        notes = ask(context, 3, "c", [])
        assert any(note.startswith("the system prompt changed, from character 1 on, ") for note in notes)


def test_tools_in_a_group_of_gemini() -> None:
    """Each function counts, by its own name."""

    def head(*names: str) -> Head:
        return Head(tools=({"functionDeclarations": [{"name": name} for name in names]},))

    assert find_head_change(head("a", "b"), head("b", "a")) == "order"
    assert find_head_change(head("a", "b"), head("a", "c")) == "tools"
    prices = find_prices("gemini-3-pro-preview")
    note = describe_head_change("tools", head("a", "b"), head("a", "c"), 50_000, prices)
    assert note.startswith("the tools changed, from 'c' on, ")


def test_nothing_is_said_where_no_cache_breaks() -> None:
    """A model without a cache, a prompt that is too short for one, and what is added behind the task."""
    with ContextManager("masking", store="memory:", prices="uncached") as context:
        assert ask(context, 1, f"a {RULES}", [tool("a")]) == ()
        assert ask(context, 2, f"b {RULES}", [tool("a")]) == ()
    with ContextManager("masking", model="gpt-5.2", store="memory:") as context:
        assert ask(context, 0, "a", []) == ()
        assert ask(context, 0, "b", []) == ()
    one = Head(messages=(builders.user("Look."),))
    assert find_head_change(one, Head(messages=(*one.messages, builders.user("And there.")))) is None
    assert find_head_change(one, one) is None
    theirs = {"name": "a", "input_schema": {"type": "object"}}
    assert find_head_change(Head(tools=(tool("a"),)), Head(tools=(theirs,))) is None
