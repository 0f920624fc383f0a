"""What is drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elision.lab.report import charts
from elision.lab.report.palette import PAPER
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.price_table import load_price_table
from elision.trajectory.prices import Bill
from tests.lab.report.studies import HYBRID, RAW, STRATEGIES, row, study


def test_cost_has_a_bar_per_strategy_and_the_raw_line() -> None:
    """Bars in the order asked for, hindsight where there is one, and one line where sending everything ends."""
    spec = charts.cost(study(), PAPER)
    values = spec["data"]["values"]
    assert [value["strategy"] for value in values] == list(STRATEGIES)
    assert [value["hindsight"] is None for value in values] == [True, False, False, True, True]
    assert [layer["encoding"]["x"]["datum"] for layer in spec["layer"] if layer.get("name") == "raw"] == [5.0]


def test_a_tip_says_what_is_saved_and_what_is_paid_for() -> None:
    """What costs more saves less than nothing, as in the table beside it; every name in a tip is a word for people."""
    dearer = replace(row(HYBRID), bill=replace(row(RAW).bill, usd=1.03 * row(RAW).usd), summarizer=Bill())
    spec = charts.cost(replace(study(), rows=(row(RAW), dearer)), PAPER)
    saves = {value["strategy"]: value["saves"] for value in spec["data"]["values"]}
    assert list(saves.values()) == ["–", "−3 %"]
    tips = [tip["field"] for tip in charts.spent(study(), PAPER)["layer"][0]["encoding"]["tooltip"]]
    assert tips == ["strategy", "paid for", "cost", "share"]


def test_no_raw_line_where_strategies_saw_different_runs() -> None:
    """One line for all would be wrong for some."""
    uneven = replace(study(), rows=study().rows[:-1])
    assert all(layer.get("name") != "raw" for layer in charts.cost(uneven, PAPER)["layer"])


@pytest.mark.parametrize("name", load_price_table().sets)
def test_parts_add_up(name: str) -> None:
    """Who is paid what sums to the bill, at every price set."""
    prices = find_price_set(name)
    bill = prices.bill(20_000, cached=15_000, output=500) + prices.bill(900, output=100) + prices.bill(200_000)
    whole = replace(row(HYBRID), bill=bill, summarizer=Bill(output=10, usd=0.25))
    parts = charts.parts(whole, prices)
    assert sum(parts.values()) == pytest.approx(whole.usd)
    assert parts["summarizer"] == 0.25


def test_parts_are_exact_with_one_tier() -> None:
    """Each part is its tokens at its rate."""
    prices = find_price_set("anthropic")
    bill = prices.bill(20_000, cached=15_000, output=500)
    parts = charts.parts(replace(row(RAW), bill=bill), prices)
    assert parts["cache write"] == pytest.approx(5_000 * 3.75e-6)
    assert parts["cache read"] == pytest.approx(15_000 * 0.3e-6)
    assert parts["output"] == pytest.approx(500 * 15e-6)
    assert parts["input"] == 0


def test_parts_of_nothing() -> None:
    """A row that billed nothing has parts of nothing."""
    assert set(
        charts.parts(replace(row(RAW), bill=Bill(), summarizer=Bill()), find_price_set("anthropic")).values()
    ) == {0.0}


def test_no_evidence_no_picture_of_it() -> None:
    """Where no run had evidence there is nothing to set against cost."""
    bare = replace(study(), rows=tuple(replace(each, evidence_items=0) for each in study().rows))
    assert charts.recall(bare, PAPER) is None
    assert charts.recall(study(), PAPER) is not None
