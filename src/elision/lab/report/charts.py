"""The charts of a study: cost by what is paid for, and cost against visible facts. The page draws contexts itself."""

from __future__ import annotations

from elision.lab.report import figures, wording
from elision.lab.report.columns import is_baseline
from elision.lab.report.names import group_rows, is_hindsight
from elision.lab.report.palette import PAPER, Ink, assign_looks
from elision.lab.report.sent_wording import name_rows
from elision.lab.report.svg import (
    PADDING,
    WIDTH,
    Axis,
    Drawing,
    Plot,
    Tip,
    draw_bottom_axis,
    find_ends,
    measure_text,
    write_share_tick,
    write_usd_tick,
)
from elision.lab.results import BILLED, Row, Study
from elision.trajectory.prices import Prices

#: Pixels from bar to bar: a line of text above each bar, so that neither name nor figure is ever cut.
STEP = 44
_NAME, _BAR, _THICK = 11, 30, 14

#: Who is paid, in the order of the stack, and the slot of its colour.
PAYEES = {
    "cache write": "pays-write",
    "input": "pays-input",
    "cache read": "pays-read",
    "output": "pays-output",
    "summarizer": "pays-summarizer",
}


def draw_picture(study: Study, ink: Ink = PAPER) -> str:
    """Return the first picture of a study as SVG: cost per strategy by what is paid for."""
    drawing = Drawing(WIDTH, ink)
    key = "Dashed line: what was sent, as recorded." + wording.describe_hindsight_mark(study)
    lines = (f"{wording.describe_scope(study)}. {key}", wording.describe_prices(study.prices))
    drawing.add_heading(wording.write_headline(study), lines)
    draw_costs(study, drawing)
    return drawing.render(padding=PADDING)


def draw_costs(study: Study, drawing: Drawing) -> None:
    """Draw a stacked bar per strategy, of what is paid for; a dashed line at raw's cost, a mark at the hindsight's."""
    ink = drawing.ink
    names = name_rows(study)
    rows = [row for _, members in group_rows(study.totals) for row in members]
    parts = {row.strategy: split_by_payee(row, study.prices) for row in rows}
    paid = [payee for payee in PAYEES if any(found[payee] for found in parts.values())]
    drawing.add_key(("square", ink.slots[PAYEES[payee]], payee) for payee in paid)
    # Each bar leaves room for its amounts, and the longest amount may be at any of them.
    scale = min(
        [(drawing.width - 12 - measure_text(_write_amounts(row))) / row.usd for row in rows if row.usd]
        + [(drawing.width - 8) / row.hindsight_usd for row in rows if row.hindsight_usd],
        default=1.0,
    )
    top = drawing.bottom
    bottom = top + STEP * len(rows)
    paid_costs = {round(row.paid_usd, 9) for row in rows if row.strategy != BILLED}
    if len(paid_costs) == 1 and any(paid_costs):
        x = paid_costs.pop() * scale
        drawing.add_line(x, top, x, bottom, ink.slots["grey"], stroke_width=1.5, stroke_dasharray="5 4", class_="paid")
    for place, row in enumerate(rows):
        y = top + STEP * place
        recommended = " (recommended)" if row.strategy == study.recommended else ""
        name = names[row.strategy] + recommended
        tip = _list_amounts(row, name, has_hindsight=study.hindsight)
        drawing.add_text(0, y + _NAME, name, rim=True, class_="bar-name")
        x = 0.0
        for payee, usd in parts[row.strategy].items():
            if usd:
                share = figures.format_share(usd / row.usd if row.usd else None)
                paid_for = ("paid for", payee), ("of it", f"{figures.format_usd(usd)} ({share})")
                piece = {"x": x, "y": y + _BAR - _THICK / 2, "width": usd * scale, "height": _THICK}
                look = {"class": "piece", "fill": ink.slots[PAYEES[payee]]}
                drawing.add("rect", {**piece, **look}, tip=(tip[0], *paid_for, *tip[1:]))
                x += usd * scale
        drawing.add_text(x + 8, y + _BAR, _write_amounts(row), rim=True, class_="bar-amount")
        if row.hindsight_usd is not None:
            upright = {"x": row.hindsight_usd * scale - 1.5, "y": y + _BAR - _THICK / 2 - 4, "width": 3}
            look = {"class": "hindsight", "fill": ink.text, "stroke": ink.ground}
            drawing.add("rect", {**upright, "height": _THICK + 8, **look}, tip=tip)
    axis = Axis(title="cost, USD", low=0, high=drawing.width / scale, write=write_usd_tick)
    draw_bottom_axis(drawing, axis, lambda usd: usd * scale, (0, drawing.width), bottom + 4)


def _write_amounts(row: Row) -> str:
    change = "" if is_baseline(row) or row.to_recorded is None else f"  {figures.format_change(row.to_recorded)}"
    return figures.format_usd(row.usd) + change


def _list_amounts(row: Row, name: str, *, has_hindsight: bool) -> Tip:
    change = figures.NOTHING if is_baseline(row) else figures.format_change(row.to_recorded)
    found = [("strategy", name), ("cost", figures.format_usd(row.usd)), ("vs recorded", change)]
    return [*found, ("× hindsight", figures.format_multiple(row.to_hindsight))] if has_hindsight else found


def split_by_payee(row: Row, prices: Prices) -> dict[str, float]:
    """What of a row's USD went to whom.

    With price tiers the split is by the lowest tier's rates, scaled to what was billed.
    """
    rates = prices.tiers[0][1]
    bill = row.bill
    weights = {
        "cache write": bill.cache_write * rates.write_price,
        "input": bill.input * rates.input,
        "cache read": bill.cache_read * rates.read_price,
        "output": bill.output * rates.output,
    }
    whole = sum(weights.values())
    factor = bill.usd / whole if whole else 0.0
    return {payee: weight * factor for payee, weight in weights.items()} | {"summarizer": row.summarizer.usd}


def list_visible_facts(study: Study) -> list[Row]:
    """Return the strategies that can be run live and whose visible facts are known."""
    return [row for row in study.totals if row.evidence_recall is not None and not is_hindsight(row.strategy)]


def draw_visible_facts(study: Study, drawing: Drawing) -> None:
    """Draw cost against facts still visible, a labelled point for each of `list_visible_facts`, which has some."""
    names = name_rows(study)
    looks = assign_looks(study.strategies)
    rows = list_visible_facts(study)
    found = [(row, row.usd, row.evidence_recall or 0.0) for row in rows]
    left, right = find_ends(usd for _, usd, _ in found)
    low, high = find_ends(recall for _, _, recall in found)
    plot = Plot(
        drawing,
        Axis(title="cost, USD", low=left, high=right, write=write_usd_tick),
        Axis(title="facts still visible", low=low, high=high, write=write_share_tick, most=1.0),
        300,
    )
    places = [(row, *plot.place((usd, recall))) for row, usd, recall in found]
    for row, x, y in places:
        tip = [
            ("strategy", names[row.strategy]),
            ("cost", figures.format_usd(row.usd)),
            ("facts still visible", figures.format_share(row.evidence_recall)),
            ("turns missing a fact", figures.format_count(row.regret_turns)),
        ]
        look = looks[row.strategy]
        drawing.add_mark(x, y, look.shape, drawing.ink.slots[look.slot], tip=tip)
    plot.add_labels([(x, y, names[row.strategy]) for row, x, y in places], [(x, y) for _, x, y in places])
