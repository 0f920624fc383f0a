"""The figures of the paper's pages, as Vega-Lite in the colours of the replay report, and as SVG."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from docs.paper.facts import AgentRun, Experiment, PaperFacts
from docs.paper.statistics import SOLVED_SEED, count_solved, estimate_ratio, list_common, mean_turns, mean_usd
from docs.paper.tables import list_openhands
from docs.paper.turn_table import HYBRIDS, MODELS, STRATEGIES

from elision.lab.report.charts import FONT, SCHEMA
from elision.lab.report.palette import PAPER
from elision.lab.report.vega import load_vega

Spec = dict[str, Any]

COLOURS = {
    "raw": PAPER.slots["grey"],
    "masking": PAPER.slots["blue"],
    "summarization": PAPER.slots["orange"],
    "hybrid, N=43": PAPER.slots["green"],
    "hybrid, N=21": PAPER.slots["green-pale"],
}
SHAPES = {"raw": "circle", "masking": "square", "summarization": "diamond", "hybrid, N=43": "triangle-up"}


def draw_figures(facts: PaperFacts) -> dict[str, Spec]:
    """Return every figure by its name."""
    return {
        "cost": _draw_cost(facts),
        "turns": _draw_turns(facts),
        "windows": _draw_windows(facts),
    }


def render_figure(spec: Spec) -> str:
    """Return the figure as SVG, with the mark of what it was drawn from. Raises MissingExtra without vl-convert."""
    svg: str = load_vega().vegalite_to_svg(json.dumps(spec))
    return svg.replace("</svg>", f"<!-- {mark_figure(spec)} --></svg>")


def mark_figure(spec: Spec) -> str:
    """Return what tells whether a drawing is of `spec`, whatever version drew it."""
    return f"drawn from {hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()}"


def find_mark(svg: str) -> str:
    """Return the mark in a drawing, "" if there is none."""
    found = re.search(r"<!-- (drawn from \w+) -->", svg)
    return found[1] if found else ""


def _draw_cost(facts: PaperFacts) -> Spec:
    points = []
    for model in MODELS:
        for place, name in enumerate(("raw", *STRATEGIES)):
            each = facts.experiments[f"{model}-{name}"]
            points.append(_place_point(each, len(facts.instances), place))
    hybrid = facts.experiments["coder-hybrid-43"]
    points.append(_place_point(hybrid, len(hybrid.runs), 3, "hybrid, N=43"))
    names = [_name_model(point) for point in points if point["strategy"] == "raw"]
    x = {"field": "usd", "type": "quantitative", "title": "mean cost of a run, USD, summaries included"}
    y = {"field": "solved", "type": "quantitative", "title": "solved"}
    text = {"type": "text", "align": "left", "dx": 10, "fontSize": 12, "color": PAPER.text}
    layers = [
        {
            "transform": [{"filter": "datum.order < 3"}],
            "mark": {"type": "line", "color": PAPER.slots["grey"], "opacity": 0.5, "strokeWidth": 1},
            "encoding": {"detail": {"field": "model"}, "order": {"field": "order"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 110, "opacity": 0.85},
            "encoding": {
                "color": _scale_colours("strategy", list(SHAPES)),
                "shape": {
                    "field": "strategy",
                    "type": "nominal",
                    "scale": {"domain": list(SHAPES), "range": list(SHAPES.values())},
                    "legend": {"title": None, "orient": "top"},
                },
            },
        },
        {"data": {"values": names}, "mark": text, "encoding": {"text": {"field": "model"}}},
    ]
    x |= {"axis": {"format": "$.2f", "grid": False}, "scale": {"domain": [0, 1.7]}}
    y |= {"axis": {"format": ".0%"}, "scale": {"domain": [0.1, 0.6]}}
    return _build_figure(
        "Masking and summaries about halve the cost with four of five models",
        "SWE-agent on SWE-bench Verified, 500 instances a point; hybrid: 50 instances of Qwen3-Coder 480B.",
    ) | {"width": 620, "height": 340, "data": {"values": points}, "encoding": {"x": x, "y": y}, "layer": layers}


def _place_point(each: Experiment, instances: int, order: int, strategy: str = "") -> Spec:
    return {
        "model": each.model,
        "strategy": strategy or each.strategy,
        "usd": round(mean_usd(each), 4),
        "solved": round(count_solved(each) / instances, 4),
        "order": order,
    }


def _name_model(point: Mapping[str, Any]) -> Spec:
    return {"model": point["model"], "usd": point["usd"], "solved": point["solved"]}


def _draw_turns(facts: PaperFacts) -> Spec:
    values = []
    for model in MODELS:
        compared = [facts.experiments[f"{model}-{name}"] for name in STRATEGIES]
        raw = facts.experiments[f"{model}-raw"]
        instances = list_common([raw, *compared])
        values += [_compare_turns(raw.model, each.strategy, each, raw, instances) for each in compared]
    raw = facts.experiments["coder-raw"]
    same = [facts.experiments[f"coder-{name}"] for name in (*STRATEGIES, *HYBRIDS)]
    instances = list_common([raw, *same])
    for each in same:
        name = f"hybrid, N={each.every}" if each.strategy == "hybrid" else each.strategy
        values.append(_compare_turns("Qwen3-Coder 480B, the same 50", name, each, raw, instances))
    shown = [name for name in COLOURS if name != "raw"]
    y = {"field": "model", "type": "nominal", "title": None, "sort": None}
    offset = {"field": "strategy", "type": "nominal", "sort": shown}
    x = {"field": "value", "type": "quantitative", "title": "turns against raw, paired, with 95 % intervals"}
    colour = _scale_colours("strategy", shown)
    sign = "datum.value ? format(datum.value, '+.0%') : '0%'"
    layers: list[Spec] = [
        {
            "data": {"values": [{"zero": 0}]},
            "mark": {"type": "rule", "color": PAPER.slots["grey"], "strokeDash": [5, 4]},
            "encoding": {"x": {"field": "zero", "type": "quantitative"}},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 2},
            "encoding": {
                "x": x | {"field": "low"},
                "x2": {"field": "high"},
                "y": y,
                "yOffset": offset,
                "color": colour,
            },
        },
        {
            "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
            "encoding": {
                "x": x | {"axis": {"labelExpr": sign, "grid": True, "tickCount": 8}},
                "y": y,
                "yOffset": offset,
                "color": colour,
            },
        },
    ]
    return _build_figure(
        "Summaries lengthen some runs and shorten others",
        "Turns of SWE-agent against raw on the same instances. Most intervals hold zero.",
    ) | {"width": 520, "height": {"step": 12}, "data": {"values": values}, "layer": layers}


def _compare_turns(model: str, strategy: str, each: Experiment, raw: Experiment, instances: list[str]) -> Spec:
    found = estimate_ratio(each, raw, _count_turns, SOLVED_SEED, instances)
    return {
        "model": model,
        "strategy": strategy,
        "value": round(found.value - 1, 4),
        "low": round(found.low - 1, 4),
        "high": round(found.high - 1, 4),
    }


def _count_turns(run: AgentRun) -> float:
    return run.turns


def _draw_windows(facts: PaperFacts) -> Spec:
    raw, summary, *masked = list_openhands(facts)
    panels = (
        ("solved of 50", {each.key: float(count_solved(each)) for each in (raw, summary, *masked)}, [10, 25]),
        ("turns", {each.key: mean_turns(each) for each in (raw, summary, *masked)}, [50, 200]),
        ("cost, USD", {each.key: mean_usd(each) for each in (raw, summary, *masked)}, [1, 2.6]),
    )
    drawn = []
    for title, values, domain in panels:
        points = [{"window": each.window, "value": round(values[each.key], 4)} for each in masked]
        lines = [{"name": each.strategy, "value": round(values[each.key], 4)} for each in (raw, summary)]
        y = {"field": "value", "type": "quantitative", "title": title, "scale": {"domain": domain}}
        x = {"field": "window", "type": "quantitative", "title": "window M", "scale": {"domain": [0, 90]}}
        drawn.append(
            {
                "width": 200,
                "height": 190,
                "layer": [
                    {
                        "data": {"values": lines},
                        "mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 1.5},
                        "encoding": {"y": y, "color": _scale_colours("name", ["raw", "summarization"])},
                    },
                    {
                        "data": {"values": points},
                        "mark": {
                            "type": "line",
                            "color": COLOURS["masking"],
                            "point": {"color": COLOURS["masking"], "size": 45},
                        },
                        "encoding": {"x": x | {"axis": {"grid": False, "values": [0, 20, 40, 60, 80]}}, "y": y},
                    },
                ],
            }
        )
    return _build_figure(
        "OpenHands needs a larger window than SWE-agent: 58 or 72 solve most",
        "Masking on 50 instances of SWE-bench Verified, Gemini 2.5 Flash, by window; dashed: raw and summarization.",
    ) | {"hconcat": drawn, "spacing": 28}


def _scale_colours(field: str, names: list[str]) -> Spec:
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": names, "range": [COLOURS[name] for name in names]},
        "legend": {"title": None, "orient": "top"},
    }


def _build_figure(title: str, subtitle: str) -> Spec:
    axis = {
        "labelColor": PAPER.text,
        "titleColor": PAPER.text,
        "gridColor": PAPER.faint,
        "domainColor": PAPER.faint,
        "tickColor": PAPER.faint,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": 400,
        "labelLimit": 240,
    }
    heading = {
        "text": title,
        "subtitle": subtitle,
        "anchor": "start",
        "frame": "bounds",
        "fontSize": 16,
        "subtitleFontSize": 12,
        "subtitlePadding": 6,
        "color": PAPER.text,
        "subtitleColor": PAPER.text,
        "offset": 12,
    }
    return {
        "$schema": SCHEMA,
        "background": PAPER.ground,
        "padding": 18,
        "title": heading,
        "config": {"font": FONT, "view": {"stroke": None}, "axis": axis, "legend": {"labelFontSize": 12}},
    }
