"""Stacked bars, and the charts of a study: cost by what is paid for, and cost against visible facts."""

from __future__ import annotations

from collections.abc import Sequence

from elision.lab.report import wording
from elision.lab.report.columns import is_baseline
from elision.lab.report.figures import (
    NOTHING,
    format_change,
    format_count,
    format_multiple,
    format_share,
    format_usd,
    group_rows,
    is_hindsight,
    is_raw,
)
from elision.lab.report.report import Bar, BarChart
from elision.lab.report.sent_wording import name_rows
from elision.lab.report.svg import (
    Axis,
    Drawing,
    assign_looks,
    draw_bottom_axis,
    measure_text,
    plot_shares,
    write_usd_tick,
)
from elision.lab.results import BILLED, RECORDED, Row, Study
from elision.trajectory.prices import Prices

#: Who is paid, in the order of the stack, and the slot of its colour.
PAYEES = {
    "cache write": "pays-write",
    "input": "pays-input",
    "cache read": "pays-read",
    "output": "pays-output",
    "summarizer": "pays-summarizer",
}


def build_costs(study: Study) -> BarChart:
    """Return a bar per strategy, of what is paid for; a line at what was sent, a mark at the hindsight's cost."""
    names = name_rows(study)
    rows = [row for _, members in group_rows(study.totals) for row in members]
    paid_costs = {round(row.paid_usd, 9) for row in rows if row.strategy != BILLED}
    return BarChart(
        "cost",
        "stacked bars: the cost of each strategy, by what is paid for",
        [_build_bar(row, names[row.strategy], study) for row in rows],
        "cost, USD",
        line=paid_costs.pop() if len(paid_costs) == 1 else None,
        few=_choose_few(study, rows),
    )


def _build_bar(row: Row, name: str, study: Study) -> Bar:
    is_recommended = row.strategy == study.recommended
    label = f"{name} (recommended)" if is_recommended else name
    usd = format_usd(row.usd)
    change = NOTHING if is_baseline(row) else format_change(row.to_recorded)
    tip = [("strategy", label), ("cost", usd), ("vs recorded", change)]
    if study.hindsight:
        tip.append(("× hindsight", format_multiple(row.to_hindsight)))
    parts = split_by_payee(row, study.prices)
    return Bar(
        label,
        usd if change == NOTHING else f"{usd}  {change}",
        [(PAYEES[payee], payee, parts[payee]) for payee in PAYEES],
        mark=row.hindsight_usd,
        mood="better" if is_recommended and (row.to_recorded or 1) < 1 else "",
        tip=tip,
    )


def _choose_few(study: Study, rows: Sequence[Row]) -> list[int]:
    """Return the places of what was paid, of the strategy of the headline, of the same at every turn, the cheapest."""
    best = wording.find_featured(study)
    if best is None:
        return []
    chosen = [best, wording.find_every_turn_rival(study, best), wording.find_cheapest(study)]
    kept = {row.strategy for row in chosen if row is not None} | {RECORDED}
    if not any(row.strategy == RECORDED for row in rows):
        kept |= {row.strategy for row in rows if is_raw(row.strategy)}
    return [place for place, row in enumerate(rows) if row.strategy in kept]


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
    points = [(row.usd, row.evidence_recall or 0.0) for row in rows]
    plot = plot_shares(drawing, points, ("cost, USD", "facts still visible"), write_usd_tick, 300)
    places = [(row, *plot.place(point)) for row, point in zip(rows, points, strict=True)]
    for row, x, y in places:
        tip = [
            ("strategy", names[row.strategy]),
            ("cost", format_usd(row.usd)),
            ("facts still visible", format_share(row.evidence_recall)),
            ("turns missing a fact", format_count(row.regret_turns)),
        ]
        look = looks[row.strategy]
        drawing.add_mark(x, y, look.shape, drawing.ink.slots[look.slot], tip=tip)
    plot.add_labels([(x, y, names[row.strategy]) for row, x, y in places], [(x, y) for _, x, y in places])


# -- stacked bars: a line of text above each, so that neither name nor amount is ever cut -----------------------------


#: Pixels from bar to bar.
STEP = 44
_NAME, _BAR, _THICK = 11, 30, 14
#: Pixels between a bar, or its mark, and its amount.
_GAP = 8


def draw_bars(chart: BarChart, drawing: Drawing) -> None:
    """Draw a bar for each of `chart`, a dashed line at the size that all compare with, and the bars' own marks."""
    ink = drawing.ink
    parts = {name: slot for bar in chart.bars for slot, name, size in bar.parts if size}
    order = {name: place for place, (_, name, _) in enumerate(chart.bars[0].parts)} if chart.bars else {}
    drawing.add_key(("square", ink.slots[parts[name]], name) for name in sorted(parts, key=lambda name: order[name]))
    # Each bar leaves room for its amount, behind its mark where that is further right.
    ends = [(max(bar.size, bar.mark or 0.0, chart.line or 0.0), measure_text(bar.amount)) for bar in chart.bars]
    scale = min(((drawing.width - _GAP - 4 - room) / end for end, room in ends if end), default=1.0)
    top = drawing.bottom
    bottom = top + STEP * len(chart.bars)
    if chart.line:
        x = chart.line * scale
        drawing.add_line(x, top, x, bottom, ink.slots["grey"], stroke_width=1.5, stroke_dasharray="5 4", class_="paid")
    for place, bar in enumerate(chart.bars):
        y = top + STEP * place
        drawing.add_text(0, y + _NAME, bar.name, rim=True, class_="bar-name")
        _draw_bar(bar, y + _BAR, scale, (chart.line or 0.0) * scale, drawing)
    axis = Axis(title=chart.axis, low=0, high=drawing.width / scale, write=write_usd_tick)
    draw_bottom_axis(drawing, axis, (0, drawing.width), bottom + 4)


def _draw_bar(bar: Bar, y: float, scale: float, line: float, drawing: Drawing) -> None:
    """Draw the parts of a bar around height `y`, its mark, and its amount behind both; not across `line`."""
    ink = drawing.ink
    x = 0.0
    for slot, name, size in bar.parts:
        if not size:
            continue
        share = format_share(size / bar.size)
        tip = bar.tip and (
            bar.tip[0],
            ("paid for", name),
            ("of it", f"{format_usd(size)} ({share})"),
            *bar.tip[1:],
        )
        piece = {"x": x, "y": y - _THICK / 2, "width": size * scale, "height": _THICK}
        drawing.add("rect", {**piece, "class": "piece", "fill": ink.slots[slot]}, tip=tip)
        x += size * scale
    if bar.mark is not None:
        at = bar.mark * scale
        upright = {"x": at - 1.5, "y": y - _THICK / 2 - 4, "width": 3, "height": _THICK + 8}
        look = {"class": "hindsight", "fill": ink.text, "stroke": ink.ground}
        drawing.add("rect", {**upright, **look}, tip=bar.tip)
        x = max(x, at + 2)
    if x + _GAP - 4 < line < x + _GAP + measure_text(bar.amount) + 4:
        x = line
    drawing.add_text(x + _GAP, y, bar.amount, rim=True, class_="bar-amount")
