"""Studies with cache lifetimes: the best ones in hindsight and the bound that nothing reaches are rows and a column."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from rich.console import Console

from elision.lab.candidates import parse_candidates
from elision.lab.lifetime_study import compare_lifetimes
from elision.lab.lifetime_trial import CLIENT_LIFETIMES, LifetimeTrial
from elision.lab.pause_patterns import set_pauses
from elision.lab.report import html, terminal
from elision.lab.results import Study
from elision.lab.run_loading import Loaded
from elision.lab.study import run_study
from elision.lab.study_settings import StudySettings
from tests.lab.test_lifetime_study import PRICES, RUN

YARDSTICKS = ("masking, hindsight", "masking, never cold")


PLANNED = LifetimeTrial("plan")


@cache
def study(trial: LifetimeTrial = PLANNED, *, hindsight: bool = True) -> Study:
    settings = StudySettings(
        prices=PRICES,
        candidates=parse_candidates(["raw", "masking", "hybrid"]),
        tokens="estimate",
        dialect="anthropic",
        hindsight=hindsight,
        lifetime=trial,
    )
    runs = tuple(replace(set_pauses(RUN, "slow tools", seed), id=f"run {seed}") for seed in (1, 2))
    return run_study(Loaded(runs, ()), settings)


def test_the_yardsticks_are_rows_and_a_column() -> None:
    """The recommended strategy has two rows more; each strategy is a multiple of its own best lifetimes."""
    found = study()
    assert found.strategies == ("as recorded", "raw", "masking", "hybrid", *YARDSTICKS)
    totals = {row.strategy: row for row in found.totals}
    best, bound = (totals[label] for label in YARDSTICKS)
    assert bound.usd < best.usd < totals["masking"].usd
    assert totals["masking"].to_hindsight == pytest.approx(totals["masking"].usd / best.usd)
    assert best.to_hindsight == pytest.approx(1.0)
    assert bound.to_hindsight is not None
    assert bound.to_hindsight < 1
    assert totals["hybrid"].hindsight_usd == pytest.approx(found.lifetimes["hybrid"].hindsight)
    assert best.usd == pytest.approx(found.lifetimes["masking"].hindsight)
    assert bound.usd == pytest.approx(found.lifetimes["masking"].never_cold)
    assert {row.raw_usd for row in (best, bound)} == {totals["masking"].raw_usd}
    assert (best.evidence_items, bound.evidence_items) == (totals["masking"].evidence_items,) * 2


def test_the_bill_of_hindsight_adds_up() -> None:
    """Its tokens at their prices are its dollars, so that the chart says what is paid for."""
    run = set_pauses(RUN, "slow tools", 1)
    candidate = parse_candidates(["raw"])[0]
    settings = StudySettings(prices=PRICES, candidates=(candidate,), tokens="estimate", dialect="anthropic")
    compared = compare_lifetimes(run, candidate.strategy, PRICES, settings.size_run(run))
    bill, rates = compared.hindsight.bill + compared.hindsight.pings, PRICES.tiers[0][1]
    assert bill.usd < compared.costs.five_minutes
    usd = (bill.cache_write - bill.cache_write_1h) * rates.write_price + bill.cache_write_1h * rates.write_price_1h
    usd += bill.input * rates.input + bill.cache_read * rates.read_price + bill.output * rates.output
    assert bill.usd == pytest.approx(usd / 1e6)
    whole = compared.never_cold.bill
    assert bill.prompt_tokens >= whole.prompt_tokens, "pings are prompts, too"


def test_terminal_and_page_show_them() -> None:
    """At 80 columns the rows are there, at 100 the column too; the page has both, and the table of all choices."""
    for width, column in ((80, False), (110, True)):
        console = Console(width=width, file=None)
        with console.capture() as captured:
            terminal.print_study(study(), console)
        text = captured.get()
        assert max(map(len, text.splitlines())) <= width
        assert all(label in text for label in YARDSTICKS)
        (line,) = [line for line in text.splitlines() if line.split()[:2] == ["masking,", "hindsight"]][:1]
        assert ("1.00" in line.split()) is column
        assert "the best cache lifetime or pings for each pause" in " ".join(text.split())
        assert "cheapest schedule" not in text
    page = html.build_page(study())
    assert "What expired cache entries cost" in page
    assert "masking, never cold" in page
    for choice in ("5 minutes", "1 hour", "as planned", "never cold"):
        assert f'<th scope="col">{choice}</th>' in page
    assert "best cache lifetimes of the same strategy, in hindsight" in page


def test_without_hindsight_there_are_no_such_rows() -> None:
    """`--no-hindsight` leaves rows and column out; the table of all choices stays."""
    found = study(hindsight=False)
    assert found.strategies == ("as recorded", "raw", "masking", "hybrid")
    assert set(found.lifetimes) == set(found.strategies[1:])
    text = terminal.wording.explain_missing_hindsight(found)
    assert text is not None
    assert "cache lifetimes" in text


def test_recorded_lifetimes_have_the_cheapest_schedule() -> None:
    """Without a choice nothing of this is there."""
    found = study(CLIENT_LIFETIMES)
    assert not found.lifetimes
    assert found.strategies == ("as recorded", "raw", "masking", "hybrid")
    assert found.json()["lifetimes"] == {}
