"""Stacked bars as SVG: a line of text above each bar, so that neither name nor amount is ever cut."""

from __future__ import annotations

from elision.lab.report import figures
from elision.lab.report.report import Bar, BarChart
from elision.lab.report.svg import Axis, Drawing, draw_bottom_axis, measure_text, write_usd_tick

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
    draw_bottom_axis(drawing, axis, lambda size: size * scale, (0, drawing.width), bottom + 4)


def _draw_bar(bar: Bar, y: float, scale: float, line: float, drawing: Drawing) -> None:
    """Draw the parts of a bar around height `y`, its mark, and its amount behind both; not across `line`."""
    ink = drawing.ink
    x = 0.0
    for slot, name, size in bar.parts:
        if not size:
            continue
        share = figures.format_share(size / bar.size)
        tip = bar.tip and (
            bar.tip[0],
            ("paid for", name),
            ("of it", f"{figures.format_usd(size)} ({share})"),
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
