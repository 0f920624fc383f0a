"""The table of cache lifetimes."""

from __future__ import annotations

import pytest
from rich.console import Console

from elision.lab.lifetime_study import LifetimeCosts
from elision.lab.lifetime_trial import LifetimeTrial
from elision.lab.report.lifetime_table import format_share, print_lifetimes
from elision.lab.results import Study
from elision.trajectory.price_lookup import find_price_set

COSTS = LifetimeCosts(five_minutes=2.0, hour=2.25, planned=1.25, pinged=1.2, hindsight=1.1, never_cold=1.0)


def render(costs: LifetimeCosts, pings: int = 0, prices: str = "anthropic") -> str:
    study = Study(
        prices=find_price_set(prices),
        counter="o200k",
        strategies=(),
        rows=(),
        lifetimes={"masking": costs},
        lifetime=LifetimeTrial("plan", pings),
    )
    console = Console(width=100)
    with console.capture() as captured:
        print_lifetimes(study, console)
    return captured.get()


def test_every_choice_has_a_row() -> None:
    """A row for each choice, with its cost and what it saves of what expired entries cost."""
    lines = [line.split() for line in render(COSTS).splitlines()]
    assert ["masking", "5", "minutes", "$2.00", "0", "%"] in lines
    assert ["1", "hour", "$2.25", "−25", "%"] in lines
    assert ["as", "planned", "$1.25", "75", "%"] in lines
    assert ["never", "cold", "$1.00", "100", "%"] in lines


def test_runs_without_pauses_have_no_table() -> None:
    """Where no entry expires there is nothing to compare, and that is said."""
    same = LifetimeCosts(five_minutes=1.0, hour=1.2, planned=1.0, pinged=1.0, hindsight=1.0, never_cold=1.0)
    assert "no pause of these runs outlasts an entry" in " ".join(render(same).split())


def test_prices_with_one_lifetime_have_no_table() -> None:
    """Where the provider has no entries of an hour, that is the reason."""
    assert "at these prices cache entries have one lifetime" in render(COSTS, prices="openai")


def test_the_pings_asked_for_are_named() -> None:
    """The row of pings says how many a pause may have."""
    assert "as planned, at most 1 ping " in render(COSTS, 1)
    assert "as planned, at most 4 pings " in render(COSTS)


@pytest.mark.parametrize(("share", "text"), [(None, "–"), (0.614, "61 %"), (-0.5, "−50 %"), (-0.001, "0 %")])
def test_shares(share: float | None, text: str) -> None:
    """In whole percent, with a minus sign, and no minus before nothing."""
    assert format_share(share) == text
