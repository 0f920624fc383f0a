"""Lifetimes of cache entries, chosen call by call."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.lifetime_planner import LifetimeOffer, LifetimePlanner
from elision.trajectory.lifetimes import CacheLifetime
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.prices import Prices

SONNET = find_prices("claude-sonnet-4-5")
OFFER = LifetimeOffer(turns=30, stable_turn=20, tokens=50_000, lasting_tokens=0, may_last=True, calls=30, rewrites=0)


def plan_after(
    pauses: list[float], *, most: int = 0, offer: LifetimeOffer = OFFER, words: bool = False
) -> CacheLifetime:
    """Return what is planned after calls with such pauses between them."""
    planner = LifetimePlanner(SONNET)
    now = 1_000.0
    for pause in (0.0, *pauses):
        now += pause
        planner.record_call(now, "m", follows_words=words)
    planned = planner.choose_lifetime("plan", most, offer)
    assert planned is not None
    return planned


def test_without_pauses_nothing_is_kept_longer() -> None:
    """An agent that works without a pause pays for no hour and no ping."""
    assert plan_after([10.0] * 30, most=12) == CacheLifetime(planned=True)


def test_frequent_pauses_are_worth_an_hour() -> None:
    """A pause of ten minutes before every other call: the whole prompt is written for an hour."""
    assert plan_after([10.0, 600.0] * 15).hour_turn == OFFER.turns


def test_what_is_soon_rewritten_is_not_kept_for_an_hour() -> None:
    """Where the prompt is rewritten at every other call, only what precedes the rewrites is kept."""
    found = plan_after([10.0, 10.0, 10.0, 600.0] * 8, offer=replace(OFFER, rewrites=15))
    assert found.hour_turn == OFFER.stable_turn


def test_nothing_goes_over_to_an_hour_on_top_of_shorter_entries() -> None:
    """What follows an entry of five minutes dies with it, so a write for an hour would buy nothing."""
    assert plan_after([10.0, 600.0] * 15, offer=replace(OFFER, may_last=False)).hour_turn is None


def test_pauses_beyond_an_hour_are_worth_nothing() -> None:
    """An entry of an hour does not outlast a night."""
    assert plan_after([10.0, 40_000.0] * 15).hour_turn is None


def test_rare_short_pauses_are_worth_a_ping() -> None:
    """Where pauses are too rare for an hour, a ping bridges those that are a little too long; after a person's, too."""
    rare = [10.0] * 12 + [400.0] + [10.0] * 12 + [400.0] + [10.0] * 12
    found = plan_after(rare, most=4)
    assert (found.hour_turn, found.pings > 0) == (None, True)
    assert plan_after(rare).pings == 0
    assert plan_after(rare, most=4, words=True).pings_after_words > 0


@given(st.lists(st.floats(0, 50_000), max_size=40), st.integers(0, 12), st.booleans())
def test_never_more_pings_than_allowed(pauses: list[float], most: int, words: bool) -> None:
    """Whatever the pauses, the limit on pings holds; and the same calls give the same plan."""
    found = plan_after(pauses, most=most, words=words)
    assert max(found.pings, found.pings_after_words) <= most
    assert plan_after(pauses, most=most, words=words) == found


def test_settings_are_followed() -> None:
    """A fixed choice is what it says; the client's is nobody's business here."""
    planner = LifetimePlanner(SONNET)
    assert planner.choose_lifetime("5m", 4, OFFER) == CacheLifetime()
    assert planner.choose_lifetime("1h", 4, OFFER) == CacheLifetime(hour_turn=30)
    assert planner.choose_lifetime("client", 4, OFFER) is None


@pytest.mark.parametrize("model", ["gpt-5", "deepseek-chat"])
def test_other_caches_have_no_lifetime_to_choose(model: str) -> None:
    """Providers without breakpoints, or without a price for an hour, are left alone."""
    prices: Prices = find_prices(model)
    assert LifetimePlanner(prices).choose_lifetime("plan", 4, OFFER) is None


def test_unknown_times_are_no_pauses() -> None:
    """Calls without a time teach nothing."""
    planner = LifetimePlanner(SONNET)
    for _ in range(20):
        planner.record_call(None, "m", follows_words=False)
    untimed = replace(OFFER, is_timed=False)
    assert planner.choose_lifetime("plan", 4, untimed) == CacheLifetime(planned=True)
