"""The chart of the closed loop: cost beside raw, and solved tasks, with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elision.lab.report.palette import PAPER
from elision.lab.report.svg import PADDING, WIDTH, Axis, Drawing, Span, draw_spans, find_ends, measure_text
from elision.testing.loop.comparison import MARGIN, Comparison

#: Pixels between both panels.
_GAP: Final = 36


def render_chart(comparisons: Sequence[Comparison]) -> str:
    """Return the chart as SVG: for each price list cost with its interval, and the change in solved tasks."""
    drawing = Drawing(WIDTH, PAPER)
    drawing.add_heading(
        "The closed loop: what a strategy costs and whether the agent still succeeds",
        [f"Against sending everything, in pairs, with 95 % intervals. Not worse: above −{100 * MARGIN:.0f} points."],
    )
    blue = PAPER.slots["blue"]
    names = max((measure_text(each.variant, 12) for each in comparisons), default=0.0) + 12
    middle = (names + WIDTH) / 2
    for prices in dict.fromkeys(each.prices for each in comparisons):
        own = [each for each in comparisons if each.prices == prices and each.variant != "raw"]
        drawing.add_text(0, drawing.bottom + 10, prices, font_weight="bold")
        top = drawing.bottom = drawing.bottom + 24
        costs = [
            Span(each.variant, each.usd_ratio, each.usd_interval.low, each.usd_interval.high, blue) for each in own
        ]
        _draw_panel(drawing, costs, "cost / raw", 1.0, (names, middle - _GAP / 2))
        drawing.bottom = top
        changes = [
            Span("", 100 * each.solved_change, 100 * each.solved_interval.low, 100 * each.solved_interval.high, blue)
            for each in own
        ]
        _draw_panel(drawing, changes, "solved tasks, change in points", 0.0, (middle + _GAP / 2, WIDTH))
        drawing.bottom += 12
    return drawing.render(padding=PADDING)


def _draw_panel(drawing: Drawing, spans: Sequence[Span], title: str, neutral: float, ends: tuple[float, float]) -> None:
    low, high = find_ends([neutral, *(end for span in spans for end in (span.low, span.high))])
    draw_spans(drawing, spans, Axis(title=title, low=low, high=high, write=_write_tick), neutral, ends)


def _write_tick(value: float, step: float) -> str:
    return f"{value:.{0 if step >= 1 else 1}f}".replace("-", "−")
