"""The charts as Vega-Lite: cost by what is paid for, cost against visible facts, context of each call.

Text of a trajectory is in data values, never in an expression. The page makes legends and tooltips.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from elision.lab.report import figures
from elision.lab.report.columns import is_baseline
from elision.lab.report.names import group_rows, is_hindsight
from elision.lab.report.palette import Ink, assign_looks
from elision.lab.report.sent_wording import name_rows
from elision.lab.results import BILLED, Row, Study
from elision.trajectory.prices import Prices

Spec: TypeAlias = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'DejaVu Sans', sans-serif"
#: Pixels from bar to bar: a line of text above each bar, so that neither name nor figure is ever cut.
STEP = 44
_BAR = 14
_TEXT_UP = -10
_BAR_DOWN = 8
#: The cost axis is this much longer than the longest bar: amounts are at the bars' ends.
_ROOM_FOR_AMOUNTS = 1.34

#: Who is paid, in the order of the stack, and the slot of its colour.
PAYEES = {
    "cache write": "pays-write",
    "input": "pays-input",
    "cache read": "pays-read",
    "output": "pays-output",
    "summarizer": "pays-summarizer",
}


def draw_costs(study: Study, ink: Ink, *, legend: bool = False) -> Spec:
    """A stacked bar per strategy, of what is paid for; a dashed line at raw's cost, a mark at the hindsight's.

    legend: draw what the colours mean too.
    """
    names = name_rows(study)
    rows = [row for _, members in group_rows(study.totals) for row in members]
    labels = {
        row.strategy: names[row.strategy] + (" (recommended)" if row.strategy == study.recommended else "")
        for row in rows
    }
    totals = [_build_bar(row, labels[row.strategy]) for row in rows]
    pieces = [
        {
            "strategy": labels[row.strategy],
            "paid for": payee,
            "order": order,
            "usd": usd,
            "of it": f"{figures.format_usd(usd)} ({figures.format_share(usd / row.usd if row.usd else None)})",
            **_format_amounts(row),
        }
        for row in rows
        for order, (payee, usd) in enumerate(split_by_payee(row, study.prices).items())
        if usd
    ]
    paid = [payee for payee in PAYEES if any(piece["paid for"] == payee for piece in pieces)]
    tips = ["strategy", "cost", "vs recorded", *(["× hindsight"] if study.hindsight else [])]
    longest = max((row.usd for row in rows), default=0.0)
    x = _encode_usd("usd", "cost, USD") | {"scale": {"domainMin": 0, "domainMax": longest * _ROOM_FOR_AMOUNTS or 1}}
    paid_costs = {round(row.paid_usd, 9) for row in rows if row.strategy != BILLED}
    y = {"field": "strategy", "type": "nominal", "sort": [each["strategy"] for each in totals], "axis": None}
    layers = [
        *(_draw_paid_line(usd, ink) for usd in paid_costs if len(paid_costs) == 1 and usd),
        _build_layer(
            {"type": "bar", "yOffset": _BAR_DOWN, "height": _BAR},
            color=encode_scaled("paid for", {payee: ink.slots[PAYEES[payee]] for payee in paid})
            | ({"legend": {"orient": "top", "title": None, "offset": 4}} if legend else {}),
            order={"field": "order"},
            x=x | {"stack": "zero"},
            tooltip=encode_tooltip(["strategy", "paid for", "of it", *tips[1:]]),
        )
        | {"data": {"values": pieces}, "name": "pieces"},
        _build_layer(
            {"type": "tick", "yOffset": _BAR_DOWN, "size": _BAR + 8, "opacity": 1, "thickness": 3}
            | {"color": ink.text, "stroke": ink.ground},
            x={"field": "hindsight", "type": "quantitative"},
            tooltip=encode_tooltip(tips),
        )
        | {"name": "hindsight"},
        *_draw_captions(ink),
    ]
    rest = {"data": {"values": totals}, "height": STEP * len(totals), "encoding": {"x": x, "y": y}, "layer": layers}
    return build_base(ink) | rest


def _format_amounts(row: Row) -> Spec:
    return {
        "cost": figures.format_usd(row.usd),
        "vs recorded": figures.NOTHING if is_baseline(row) else figures.format_change(row.to_recorded),
        "× hindsight": figures.format_multiple(row.to_hindsight),
    }


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


def draw_visible_facts(study: Study, ink: Ink) -> Spec | None:
    """Cost against facts still visible, a labelled point per live strategy; None where there are no facts."""
    names = name_rows(study)
    looks = assign_looks(study.strategies)
    values = [
        {
            "strategy": names[row.strategy],
            "colour": ink.slots[looks[row.strategy].slot],
            "shape": looks[row.strategy].shape,
            "usd": row.usd,
            "recall": row.evidence_recall,
            "cost": figures.format_usd(row.usd),
            "facts still visible": figures.format_share(row.evidence_recall),
            "turns missing a fact": figures.format_count(row.regret_turns),
        }
        for row in study.totals
        if row.evidence_recall is not None and not is_hindsight(row.strategy)
    ]
    if not values:
        return None
    x = _encode_usd("usd", "cost, USD") | {"scale": {"zero": False, "padding": 52}}
    y = encode_quantity("recall", "facts still visible", scale={"zero": False, "padding": 14})
    y["axis"] = {"format": ".0%", "tickCount": 5}
    spec = build_base(ink) | {"data": {"values": values}, "height": 300, "encoding": {"x": x, "y": y}}
    spec["layer"] = [
        {
            "name": "points",
            "mark": draw_mark(ink, size=130),
            "encoding": {
                "color": encode_literal("colour"),
                "shape": encode_literal("shape"),
                "tooltip": encode_tooltip(["strategy", "cost", "facts still visible", "turns missing a fact"]),
            },
        },
        # The page's script lets Vega place these where they hide nothing.
        {
            "name": "labels",
            "mark": draw_label(ink),
            "encoding": {"text": {"field": "strategy", "type": "nominal"}},
        },
    ]
    return spec


def draw_context(study: Study, ink: Ink) -> Spec:
    """Tokens per call, a line per strategy, dots at cache rewrites, diamonds where a summary was written.

    Its data sets `calls` and `marks` are filled by the page, for the run that is chosen there.
    """
    names = name_rows(study)
    style = {names[label]: look for label, look in assign_looks(study.strategies).items()}
    colour = encode_scaled("strategy", {name: ink.slots[look.slot] for name, look in style.items()})
    dash = encode_scaled("strategy", {name: list(look.dash) for name, look in style.items()})
    spec = build_base(ink) | {"height": 320}
    x = encode_quantity("call", "call", scale={"nice": False})
    x["axis"] = {"tickMinStep": 1, "tickCount": 8, "grid": False}
    y = encode_quantity("tokens", "context, tokens")
    y["axis"] = {"format": "~s", "tickCount": 6, "labelExpr": "datum.value ? datum.label : '0'"}
    spec["encoding"] = {"x": x, "y": y, "color": colour}
    spec["layer"] = [
        {
            "data": {"name": "calls", "values": []},
            "mark": {"type": "line", "strokeWidth": 1.8, "interpolate": "linear", "clip": False},
            "encoding": {"strokeDash": dash},
        },
        {
            "name": "rewrites",
            "data": {"name": "marks", "values": []},
            "mark": draw_mark(ink, strokeWidth=0.7),
            "encoding": {
                "size": _choose_if_summary(120, 22),
                "shape": _choose_if_summary("diamond", "circle"),
            },
        },
    ]
    return spec


def make_standalone(spec: Spec, ink: Ink, width: int, title: str, subtitles: Sequence[str]) -> Spec:
    """Return `spec` as a picture of its own: with a width, a ground, a title and lines below it."""
    lines: list[str] = []
    for sentence in re.split(r"(?<=\.) ", title):
        lines += figures.wrap_text(sentence, 74)
    heading = {
        "text": lines,
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


def _build_bar(row: Row, label: str) -> Spec:
    compared = None if is_baseline(row) else row.to_recorded
    change = "" if compared is None else f"  {figures.format_change(compared)}"
    return {
        "strategy": label,
        "usd": row.usd,
        "hindsight": row.hindsight_usd,
        "figures": figures.format_usd(row.usd) + change,
        **_format_amounts(row),
    }


def build_base(ink: Ink) -> Spec:
    """Return what every chart begins with."""
    return {
        "$schema": SCHEMA,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "background": None,
        "config": _build_config(ink),
    }


def _build_layer(mark: Spec, **encoding: Any) -> Spec:
    return {"mark": mark, "encoding": encoding}


def _draw_paid_line(usd: float, ink: Ink) -> Spec:
    """Behind everything else, from top to bottom."""
    mark = {"type": "rule", "color": ink.slots["grey"], "strokeWidth": 1.5, "strokeDash": [5, 4], "tooltip": None}
    encoding = {"x": {"field": "usd", "type": "quantitative"}, "y": {"value": 0}, "y2": {"value": {"expr": "height"}}}
    return {"name": "raw", "data": {"values": [{"usd": usd}]}, "mark": mark, "encoding": encoding}


def _draw_captions(ink: Ink) -> list[Spec]:
    """The name above each bar, the amounts at its end; each has a rim that parts it from the raw line."""
    text: Spec = {"type": "text", "color": ink.text, "fontSize": 12.5, "baseline": "middle", "align": "left"}
    amounts = text | {"yOffset": _BAR_DOWN, "dx": 8}
    names = text | {"yOffset": _TEXT_UP}
    rim = {"stroke": ink.ground, "strokeWidth": 5, "strokeJoin": "round"}
    at_left = {"value": 0}
    name = {"field": "strategy", "type": "nominal"}
    amount = {"field": "figures", "type": "nominal"}
    return [
        _build_layer(names | rim, x=at_left, text=name) | {"name": "rims of names"},
        _build_layer(names, x=at_left, text=name) | {"name": "names"},
        _build_layer(amounts | rim, text=amount) | {"name": "rims of amounts"},
        _build_layer(amounts, text=amount) | {"name": "amounts"},
    ]


def encode_literal(field: str) -> Spec:
    """An encoding whose data values are the colours or shapes themselves."""
    return {"field": field, "type": "nominal", "scale": None, "legend": None}


def draw_mark(ink: Ink, **rest: Any) -> Spec:
    """Return a filled point with a rim that parts it from its neighbours."""
    return {"type": "point", "filled": True, "opacity": 1, "stroke": ink.ground, "strokeWidth": 1} | rest


def draw_label(ink: Ink) -> Spec:
    """Return a text to the right of its point."""
    return {"type": "text", "align": "left", "dx": 10, "color": ink.text, "fontSize": 12}


def encode_quantity(field: str, title: str, **rest: Any) -> Spec:
    """Return the encoding of a number on an axis that is called `title`."""
    return {"field": field, "type": "quantitative", "title": title} | rest


def encode_scaled(field: str, values: Mapping[str, Any]) -> Spec:
    """Return the encoding of a word as one of `values`: colours, dashes or shapes."""
    scale = {"domain": list(values), "range": list(values.values())}
    return {"field": field, "type": "nominal", "scale": scale, "legend": None}


def _choose_if_summary(then: Any, otherwise: Any) -> Spec:
    return {"condition": {"test": {"field": "kind", "equal": "summary"}, "value": then}, "value": otherwise}


def _encode_usd(field: str, title: str) -> Spec:
    axis = {"format": "$~r", "tickCount": 5, "title": title, "grid": False}
    return {"field": field, "type": "quantitative", "axis": axis}


def encode_tooltip(fields: list[str]) -> list[Spec]:
    """Return the encoding of a tooltip that shows `fields`, a line each."""
    return [{"field": field, "type": "nominal"} for field in fields]


def _build_config(ink: Ink) -> Spec:
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
        "legend": {"labelColor": ink.text, "labelFontSize": 12, "symbolType": "square"},
    }


def replace_infinity(value: float | None) -> float | None:
    """For JSON, which knows no infinity."""
    return value if value is not None and math.isfinite(value) else None
