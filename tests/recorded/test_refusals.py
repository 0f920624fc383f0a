"""The rules say of recorded requests what the providers said."""

from __future__ import annotations

import pytest

from tests.recorded.cassettes import Exchange, find_cassettes, load_exchanges
from tests.recorded.refusals import Cause, check_rules, find_api, find_cause, read_cause


def find_exchanges() -> list[Exchange]:
    return [each for each in load_exchanges(find_cassettes()) if find_api(each)]


def test_rules_agree_with_the_provider() -> None:
    """Silent on every accepted request, and on every one refused for another cause; else they name the reason."""
    assert [(each.name, problem) for each in find_exchanges() for problem in check_rules(each)] == []


def test_every_cause_is_among_the_refusals() -> None:
    """Structure, models, settings and references: so that this is a test of all four."""
    assert {find_cause(each) for each in find_exchanges() if each.status >= 400} == {
        "structure",
        "model",
        "setting",
        "reference",
    }


@pytest.mark.parametrize(
    ("message", "param", "cause"),
    [
        ("temperature: range: 0..1", None, "setting"),
        ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens", None, "setting"),
        ("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024", None, "setting"),
        ("messages.1.content.0: unexpected `tool_use_id` found in `tool_result` blocks", None, "structure"),
        ('messages: first message must use the "user" role', None, "structure"),
        ("tools.0.input_schema: JSON schema is invalid", None, "structure"),
        ("Invalid value: 'x'. Supported values are: 'low' and 'high'.", "reasoning.effort", "setting"),
        ("Missing required parameter: 'input[2].output'.", "input[2].output", "structure"),
        ("prompt is too long: 210000 tokens > 200000 maximum", None, "size"),
        ("Your credit balance is too low to access the Anthropic API.", None, "account"),
        ("API key not valid. Please pass a valid API key.", None, "account"),
        ("Please ensure that function call turn comes immediately after a user turn", None, "structure"),
    ],
)
def test_a_refusal_is_no_missed_rule_unless_it_is_about_the_structure(
    message: str, param: str | None, cause: Cause
) -> None:
    """Words of the providers, by what they are about: a fault outside the messages is nothing that a rule misses."""
    assert read_cause({"message": message, "param": param}) == cause
