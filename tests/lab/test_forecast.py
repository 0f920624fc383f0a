"""When a strategy is to be expected to act."""

from __future__ import annotations

import pytest

from elision.errors import BudgetError
from elision.lab.forecast import MEDIAN_CALLS, Forecast, forecast_session, is_due_by_turns
from elision.strategies.spec import parse_strategy
from elision.trajectory.price_lookup import find_price_set


def forecast(text: str, prices: str = "anthropic") -> Forecast:
    return forecast_session(parse_strategy(text), find_price_set(prices))


@pytest.mark.parametrize("prices", ["anthropic", "uncached", "qwen3-coder"])
@pytest.mark.parametrize(
    ("text", "placeholder", "summary"),
    [
        ("paper-masking", 12, None),
        ("paper-summarization", None, 32),
        ("paper-hybrid", 12, 44),
        ("swe-agent-hybrid", 12, 54),
        ("openhands-masking", 31, None),
        ("masking(window=3, schedule=every-turn)", 5, None),
    ],
)
def test_at_every_turn_the_calls_are_exact(
    text: str, placeholder: int | None, summary: int | None, prices: str
) -> None:
    """They are those of the published descriptions, whatever the prices."""
    found = forecast(text, prices)
    assert (found.first_placeholder, found.first_summary) == (placeholder, summary)
    assert is_due_by_turns(parse_strategy(text))


def test_a_schedule_that_knows_the_cache_acts_later() -> None:
    """Where a cache makes rewriting expensive, and at once where there is none."""
    cached, uncached = forecast("masking"), forecast("masking", "uncached")
    assert cached.first_placeholder is not None
    assert uncached.first_placeholder == 12 < cached.first_placeholder < MEDIAN_CALLS
    assert not is_due_by_turns(parse_strategy("masking"))


def test_sizes() -> None:
    """Raw requests grow with the run; a strategy's largest one is smaller, and a budget is kept."""
    raw = forecast("raw")
    assert (raw.first_placeholder, raw.first_summary) == (None, None)
    assert raw.largest_tokens == raw.raw_tokens
    assert forecast("masking").largest_tokens < 0.7 * raw.largest_tokens
    assert forecast("hybrid(budget=14000)").largest_tokens <= 14_000 * 0.85 - 1_000


def test_parts_and_templates_are_run_too() -> None:
    """A count of results, a template of one's own, and rules."""
    assert forecast("two-tier(keep_recent=4, schedule=every-turn)").first_placeholder == 6
    assert forecast('masking(schedule=every-turn, gist=0, placeholder="[{lines} lines]")').first_placeholder == 12
    assert forecast("masking(schedule=every-turn, rules=rule(tool=bash, keep=true))").first_placeholder is None


def test_a_budget_without_room() -> None:
    """A session whose head alone breaks the budget is an error of ours."""
    with pytest.raises(BudgetError):
        forecast("masking(budget=2000)")
