"""What is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from xml.etree import ElementTree

import msgspec
import pytest

from elision.lab.report import charts
from elision.lab.report.charts import draw_bars
from elision.lab.report.svg import PAPER, Drawing, measure_text
from elision.lab.results import Study
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.price_table import load_price_table
from elision.trajectory.prices import Bill
from tests.lab.report.studies import EVERY_TURN, HINDSIGHT, HYBRID, MASKING, RAW, row, study

LABELS = [RAW, EVERY_TURN, f"{MASKING} (recommended)", HYBRID, HINDSIGHT]


def draw(draw: Callable[[Study, Drawing], None], what: Study, width: float = 760) -> list[ElementTree.Element]:
    """The elements of a chart, in the order in which they are drawn."""
    drawing = Drawing(width, PAPER)
    draw(what, drawing)
    return [*ElementTree.fromstring(drawing.render())]


def draw_costs(what: Study, drawing: Drawing) -> None:
    draw_bars(charts.build_costs(what), drawing)


def select(elements: Sequence[ElementTree.Element], name: str) -> list[ElementTree.Element]:
    return [each for each in elements if each.get("class") == name]


def read_tip(element: ElementTree.Element) -> dict[str, str]:
    return dict(line.split("\t") for line in element.attrib["data-tip"].split("\n"))


def test_cost_has_a_bar_per_strategy_and_the_raw_line() -> None:
    """Bars in groups, the recommended one named as such, hindsight where there is one, one line at raw's cost."""
    elements = draw(draw_costs, study())
    assert [each.text for each in select(elements, "bar-name")] == LABELS
    assert len(select(elements, "hindsight")) == 2
    [line] = select(elements, "paid")
    raw = [piece for piece in select(elements, "piece") if read_tip(piece)["strategy"] == RAW]
    assert float(line.attrib["x1"]) == pytest.approx(sum(float(each.attrib["width"]) for each in raw), abs=0.1)


def test_the_parts_of_a_bar_are_its_cost() -> None:
    """The widths of what is paid for are in the ratio of the strategies' costs."""
    elements = draw(draw_costs, study())
    width = dict.fromkeys(LABELS, 0.0)
    for piece in select(elements, "piece"):
        width[read_tip(piece)["strategy"]] += float(piece.attrib["width"])
    usd = {label: row(label.removesuffix(" (recommended)")).usd for label in LABELS}
    for label in LABELS:
        assert width[label] / width[RAW] == pytest.approx(usd[label] / usd[RAW], abs=0.001)


@pytest.mark.parametrize("width", [338, 760, 1160])
def test_amounts_are_at_the_ends_of_bars_and_inside(width: float) -> None:
    """The raw line is drawn first, so behind everything; texts have a rim that parts them from it; none is cut."""
    elements = draw(draw_costs, study(), width)
    assert elements.index(select(elements, "paid")[0]) < elements.index(select(elements, "piece")[0])
    for text in (*select(elements, "bar-name"), *select(elements, "bar-amount")):
        assert text.get("stroke") == PAPER.ground
        assert float(text.attrib["x"]) + measure_text(text.text or "") <= width


def test_a_tip_compares_with_raw_and_says_what_is_paid_for() -> None:
    """The sign is that of the table: what costs more than raw has a plus."""
    expensive = replace(
        row(HYBRID), bill=msgspec.structs.replace(row(RAW).bill, usd=1.03 * row(RAW).usd), summarizer=Bill()
    )
    pieces = select(draw(draw_costs, replace(study(), rows=(row(RAW), expensive))), "piece")
    assert list(dict.fromkeys(read_tip(piece)["vs recorded"] for piece in pieces)) == ["–", "+3 %"]
    assert list(read_tip(pieces[0])) == ["strategy", "paid for", "of it", "cost", "vs recorded", "× hindsight"]


def test_no_raw_line_where_strategies_saw_different_runs() -> None:
    """One line for all would be wrong for some."""
    uneven = replace(study(), rows=study().rows[:-1])
    assert select(draw(draw_costs, uneven), "paid") == []


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
    assert charts.list_visible_facts(bare) == []
    marks = select(draw(charts.draw_visible_facts, study()), "mark")
    assert [read_tip(mark)["strategy"] for mark in marks] == [RAW, EVERY_TURN, MASKING, HYBRID]
