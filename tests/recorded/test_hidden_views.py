"""What is sent instead of a recorded conversation breaks nothing that the conversation did not break."""

from __future__ import annotations

from functools import cache

import pytest

from tests.recorded.cassettes import find_cassettes, load_exchanges
from tests.recorded.hidden_views import STRATEGIES, HiddenView, build_hidden_view
from tests.soak import leave_to_soak


@cache
def hidden_by(strategy: str) -> list[HiddenView]:
    """Every recorded conversation that was answered, with all hidden that the strategy allows."""
    answered = [each for each in load_exchanges(find_cassettes()) if each.api and each.status == 200]
    return [build_hidden_view(each, strategy) for each in answered if each.response_body]


@pytest.mark.parametrize("strategy", leave_to_soak(STRATEGIES, STRATEGIES[1]))
def test_what_is_left_is_accepted(strategy: str) -> None:
    """Neither a rule of the provider's nor a type of its package is broken by what is hidden."""
    assert [(each.exchange.name, fault) for each in hidden_by(strategy) for fault in each.list_faults()] == []


@pytest.mark.parametrize("strategy", leave_to_soak(STRATEGIES, STRATEGIES[1]))
def test_conversations_are_changed(strategy: str) -> None:
    """The strategy has something to hide in many of them, so that this is a test."""
    changed = [each.is_changed for each in hidden_by(strategy)]
    assert sum(changed) > 0.1 * len(changed)
