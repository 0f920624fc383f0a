"""What is read of every recorded response is its bill, added up by hand: in tokens by kind and in USD."""

from __future__ import annotations

from tests.recorded.bills import add_up_bill, check_bill
from tests.recorded.cassettes import Exchange, find_cassettes, load_exchanges


def find_answered() -> list[Exchange]:
    return [each for each in load_exchanges(find_cassettes()) if each.api and each.status == 200]


def test_usage_is_the_bill() -> None:
    """Whole and streamed, every token is read as the kind and the model that it is billed as, and costs its price."""
    assert [(each.name, problem) for each in find_answered() for problem in check_bill(each)] == []


def test_every_kind_of_bill_is_among_the_recordings() -> None:
    """Reads and writes of the cache, other models' parts, all three APIs: so that this is a test."""
    bills = [(each.api, add_up_bill(each) or {}) for each in find_answered()]
    assert {api for api, bill in bills if bill} == {"openai", "openai-responses", "anthropic"}
    found = {kind for _, bill in bills for _, kind in bill}
    assert found >= {"input", "cache_read", "cache_write_5m", "output"}
    assert any(model for _, bill in bills for model, _ in bill)
