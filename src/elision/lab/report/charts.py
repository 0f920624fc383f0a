"""What is drawn, as Vega-Lite: cost, cost against evidence, context per call, who pays for what.

Everything a trajectory said stands in data values, never in an expression. Legends are the page's, and so is what shows
the tooltips.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any, TypeAlias

from elision.lab.report import figures
from elision.lab.report.names import is_raw, short_strategies
from elision.lab.report.palette import Ink, Look, looks
from elision.lab.results import Row, Study
from elision.trajectory.prices import Prices

Spec: TypeAlias = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
#: Pixels from bar to bar: a line of text above each bar, so that neither name nor figure is ever cut.
STEP = 44
_BAR = 14
_TEXT_UP = -10
_BAR_DOWN = 8
#: The raw line's stretch beside each bar: from under the texts above to where the next bar's begin.
_STRETCH = 24
_STRETCH_DOWN = 10

#: Who is paid, in the order of the stack, and the slot of its colour.
PAYEES = {
    "cache write": "pays-write",
    "input": "pays-input",
    "cache read": "pays-read",
    "output": "pays-output",
    "summarizer": "pays-summarizer",
}


def cost(study: Study, ink: Ink) -> Spec:
    """A bar per strategy; a dashed line where sending everything ends, a black mark where its hindsight does.

    The line leaves out what is written above the bars: it has a stretch beside each bar.
    """
    values = [_bar(row, name, ink.slots[look.slot]) for row, name, look in _named(study)]
    same_raw = len({round(row.raw_usd, 9) for row in study.totals}) == 1
    if same_raw and study.totals[0].raw_usd:
        layers = [_raw_line(study.totals[0].raw_usd, ink)]
    else:
        layers = []
    return _chart(
        values,
        [
            *layers,
            _layer(
                {"type": "bar", "yOffset": _BAR_DOWN, "height": _BAR, "cornerRadiusEnd": 2}, color=_literal("colour")
            ),
            _layer(
                {
                    "type": "tick",
                    "yOffset": _BAR_DOWN,
                    "size": _BAR + 8,
                    "opacity": 1,
                    "thickness": 3,
                    "color": ink.text,
                    "stroke": ink.ground,
                },
                x={"field": "hindsight", "type": "quantitative"},
            ),
            *_captions(ink),
        ],
        ink,
        x=_dollars("usd", "cost, USD"),
        tooltip=["strategy", "cost", "× raw", *(["× hindsight"] if study.hindsight else []), "saves"],
    )


def spent(study: Study, ink: Ink) -> Spec:
    """Stacked bars: what each strategy's cost is made of."""
    values = [
        {
            "strategy": name,
            "paid for": payee,
            "colour": ink.slots[PAYEES[payee]],
            "order": order,
            "usd": usd,
            "cost": figures.usd(usd),
            "share": figures.percent(usd / row.usd if row.usd else None),
            "figures": figures.usd(row.usd) if order == 0 else "",
        }
        for row, name, _ in _named(study)
        for order, (payee, usd) in enumerate(parts(row, study.prices).items())
    ]
    bar = _layer(
        {"type": "bar", "yOffset": _BAR_DOWN, "height": _BAR}, color=_literal("colour"), order={"field": "order"}
    )
    x = _dollars("usd", "cost, USD") | {"stack": "zero"}
    tooltip = ["strategy", "paid for", "cost", "share"]
    return _chart(values, [bar, *_captions(ink, first=True)], ink, x=x, tooltip=tooltip)


def parts(row: Row, prices: Prices) -> dict[str, float]:
    """What of a row's USD went to whom.

    With price tiers the split is by the lowest tier's rates, scaled to what was billed.
    """
    rates = prices.tiers[0][1]
    bill = row.bill
    weights = {
        "cache write": bill.cache_write * rates.write,
        "input": bill.input * rates.input,
        "cache read": bill.cache_read * rates.read,
        "output": bill.output * rates.output,
    }
    whole = sum(weights.values())
    factor = bill.usd / whole if whole else 0.0
    return {payee: weight * factor for payee, weight in weights.items()} | {"summarizer": row.summarizer.usd}


def recall(study: Study, ink: Ink) -> Spec | None:
    """Cost against evidence recall, a labelled point per strategy; None where no run had evidence."""
    values = [
        {
            "strategy": name,
            "colour": ink.slots[look.slot],
            "shape": look.shape,
            "usd": row.usd,
            "recall": row.evidence_recall,
            "cost": figures.usd(row.usd),
            "evidence kept": figures.percent(row.evidence_recall),
            "regret turns": figures.count(row.regret_turns),
        }
        for row, name, look in _named(study)
        if row.evidence_recall is not None
    ]
    if not values:
        return None
    x = _dollars("usd", "cost, USD") | {"scale": {"zero": False, "padding": 52}}
    y = {
        "field": "recall",
        "type": "quantitative",
        "title": "evidence kept",
        "axis": {"format": ".0%", "tickCount": 5},
        "scale": {"zero": False, "padding": 14},
    }
    spec = _base(ink) | {"data": {"values": values}, "height": 300, "encoding": {"x": x, "y": y}}
    spec["layer"] = [
        {
            "name": "points",
            "mark": {
                "type": "point",
                "filled": True,
                "size": 130,
                "opacity": 1,
                "stroke": ink.ground,
                "strokeWidth": 1,
            },
            "encoding": {
                "color": _literal("colour"),
                "shape": _literal("shape"),
                "tooltip": _tooltip(["strategy", "cost", "evidence kept", "regret turns"]),
            },
        },
        # The page's script lets Vega place these where they hide nothing.
        {
            "name": "labels",
            "mark": {"type": "text", "align": "left", "dx": 10, "color": ink.text, "fontSize": 12},
            "encoding": {"text": {"field": "strategy", "type": "nominal"}},
        },
    ]
    return spec


def context(study: Study, ink: Ink) -> Spec:
    """Tokens per call, a line per strategy, dots where an epoch begins, diamonds where a summary was written.

    Its data sets `calls` and `marks` are filled by the page, for the run that is chosen there.
    """
    names = short_strategies(study.strategies)
    style = {names[label]: look for label, look in looks(study.strategies).items()}
    colour = _scaled("strategy", {name: ink.slots[look.slot] for name, look in style.items()})
    dash = _scaled("strategy", {name: list(look.dash) for name, look in style.items()})
    spec = _base(ink) | {"height": 320}
    spec["encoding"] = {
        "x": {
            "field": "call",
            "type": "quantitative",
            "title": "call",
            "scale": {"nice": False},
            "axis": {"tickMinStep": 1, "tickCount": 8, "grid": False},
        },
        "y": {
            "field": "tokens",
            "type": "quantitative",
            "title": "context, tokens",
            "axis": {"format": "~s", "tickCount": 6, "labelExpr": "datum.value ? datum.label : '0'"},
        },
        "color": colour,
    }
    tip = _tooltip(["strategy", "call", "context", "event"])
    spec["layer"] = [
        {
            "data": {"name": "calls", "values": []},
            "mark": {"type": "line", "strokeWidth": 1.8, "interpolate": "linear", "clip": False},
            "encoding": {"strokeDash": dash},
        },
        {
            "name": "epochs",
            "data": {"name": "marks", "values": []},
            "mark": {"type": "point", "filled": True, "opacity": 1, "stroke": ink.ground, "strokeWidth": 0.7},
            "encoding": {
                "size": _if_summary(120, 22),
                "shape": _if_summary("diamond", "circle"),
                "tooltip": tip,
            },
        },
    ]
    return spec


def standalone(spec: Spec, ink: Ink, width: int, title: str, subtitles: Sequence[str]) -> Spec:
    """`spec` as a picture that stands alone: with a width, a ground, a title and lines below it."""
    heading = {
        "text": wrap(title.replace(" %", "\xa0%"), 74),
        "subtitle": list(subtitles),
        "anchor": "start",
        "frame": "group",
        "fontSize": 17,
        "color": ink.text,
        "subtitleColor": ink.text,
        "subtitleFontSize": 12,
        "subtitlePadding": 6,
        "offset": 14,
    }
    return spec | {"width": width, "background": ink.ground, "title": heading, "padding": 20, "autosize": "pad"}


def _named(study: Study) -> list[tuple[Row, str, Look]]:
    names = short_strategies(study.strategies)
    style = looks(study.strategies)
    return [(row, names[row.strategy], style[row.strategy]) for row in study.totals]


def _bar(row: Row, name: str, colour: str) -> Spec:
    if is_raw(row.strategy) or row.to_raw is None:
        change = ""
    else:
        change = f"  {figures.change(row.to_raw)}"
    return {
        "strategy": name,
        "colour": colour,
        "usd": row.usd,
        "hindsight": row.hindsight_usd,
        "figures": figures.usd(row.usd) + change,
        "cost": figures.usd(row.usd),
        "× raw": figures.times(row.to_raw),
        "× hindsight": figures.times(row.to_hindsight),
        "saves": figures.NOTHING if is_raw(row.strategy) else figures.saving(row.to_raw),
    }


def _base(ink: Ink) -> Spec:
    return {
        "$schema": SCHEMA,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "background": None,
        "config": _config(ink),
    }


def _chart(values: list[Spec], layers: list[Spec], ink: Ink, *, x: Spec, tooltip: list[str]) -> Spec:
    """A bar chart whose bars carry their names and figures above them."""
    for layer in layers:
        if layer["mark"]["type"] in ("bar", "tick") and layer.get("name") != "raw":
            layer["encoding"]["tooltip"] = _tooltip(tooltip)
    y = {"field": "strategy", "type": "nominal", "sort": None, "axis": None}
    rest = {
        "data": {"values": values},
        "height": STEP * len({value["strategy"] for value in values}),
        "encoding": {"x": x, "y": y},
        "layer": layers,
    }
    return _base(ink) | rest


def _layer(mark: Spec, **encoding: Any) -> Spec:
    return {"mark": mark, "encoding": encoding}


def _raw_line(usd: float, ink: Ink) -> Spec:
    mark = {"type": "tick", "color": ink.slots["grey"], "thickness": 1.5, "size": _STRETCH, "yOffset": _STRETCH_DOWN}
    return _layer(mark | {"opacity": 1, "tooltip": None}, x={"datum": usd, "type": "quantitative"}) | {"name": "raw"}


def _captions(ink: Ink, *, first: bool = False) -> list[Spec]:
    """Name at the left, figures at the right of the line above each bar. first: of rows with `order` 0 alone."""
    keep: Spec = {"transform": [{"filter": {"field": "order", "equal": 0}}]} if first else {}
    text: Spec = {"type": "text", "yOffset": _TEXT_UP, "color": ink.text, "fontSize": 12.5, "baseline": "middle"}
    return [
        _layer(text | mark, x={"value": place}, text={"field": field, "type": "nominal"}) | keep
        for field, place, mark in (
            ("strategy", 0, {"align": "left", "fontWeight": 600}),
            ("figures", "width", {"align": "right"}),
        )
    ]


def _literal(field: str) -> Spec:
    """An encoding whose data values are the colours or shapes themselves."""
    return {"field": field, "type": "nominal", "scale": None, "legend": None}


def _scaled(field: str, values: Mapping[str, Any]) -> Spec:
    scale = {"domain": list(values), "range": list(values.values())}
    return {"field": field, "type": "nominal", "scale": scale, "legend": None}


def _if_summary(then: Any, otherwise: Any) -> Spec:
    return {"condition": {"test": {"field": "kind", "equal": "summary"}, "value": then}, "value": otherwise}


def _dollars(field: str, title: str) -> Spec:
    axis = {"format": "$~r", "tickCount": 5, "title": title, "grid": False}
    return {"field": field, "type": "quantitative", "axis": axis}


def _tooltip(fields: list[str]) -> list[Spec]:
    return [{"field": field, "type": "nominal"} for field in fields]


def _config(ink: Ink) -> Spec:
    return {
        "font": FONT,
        "view": {"stroke": None},
        "axis": {
            "labelColor": ink.text,
            "titleColor": ink.text,
            "gridColor": ink.faint,
            "domainColor": ink.faint,
            "tickColor": ink.faint,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": 400,
            "titlePadding": 8,
            "labelOpacity": 0.8,
            "titleOpacity": 0.8,
        },
    }


def finite(value: float | None) -> float | None:
    """For JSON, which knows no infinity."""
    if value is not None and math.isfinite(value):
        return value
    return None
