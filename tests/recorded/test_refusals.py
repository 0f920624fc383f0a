"""The rules say of recorded requests what the providers said."""

from __future__ import annotations

from tests.recorded.cassettes import Exchange, find_cassettes, load_exchanges
from tests.recorded.refusals import check_rules, find_api, find_cause


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
