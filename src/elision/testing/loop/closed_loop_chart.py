"""The chart of the closed loop: cost beside raw, and solved tasks, with their intervals."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from elision.lab.report.charts import FONT, SCHEMA
from elision.lab.report.palette import PAPER
from elision.lab.report.vega import load_vega
from elision.testing.loop.comparison import MARGIN, Comparison

Spec = dict[str, Any]
#: Panel -> its title, and where "as raw" is.
_PANELS: Final = (("cost", "cost / raw", 1.0), ("solved", "solved tasks, change in points", 0.0))


def render_chart(comparisons: Sequence[Comparison]) -> str:
    """Return the chart as SVG. Raises MissingExtra without vl-convert."""
    svg: str = load_vega().vegalite_to_svg(json.dumps(draw_comparisons(comparisons)))
    return svg


def draw_comparisons(comparisons: Sequence[Comparison]) -> Spec:
    """Return a row of two panels for each price list: cost with its interval, and the change in solved tasks."""
    rows = []
    for prices in dict.fromkeys(each.prices for each in comparisons):
        own = [each for each in comparisons if each.prices == prices and each.variant != "raw"]
        rows.append({"hconcat": [_draw_panel(own, *panel) for panel in _PANELS], "title": prices})
    axis = {"labelColor": PAPER.text, "titleColor": PAPER.text, "gridColor": PAPER.faint, "labelLimit": 300}
    return {
        "$schema": SCHEMA,
        "background": PAPER.ground,
        "padding": 18,
        "title": {
            "text": "The closed loop: what a strategy costs and whether the agent still succeeds",
            "subtitle": f"Beside sending everything, in pairs, with 95 % intervals. Not worse: above −{MARGIN:.0%}.",
            "anchor": "start",
            "color": PAPER.text,
            "subtitleColor": PAPER.text,
        },
        "vconcat": rows,
        "config": {"font": FONT, "view": {"stroke": None}, "axis": axis},
    }


def _draw_panel(comparisons: Sequence[Comparison], name: str, title: str, neutral: float) -> Spec:
    values = []
    for each in comparisons:
        if name == "cost":
            value, low, high = each.usd_ratio, each.usd_interval.low, each.usd_interval.high
        else:
            value, low, high = (
                100 * share for share in (each.solved_change, each.solved_interval.low, each.solved_interval.high)
            )
        values.append({"strategy": each.variant, "value": value, "low": low, "high": high})
    y = {"field": "strategy", "type": "nominal", "sort": None, "title": None}
    if name != "cost":
        # The names stand beside the first panel.
        y["axis"] = None
    x = {"field": "value", "type": "quantitative", "title": title, "scale": {"zero": False}}
    span = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y}
    rule = {"mark": {"type": "rule", "strokeDash": [5, 4], "color": PAPER.slots["grey"]}}
    return {
        "width": 280,
        "height": {"step": 24},
        "data": {"values": values},
        "layer": [
            {**rule, "data": {"values": [{"at": neutral}]}, "encoding": {"x": {"field": "at", "type": "quantitative"}}},
            {"mark": {"type": "rule", "strokeWidth": 2, "color": PAPER.slots["blue"]}, "encoding": span},
            {
                "mark": {"type": "point", "filled": True, "size": 60, "color": PAPER.slots["blue"]},
                "encoding": {"x": x, "y": y},
            },
        ],
    }
