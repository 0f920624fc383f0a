"""What is drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from elision.lab.report import charts
from elision.lab.report.palette import PAPER
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.price_table import load_price_table
from elision.trajectory.prices import Bill
from tests.lab.report.studies import EVERY_TURN, HINDSIGHT, HYBRID, MASKING, RAW, row, study

LABELS = [RAW, EVERY_TURN, f"{MASKING} (recommended)", HYBRID, HINDSIGHT]


def layer(spec: charts.Spec, name: str) -> charts.Spec:
    (found,) = [each for each in spec["layer"] if each.get("name") == name]
    return dict(found)


def test_cost_has_a_bar_per_strategy_and_the_raw_line() -> None:
    """Bars in groups, the recommended one named as such, hindsight where there is one, one line at raw's cost."""
    spec = charts.draw_costs(study(), PAPER)
    values = spec["data"]["values"]
    assert [value["strategy"] for value in values] == LABELS
    assert [value["hindsight"] is None for value in values] == [True, False, False, True, True]
    assert [value["usd"] for value in layer(spec, "raw")["data"]["values"]] == [5.0]


def test_the_parts_of_a_bar_are_its_cost() -> None:
    """What is paid for adds up to each strategy's cost; only the summarizer of hybrids is a part of its own."""
    spec = charts.draw_costs(study(), PAPER)
    pieces = layer(spec, "pieces")["data"]["values"]
    for value in spec["data"]["values"]:
        own = [piece["usd"] for piece in pieces if piece["strategy"] == value["strategy"]]
        assert sum(own) == pytest.approx(value["usd"])


def test_amounts_are_at_the_ends_of_bars_with_a_rim() -> None:
    """The raw line is drawn first, so behind everything; texts have a rim that parts them from it."""
    spec = charts.draw_costs(study(), PAPER)
    names = [each.get("name") for each in spec["layer"]]
    assert names == ["raw", "pieces", "hindsight", "rims of names", "names", "rims of amounts", "amounts"]
    assert layer(spec, "rims of amounts")["mark"]["stroke"] == PAPER.ground
    assert spec["encoding"]["x"]["scale"]["domainMax"] > 1.3 * max(value["usd"] for value in spec["data"]["values"])


def test_a_tip_compares_with_raw_and_says_what_is_paid_for() -> None:
    """The sign is that of the table: what costs more than raw has a plus."""
    expensive = replace(row(HYBRID), bill=replace(row(RAW).bill, usd=1.03 * row(RAW).usd), summarizer=Bill())
    spec = charts.draw_costs(replace(study(), rows=(row(RAW), expensive)), PAPER)
    assert [value["vs recorded"] for value in spec["data"]["values"]] == ["–", "+3 %"]
    tips = [tip["field"] for tip in layer(spec, "pieces")["encoding"]["tooltip"]]
    assert tips == ["strategy", "paid for", "of it", "cost", "vs recorded", "× hindsight"]


def test_no_raw_line_where_strategies_saw_different_runs() -> None:
    """One line for all would be wrong for some."""
    uneven = replace(study(), rows=study().rows[:-1])
    assert all(each.get("name") != "raw" for each in charts.draw_costs(uneven, PAPER)["layer"])


@pytest.mark.parametrize("name", load_price_table().sets)
def test_parts_add_up(name: str) -> None:
    """Who is paid what sums to the bill, at every price set."""
    prices = find_price_set(name)
    bill = (
        prices.bill_call(20_000, cached=15_000, output=500)
        + prices.bill_call(900, output=100)
        + prices.bill_call(200_000)
    )
    whole = replace(row(HYBRID), bill=bill, summarizer=Bill(output=10, usd=0.25))
    parts = charts.split_by_payee(whole, prices)
    assert sum(parts.values()) == pytest.approx(whole.usd)
    assert parts["summarizer"] == 0.25


def test_parts_are_exact_with_one_tier() -> None:
    """Each part is its tokens at its rate."""
    prices = find_price_set("anthropic")
    bill = prices.bill_call(20_000, cached=15_000, output=500)
    parts = charts.split_by_payee(replace(row(RAW), bill=bill), prices)
    assert parts["cache write"] == pytest.approx(5_000 * 3.75e-6)
    assert parts["cache read"] == pytest.approx(15_000 * 0.3e-6)
    assert parts["output"] == pytest.approx(500 * 15e-6)
    assert parts["input"] == 0


def test_parts_of_nothing() -> None:
    """A row that billed nothing has parts of nothing."""
    assert set(
        charts.split_by_payee(replace(row(RAW), bill=Bill(), summarizer=Bill()), find_price_set("anthropic")).values()
    ) == {0.0}


def test_no_evidence_no_picture_of_it() -> None:
    """Without facts there is nothing to compare with cost; a hindsight schedule, which cannot be run, has no point."""
    bare = replace(study(), rows=tuple(replace(each, evidence_items=0) for each in study().rows))
    assert charts.draw_visible_facts(bare, PAPER) is None
    spec = charts.draw_visible_facts(study(), PAPER)
    assert spec is not None
    assert [value["strategy"] for value in spec["data"]["values"]] == [RAW, EVERY_TURN, MASKING, HYBRID]
