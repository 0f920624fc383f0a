"""The picture of a tuning: cost against facts still visible, every point, the frontier, and what is recommended.

Filled points are the runs to fit, hollow ones the runs to judge; a line joins the two of one strategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from elision.lab.report import figures, tuning_wording
from elision.lab.report.svg import Axis, Drawing, Plot, Tip, find_ends, write_share_tick
from elision.lab.results import Row
from elision.lab.tuning.tuning_result import TunedPoint, Tuning
from elision.strategies.spec import parse_strategy

#: Family -> slot of the palette, and shape.
LOOKS: Final = {
    "masking": ("blue", "circle"),
    "hybrid": ("orange", "square"),
    "summarization": ("green", "diamond"),
    "raw": ("grey", "triangle"),
}
#: Points that cost more, as a multiple of raw, are named below the picture: they would squeeze all others together.
MOST_SHOWN: Final = 1.1
#: Pixels of the plot.
HEIGHT: Final = 380


def describe_far_points(tuning: Tuning) -> list[str]:
    """Return the named points that cost too much for the picture."""
    far = [
        f"{', '.join(point.names)} ({figures.format_change(point.fit.to_recorded)})"
        for point in tuning.points
        if point.names and not _is_shown(point.fit)
    ]
    return [f"Not in the picture, more expensive: {'; '.join(far)}."] if far else []


def draw_frontier(tuning: Tuning, drawing: Drawing) -> None:
    """Draw cost against facts still visible."""
    ink = drawing.ink
    labels = _label_points(tuning)
    shown = [point for point in tuning.points if _is_shown(point.fit)]
    named = [point for point in shown if point.text in labels or point.on_frontier]
    rest = [point for point in shown if point not in named]
    judged = [
        (point, point.judge)
        for point in shown
        if point.text in labels and point.judge is not None and _is_shown(point.judge)
    ]
    looks = {point.text: LOOKS[_find_family(point)] for point in named}
    families = {_find_family(point) for point in named}
    drawing.add_key((shape, ink.slots[slot], family) for family, (slot, shape) in LOOKS.items() if family in families)
    found = [_get_figures(row) for row in (*(point.fit for point in shown), *(judge for _, judge in judged))]
    left, right = find_ends(share for share, _ in found)
    low, high = find_ends(recall for _, recall in found)
    plot = Plot(
        drawing,
        Axis(title="cost, as a share of what was sent", low=left, high=right, write=write_share_tick),
        Axis(title="facts still visible", low=low, high=high, write=write_share_tick, most=1.0),
        HEIGHT,
    )
    for point in rest:
        x, y = plot.place(_get_figures(point.fit))
        tip = _describe_point(point, point.fit, "runs to fit")
        dot: dict[str, str | float] = {"class": "other", "fill": ink.slots["grey"], "opacity": 0.55}
        drawing.add("circle", {"cx": x, "cy": y, "r": 2.6, **dot}, tip=tip)
    edge = (plot.place(_get_figures(point.fit)) for point in _find_upper_edge(shown))
    drawing.add_curve(edge, ink.slots["grey"], stroke_width=1.5, class_="frontier")
    for point, judge in judged:
        ends = (*plot.place(_get_figures(point.fit)), *plot.place(_get_figures(judge)))
        drawing.add_line(*ends, ink.slots[looks[point.text][0]], stroke_dasharray="3 3", opacity=0.8)
    for point, judge in judged:
        slot, shape = looks[point.text]
        tip = _describe_point(point, judge, "runs to judge")
        drawing.add_mark(*plot.place(_get_figures(judge)), shape, ink.slots[slot], filled=False, tip=tip)
    for point in named:
        slot, shape = looks[point.text]
        x, y = plot.place(_get_figures(point.fit))
        drawing.add_mark(x, y, shape, ink.slots[slot], tip=_describe_point(point, point.fit, "runs to fit"))
        if point.text == tuning.recommended:
            ring: dict[str, str | float] = {"class": "ring", "fill": "none", "stroke": ink.text, "stroke_width": 1.6}
            drawing.add("circle", {"cx": x, "cy": y, "r": 11.5, **ring})
    marks = [plot.place(_get_figures(row)) for row in (*(p.fit for p in named), *(judge for _, judge in judged))]
    texts = [(*plot.place(_get_figures(point.fit)), labels[point.text]) for point in named if point.text in labels]
    plot.add_labels(texts, marks)


def _is_shown(row: Row) -> bool:
    return row.to_recorded is not None and row.to_recorded <= MOST_SHOWN and row.evidence_recall is not None


def _get_figures(row: Row) -> tuple[float, float]:
    """Return share of the cost and of the facts of a row that is shown."""
    return row.to_recorded or 0.0, row.evidence_recall or 0.0


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


def _describe_point(point: TunedPoint, row: Row, part: str) -> Tip:
    return (
        ("strategy", tuning_wording.describe_point(point.text)),
        ("part", part),
        ("cost", figures.format_usd(row.usd)),
        ("vs recorded", figures.format_change(row.to_recorded)),
        ("facts still visible", figures.format_share(row.evidence_recall)),
        ("turns missing a fact or own words", figures.format_count(row.missing_turns)),
    )
