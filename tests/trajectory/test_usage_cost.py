"""What reported tokens cost."""

from __future__ import annotations

import pytest

from elision.trajectory.price_lookup import cost_reported_usage, find_prices
from elision.trajectory.usage import ModelUsage, Usage

SONNET = find_prices("claude-sonnet-4-6")


def test_what_the_provider_stated_is_taken() -> None:
    """A cost that was stated goes before the price list."""
    assert cost_reported_usage(Usage(input=1_000_000, usd=0.25), SONNET) == 0.25


def test_each_count_has_its_price() -> None:
    """Plain, read, written for five minutes, written for an hour (2 x input), answered."""
    usage = Usage(input=1, cache_read=10, cache_write=500, cache_write_1h=400, output=7)
    paid = (1 * 3 + 10 * 0.3 + 100 * 3.75 + 400 * 6 + 7 * 15) / 1e6
    assert cost_reported_usage(usage, SONNET) == pytest.approx(paid)


def test_a_model_without_a_price_costs_what_the_asked_one_does() -> None:
    """Where nobody knows an advisor's prices the usual ones stand in."""
    part = Usage(input=100, output=10)
    usage = Usage(input=300, output=30, others=(ModelUsage("nobody-knows-it", part),))
    assert cost_reported_usage(usage, SONNET) == pytest.approx((300 * 3 + 30 * 15) / 1e6)
