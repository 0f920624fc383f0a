"""All rules of a dialect at once: what was there before, what an edit brought, and what nobody can read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from elision.errors import SpecError
from elision.testing.request_rules import RULES, get_rule_name, list_new_violations, list_violations
from tests.testing.request_rules import test_rules_anthropic, test_rules_openai_chat, test_rules_openai_responses
from tests.work import assert_linear


def _turns(count: int, *, answered: bool = True) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "List."}]
    for turn in range(count):
        use = {"type": "tool_use", "id": f"t{turn}", "name": "ls", "input": {}}
        messages.append({"role": "assistant", "content": [use]})
        if answered or turn < count - 1:
            result = {"type": "tool_result", "tool_use_id": f"t{turn}", "content": "a.py"}
            messages.append({"role": "user", "content": [result]})
    return messages


def test_a_clients_own_violation_is_not_introduced() -> None:
    """What was there before is not ours, wherever an edit moved it to."""
    before = {"messages": _turns(4, answered=False)}
    assert [each.subject for each in list_violations("anthropic", before)] == ["t3"]
    moved = {"messages": [before["messages"][0], *before["messages"][3:]]}
    assert list_new_violations("anthropic", before, moved) == []


def test_an_edit_that_breaks_a_pair_is_introduced() -> None:
    """A result dropped beside an open call of the client's own is told apart from it."""
    before = {"messages": _turns(4, answered=False)}
    after = {"messages": [*before["messages"][:2], *before["messages"][3:]]}
    assert [(each.rule, each.subject) for each in list_new_violations("anthropic", before, after)] == [
        ("calls-are-answered", "t0")
    ]


def test_a_second_violation_of_one_kind_is_introduced() -> None:
    """Two blank texts are one more than one."""
    blank = {"type": "text", "text": " "}
    before = {"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}, blank]}]}
    after = {"messages": [{"role": "user", "content": [blank, blank]}]}
    assert len(list_new_violations("anthropic", before, after)) == 1
    assert list_new_violations("anthropic", after, before) == []


def test_an_unknown_dialect_lists_those_that_exist() -> None:
    """A typing error is mended at sight."""
    with pytest.raises(SpecError, match="anthropic"):
        list_violations("antropic", {})


@pytest.mark.parametrize("dialect", RULES)
def test_every_rule_says_why(dialect: str) -> None:
    """A rule without a reason is nobody's; its name is in its violations."""
    assert all(rule.__doc__ for rule in RULES[dialect])
    assert len({get_rule_name(rule) for rule in RULES[dialect]}) == len(RULES[dialect])


#: Dialect -> a broken request for each rule, and sound ones.
_CASES = {
    "openai": test_rules_openai_chat,
    "openai-responses": test_rules_openai_responses,
    "anthropic": test_rules_anthropic,
}


@pytest.mark.parametrize("dialect", _CASES)
def test_every_rule_has_a_case(dialect: str) -> None:
    """No rule is stated that nothing breaks."""
    assert list(_CASES[dialect].BROKEN) == [get_rule_name(rule) for rule in RULES[dialect]]


@pytest.mark.parametrize(("dialect", "rule"), [(name, rule) for name in _CASES for rule in _CASES[name].BROKEN])
def test_a_broken_request_breaks_its_rule_and_no_other(dialect: str, rule: str) -> None:
    """Each reason stands alone, with its place."""
    body, place = _CASES[dialect].BROKEN[rule]
    assert [(each.rule, each.place) for each in list_violations(dialect, body)] == [(rule, place)]


@pytest.mark.parametrize(("dialect", "case"), [(name, case) for name in _CASES for case in _CASES[name].SOUND])
def test_what_is_accepted(dialect: str, case: str) -> None:
    """Nothing is held against a request that the service takes."""
    assert list_violations(dialect, _CASES[dialect].SOUND[case]) == []


_WORDS = some.sampled_from(
    ["user", "assistant", "tool", "a", "tool_use", "tool_result", "thinking", "reasoning", "function_call_output", ""]
)
_JUNK = some.recursive(
    some.none() | some.booleans() | some.integers() | _WORDS,
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.dictionaries(
            some.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "id",
                    "call_id",
                    "tool_calls",
                    "tool_use_id",
                    "text",
                    "cache_control",
                    "ttl",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)


@given(
    body=some.dictionaries(
        some.sampled_from(["messages", "input", "system", "tools", "thinking", "cache_control"]), _JUNK
    )
)
@pytest.mark.parametrize("dialect", RULES)
def test_junk_is_judged_not_raised_at(dialect: str, body: dict[str, Any]) -> None:
    """Whatever a client sends, the rules say something or nothing; a request brings nothing new to itself."""
    assert isinstance(list_violations(dialect, body), list)
    assert list_new_violations(dialect, body, body) == []


@pytest.mark.parametrize("dialect", RULES)
def test_depth_is_no_matter(dialect: str) -> None:
    """Results inside results, as deep as JSON goes, are looked into once."""
    block: dict[str, Any] = {"type": "text", "text": "x"}
    for _ in range(5_000):
        block = {"type": "tool_result", "tool_use_id": "a", "content": [block]}
    messages = [{"role": "user", "content": [block]}]
    assert isinstance(list_violations(dialect, {"messages": messages, "input": messages}), list)


def test_rules_are_linear() -> None:
    """Sixteen times the turns are not quadratically more work."""
    bodies = {turns: {"messages": _turns(turns)} for turns in (500, 8_000)}
    assert_linear(lambda turns: list_violations("anthropic", bodies[turns]), 500)
    assert list_violations("anthropic", bodies[8_000]) == []
