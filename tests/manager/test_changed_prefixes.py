"""A head that changes within a session is named once: what of it, where, and what it costs."""

from __future__ import annotations

import copy
import logging
import re
from typing import Any

import pytest

from elision import ContextManager
from elision.manager.request_notes import describe_head_change, find_head_change
from elision.testing import builders
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.turn import Head, Message, make_content
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
        assert note.startswith("the system prompt changed in a time, from character 11 on, so up to ")
        assert "for about $0.0" in note
        assert "10:0" not in note
        assert ask(context, 3, f"It is 10:03. {RULES}", [tool("a")]) == ()
    assert [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING] == [
        f"session {context.session.name}: {note}"
    ]


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        ("Today is 2026-11-28, a Saturday.", "Today is 2026-11-29, a Sunday.", " in a date"),
        ("Today is Saturday.", "Today is Sunday.", " in a date"),
        ("At 2026-11-28T23:59:59Z", "At 2026-11-28T23:59:58Z", " in a time"),
        ("Run 4f9c2b7e-1a2b", "Run 4f9c2b7e-1a2c", " in an id"),
        ("Request 10042", "Request 10043", " in an id"),
        ("Be brief.", "Be polite.", ""),
        ("Be brief.", "Be brief. Today is Sunday.", ""),
    ],
)
def test_what_changes_by_itself_is_named(before: str, after: str, kind: str) -> None:
    heads = [Head(messages=(Message(role="system", content=make_content(text)),)) for text in (before, after)]
    note = describe_head_change("text", *heads, 50_000, find_prices("gpt-5.2"))
    assert note.startswith(f"the system prompt changed{kind}, from character ")


def test_an_edited_history_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """The message, the first character that differs, and what must be written again; the text is not quoted."""
    messages = make_history("anthropic", 6)
    with ContextManager("raw", model="claude-sonnet-4-5", store="memory:") as context:
        context.prepare(messages)
        known = context.prepare(messages := make_history("anthropic", 7)).diagnostics.after
        messages = copy.deepcopy(messages)
        messages[4]["content"][0]["content"] = messages[4]["content"][0]["content"].replace("value 977", "value 978")
        view = context.prepare(messages)
        (note,) = view.diagnostics.notes
        place = 1 + messages[4]["content"][0]["content"].index("8\nline 2")
        assert note.startswith(f"the client edited message 5 (a tool result), from character {place} on, so up to ")
        assert "978" not in note
        tokens = int(re.search(r"up to ([\d,]+) tokens", note)[1].replace(",", ""))  # type: ignore[index]
        assert 0.6 * known < tokens < 0.9 * known
        messages[6]["content"][0]["content"] = "another"
        assert context.prepare(messages).diagnostics.notes == ()
    assert note in caplog.text


def test_words_taken_back_and_compacted_histories_are_no_edits() -> None:
    before = make_history("anthropic", 8)
    for after in (before[:5] + make_history("anthropic", 9)[-2:], [*before[:1], *before[11:]]):
        with ContextManager("raw", model="claude-sonnet-4-5", store="memory:") as context:
            context.prepare(before)
            assert not any("edited" in note for note in context.prepare(after).diagnostics.notes)


def test_words_that_are_said_again_and_again_are_no_sign_of_an_edit() -> None:
    """A compacted history may have one of them where it was by chance."""
    said = [{"role": "user", "content": "Mend the parser. " + "word " * 3_000}]
    for number in range(6):
        said.append({"role": "assistant", "content": f"Step {number}."})
        said.append({"role": "user", "content": "Continue."})
    compacted = [said[0], {"role": "assistant", "content": "What I did: much."}, *said[-3:]]
    with ContextManager("raw", model="claude-sonnet-4-5", store="memory:") as context:
        context.prepare(said)
        assert not any("edited" in note for note in context.prepare(compacted).diagnostics.notes)


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
