"""The picture of a tuning: cost against facts still visible, every point, the frontier, and what is recommended.

Filled points are the runs to fit, hollow ones the runs to judge; a line joins the two of one strategy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

from elision.lab.report import charts, figures, tuning_wording, wording
from elision.lab.report.palette import PAPER, Ink
from elision.lab.report.png import SCALE, WIDTH
from elision.lab.report.vega import load_vega
from elision.lab.results import Row
from elision.lab.tuning.tuning_result import TunedPoint, Tuning
from elision.strategies.spec import parse_strategy

#: Family -> slot of the palette, and shape.
LOOKS: Final = {
    "masking": ("blue", "circle"),
    "hybrid": ("orange", "square"),
    "summarization": ("green", "diamond"),
    "raw": ("grey", "triangle-up"),
}
#: Points that cost more, as a multiple of raw, are named below the picture: they would squeeze all others together.
MOST_SHOWN: Final = 1.1
#: Pixels of the plot.
HEIGHT: Final = 380
_SHARE_AXIS: Final = {"format": ".0%", "tickCount": 6}
_LABEL: Final = {"field": "label", "type": "nominal"}
_TIPS: Final = charts.encode_tooltip(
    ["strategy", "part", "cost", "vs recorded", "facts still visible", "turns missing a fact or own words"]
)


def draw_tuning(tuning: Tuning) -> bytes:
    """Return the picture as a PNG file's bytes. Raises MissingExtra without vl-convert."""
    picture: bytes = load_vega().vegalite_to_png(json.dumps(build_picture(tuning, PAPER)), scale=SCALE)
    return picture


def build_picture(tuning: Tuning, ink: Ink) -> charts.Spec:
    """Return the picture in the colours of `ink`, with its legend and title, as Vega-Lite."""
    lines = [
        f"{tuning_wording.describe_scope(tuning)}.",
        "Filled: runs to fit. Hollow: runs to judge. Ring: recommended. Grey: points that another one beats.",
        wording.describe_prices(tuning.prices),
        *describe_far_points(tuning),
    ]
    chart = place_labels(draw_frontier(tuning, ink), ink)
    return charts.make_standalone(chart, ink, WIDTH, tuning_wording.write_headline(tuning), lines)


def describe_far_points(tuning: Tuning) -> list[str]:
    """Return the named points that cost too much for the picture."""
    far = [
        f"{', '.join(point.names)} ({figures.format_change(point.fit.to_recorded)})"
        for point in tuning.points
        if point.names and not _is_shown(point.fit)
    ]
    return [f"Not in the picture, more expensive: {'; '.join(far)}."] if far else []


def draw_frontier(tuning: Tuning, ink: Ink) -> charts.Spec:
    """Return cost against facts still visible as Vega-Lite; the layer `points` has the labels of `labels`."""
    labels = _label_points(tuning)
    shown = [point for point in tuning.points if _is_shown(point.fit)]
    judged = [point for point in shown if point.text in labels and point.judge is not None and _is_shown(point.judge)]
    fit = {point.text: _build_value(point, point.fit, "fit", labels.get(point.text, "")) for point in shown}
    judge = {point.text: _build_value(point, point.judge, "judge") for point in judged if point.judge is not None}
    values = [*fit.values(), *judge.values()]
    x = charts.encode_quantity("share", "cost, as a share of what was sent", axis=_SHARE_AXIS)
    y = charts.encode_quantity("recall", "facts still visible", axis=_SHARE_AXIS)
    x["scale"] = {"domain": _find_domain([value["share"] for value in values]), "nice": False}
    y["scale"] = {"domain": _find_domain([value["recall"] for value in values]), "nice": False}
    named = [point.text for point in shown if point.text in labels or point.on_frontier]
    rest = [value for text, value in fit.items() if text not in named]
    families = {value["family"] for value in values}
    looks = {family: look for family, look in LOOKS.items() if family in families}
    edge = [fit[point.text] for point in _find_upper_edge(shown)]
    layers = [
        *_draw_background(rest, edge, ink),
        *_draw_points(looks, [fit[text] for text in named], [(fit[text], judge[text]) for text in judge], ink),
        _build_layer(
            "best",
            {"type": "point", "filled": False, "shape": "circle", "size": 420, "strokeWidth": 1.6, "color": ink.text},
            [fit[text] for text in fit if text == tuning.recommended],
        ),
        # The page's script, and `place_labels` for a picture, move these to where they hide nothing.
        _build_layer("labels", charts.draw_label(ink), [fit[text] for text in named], text=_LABEL),
    ]
    return charts.build_base(ink) | {"height": HEIGHT, "encoding": {"x": x, "y": y}, "layer": layers}


def _draw_background(rest: list[charts.Spec], edge: list[charts.Spec], ink: Ink) -> list[charts.Spec]:
    """Return the points that another one beats, and the line of the frontier."""
    return [
        _build_layer(
            "others",
            {"type": "point", "filled": True, "size": 26, "opacity": 0.55, "color": ink.slots["grey"]},
            rest,
            tooltip=_TIPS,
        ),
        _build_layer(
            "frontier",
            {"type": "line", "strokeWidth": 1.5, "color": ink.slots["grey"], "tooltip": None},
            edge,
            order={"field": "share", "type": "quantitative"},
        ),
    ]


def _draw_points(
    looks: Mapping[str, tuple[str, str]],
    fit: list[charts.Spec],
    judged: Sequence[tuple[charts.Spec, charts.Spec]],
    ink: Ink,
) -> list[charts.Spec]:
    """Return the named points, and those of the runs to judge with a line to theirs.

    looks: slot and shape of each family. judged: (fit, judge) each.
    """
    colour = charts.encode_scaled("family", {family: ink.slots[slot] for family, (slot, _) in looks.items()})
    colour["legend"] = {"orient": "top", "title": None, "symbolType": "circle", "symbolStrokeWidth": 0}
    shape = charts.encode_scaled("family", {family: mark for family, (_, mark) in looks.items()})
    # Colour and shape share a legend: Vega complains where one has it and the other has none.
    shape["legend"] = colour["legend"]
    return [
        _build_layer(
            "spans",
            {"type": "line", "strokeWidth": 1, "strokeDash": [3, 3], "opacity": 0.8, "tooltip": None},
            list(chain.from_iterable(judged)),
            color=colour,
            detail={"field": "strategy", "type": "nominal"},
        ),
        _build_layer(
            "judged",
            {"type": "point", "filled": False, "size": 90, "strokeWidth": 2, "opacity": 1},
            [judge for _, judge in judged],
            color=colour,
            shape=shape,
            tooltip=_TIPS,
        ),
        _build_layer("points", charts.draw_mark(ink, size=130), fit, color=colour, shape=shape, tooltip=_TIPS),
    ]


def place_labels(spec: charts.Spec, ink: Ink) -> charts.Spec:
    """Return `spec` with each label where it hides no point and no other label, as page.js does on the page.

    Vega's own placement needs a browser's canvas.
    """
    scales = spec["encoding"]
    axes = [(scales["x"]["scale"]["domain"], WIDTH), (scales["y"]["scale"]["domain"], HEIGHT)]

    def find_place(value: charts.Spec) -> tuple[float, float]:
        (left, right), width = axes[0]
        (low, high), height = axes[1]
        return (value["share"] - left) / (right - left) * width, (high - value["recall"]) / (high - low) * height

    layers = {layer["name"]: layer for layer in spec["layer"]}
    points = [find_place(value) for name in ("judged", "points") for value in layers[name]["data"]["values"]]
    marks = [(x - 6, y - 6, x + 6, y + 6) for x, y in points]
    taken: list[tuple[float, float, float, float]] = []
    placed: list[charts.Spec] = []
    for value in layers["labels"]["data"]["values"]:
        if not value["label"]:
            continue
        x, y = find_place(value)
        boxes = [_measure_label(value["label"], x, y, *side) for side in _SIDES]
        # Another label is worse to hide than a point.
        costs = [_count_hidden(box, marks) + 5 * _count_hidden(box, taken) for box in boxes]
        best = costs.index(min(costs))
        taken.append(boxes[best])
        align, dx, dy = _SIDES[best]
        mark = charts.draw_label(ink) | {"align": align, "dx": dx, "dy": dy}
        placed.append(_build_layer(f"label {len(placed)}", mark, [value], text=_LABEL))
    others = [layer for layer in spec["layer"] if layer["name"] != "labels"]
    return spec | {"layer": [*others, *placed]}


#: Where a label may be: alignment, and its distance from its point in pixels; the best first.
_SIDES: Final = tuple(
    (align, dx, dy)
    for dy in (0, -16, 16, -30, 30, -46, 46, -62, 62)
    for align, dx in (("left", 10), ("right", -10), ("center", 0))
    if dy or align != "center"
)
#: Width of a letter, and height of a line.
_LETTER: Final = 6.6
_LINE: Final = 14


def _measure_label(text: str, x: float, y: float, align: str, dx: int, dy: int) -> tuple[float, float, float, float]:
    """Return left, top, right and bottom of a label at the point (x, y)."""
    width = _LETTER * len(text)
    left = x + dx - {"left": 0.0, "center": width / 2, "right": width}[align]
    return left, y + dy - _LINE / 2, left + width, y + dy + _LINE / 2


def _count_hidden(box: tuple[float, float, float, float], taken: Sequence[tuple[float, float, float, float]]) -> int:
    """Return how many of `taken` a label in `box` would hide; being cut off at an edge counts as several."""
    left, top, right, bottom = box
    hidden = sum(left < x1 and x0 < right and top < y1 and y0 < bottom for x0, y0, x1, y1 in taken)
    return hidden + 10 * (left < 0 or right > WIDTH or top < 0 or bottom > HEIGHT)


def _find_domain(values: Sequence[float]) -> list[float]:
    """Return the ends of an axis that leaves room around `values`."""
    low, high = min(values), max(values)
    room = 0.08 * (high - low) or 0.05
    return [low - room, high + room]


def _build_layer(name: str, mark: charts.Spec, values: list[charts.Spec], **encoding: Any) -> charts.Spec:
    return {"name": name, "data": {"values": values}, "mark": mark, "encoding": encoding}


def _is_shown(row: Row) -> bool:
    return row.to_recorded is not None and row.to_recorded <= MOST_SHOWN and row.evidence_recall is not None


def _find_family(point: TunedPoint) -> str:
    name = parse_strategy(point.text).name
    return name if name in LOOKS else "masking"


def _label_points(tuning: Tuning) -> dict[str, str]:
    """Return, by strategy text, the labels of the references and of the recommended point."""
    labels = {point.text: ", ".join(point.names) for point in tuning.references}
    best = tuning.recommended
    labels[best] = f"recommended: {tuning_wording.describe_point(best)}"
    return labels


def _find_upper_edge(points: Sequence[TunedPoint]) -> list[TunedPoint]:
    """Return the points that no cheaper one equals in facts visible: the frontier of two figures, as a line."""
    edge: list[TunedPoint] = []
    for point in sorted(points, key=lambda point: (point.fit.usd, -point.fit.evidence_found)):
        if not edge or point.fit.evidence_found > edge[-1].fit.evidence_found:
            edge.append(point)
    return edge


def _build_value(point: TunedPoint, row: Row, part: str, label: str = "") -> charts.Spec:
    return {
        "strategy": tuning_wording.describe_point(point.text),
        "family": _find_family(point),
        "part": "runs to fit" if part == "fit" else "runs to judge",
        "label": label,
        "share": row.to_recorded,
        "recall": row.evidence_recall,
        "cost": figures.format_usd(row.usd),
        "vs recorded": figures.format_change(row.to_recorded),
        "facts still visible": figures.format_share(row.evidence_recall),
        "turns missing a fact or own words": figures.format_count(row.missing_turns),
    }
