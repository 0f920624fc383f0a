"""How long cache entries live, in the words of a report."""

from __future__ import annotations

import pytest

from elision.lab.lifetime_trial import LifetimeTrial
from elision.lab.report.lifetime_wording import describe_study_prices, has_lifetimes
from elision.lab.report.wording import describe_prices
from elision.lab.results import Study
from elision.trajectory.price_lookup import find_price_set

PLANNED = "; cache entries live five minutes or an hour, written at $6, as planned"
RAW = "; sending everything is billed as recorded"


def make_study(prices: str, trial: LifetimeTrial) -> Study:
    return Study(prices=find_price_set(prices), counter="o200k", strategies=(), rows=(), lifetime=trial)


@pytest.mark.parametrize(
    ("trial", "text"),
    [
        (LifetimeTrial(), ""),
        (LifetimeTrial("5m"), "; cache entries live five minutes"),
        (LifetimeTrial("1h"), "; cache entries live an hour, written at $6"),
        (LifetimeTrial("plan"), f"{PLANNED}, without pings{RAW}"),
        (LifetimeTrial("plan", 1), f"{PLANNED}, at most 1 ping in a pause{RAW}"),
    ],
)
def test_a_lifetime_that_the_recordings_do_not_decide_is_named(trial: LifetimeTrial, text: str) -> None:
    """With the price of an hour's entries, since the prices name that of five minutes."""
    study = make_study("anthropic", trial)
    assert describe_study_prices(study) == describe_prices(study.prices) + text


def test_prices_with_one_lifetime_name_none() -> None:
    """Where the provider has no entries of an hour, none are billed."""
    study = make_study("openai", LifetimeTrial("1h"))
    assert not has_lifetimes(study)
    assert describe_study_prices(study) == describe_prices(study.prices)
