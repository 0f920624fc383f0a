"""The rules say of recorded requests what the providers said."""

from __future__ import annotations

from collections import Counter

from tests.recorded.cassettes import SHARED, find_cassettes, load_exchanges
from tests.recorded.refusals import check_rules, find_api, find_cause, find_violations

EXCHANGES = [each for each in load_exchanges(find_cassettes()) if find_api(each)]


def test_rules_agree_with_the_provider() -> None:
    """Silent on every accepted request, and on every one refused for another cause; else they name the reason."""
    assert [(each.name, problem) for each in EXCHANGES for problem in check_rules(each)] == []


def test_every_refusal_has_a_cause() -> None:
    """All that were refused, by cause and by the rule that names the reason."""
    refused = [each for each in EXCHANGES if each.status >= 400]
    causes = Counter(find_cause(each) for each in refused)
    rules = {found.rule for each in refused for found in find_violations(each)}
    assert rules <= {"audio-needs-a-model-that-takes-it", "files-are-no-recordings", "reasoning-leads-to-something"}
    assert causes["structure"] == sum(bool(find_violations(each)) for each in refused)
    if find_cassettes() == SHARED:
        assert causes == {"structure": 8, "model": 6, "setting": 1, "reference": 2}
