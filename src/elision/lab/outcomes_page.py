"""Cost against solve rate as a picture, and as one self-contained page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from elision.lab.outcomes import OutcomeStudy, StrategyOutcome
from elision.lab.outcomes_statistics import bootstrap_mean
from elision.lab.outcomes_table import (
    COLUMNS,
    DIFFERENCES,
    describe_pairs,
    format_cells,
    format_difference,
    list_notes,
    name_strategies,
    write_headline,
)
from elision.lab.report.charts import FONT, SCHEMA, Spec, encode_quantity, encode_scaled, make_standalone
from elision.lab.report.figures import format_plural
from elision.lab.report.names import shorten_strategies
from elision.lab.report.page_shell import (
    PageParts,
    build_row,
    build_table,
    escape_text,
    fill_page,
    list_provenance,
    wrap_section,
)
from elision.lab.report.palette import COLOURS, PAPER, Ink, assign_looks
from elision.lab.report.provenance import Provenance
from elision.lab.report.vega import load_vega

#: Pixels of the picture per pixel of the chart.
_SCALE: Final = 2.0
_WIDTH: Final = 720
_HEIGHT: Final = 380


def draw_picture(study: OutcomeStudy) -> bytes:
    """Return cost against solve rate as a PNG file's bytes. Raises MissingExtra without vl-convert."""
    spec = json.dumps(build_picture(study, PAPER))
    picture: bytes = load_vega().vegalite_to_png(spec, scale=_SCALE)
    return picture


def build_page(study: OutcomeStudy, made_by: Provenance | None = None) -> str:
    """Return the page, to be written as UTF-8. Raises MissingExtra without vl-convert.

    made_by: what the page says of its making; None leaves that out.
    """
    instances = max(len(row.joined) for row in study.strategies)
    count = format_plural(len(study.strategies), "strategy", "strategies")
    return fill_page(
        PageParts(
            brand="Elision outcomes",
            headline=write_headline(study),
            scope=f"{count}, at most {format_plural(instances, 'instance')} each",
            sections=[*_build_sections(study)],
            footer=list_provenance(made_by),
        )
    )


def build_picture(study: OutcomeStudy, ink: Ink) -> Spec:
    """Return the picture in the colours of `ink` as Vega-Lite, with a title."""
    rows = study.shared or study.strategies
    counts = {len(row.joined) for row in rows}
    scope = f"{format_plural(max(counts), 'instance')} each" if len(counts) == 1 else "a different number of instances"
    count = format_plural(len(rows), "strategy", "strategies")
    lines = (
        f"{count}, {scope}. Further up solves more, further left is cheaper.",
        "Lines are 95 % intervals: Wilson's for the share, a bootstrap over instances for the cost.",
    )
    return make_standalone(_draw_points(rows, ink), ink, _WIDTH, write_headline(study), lines)


def _draw_points(rows: Sequence[StrategyOutcome], ink: Ink) -> Spec:
    names = shorten_strategies([row.strategy for row in rows])
    looks = assign_looks([row.strategy for row in rows])
    values: list[Spec] = [
        {
            "strategy": names[row.strategy],
            "colour": ink.slots[looks[row.strategy].slot],
            "shape": looks[row.strategy].shape,
            **_list_figures(row),
        }
        for row in rows
        if row.mean_usd is not None
    ]
    axis = {"labelColor": ink.text, "titleColor": ink.text, "gridColor": ink.faint, "domainColor": ink.faint}
    x = encode_quantity("usd", "mean cost of a run as billed, USD", scale={"zero": False, "padding": 40})
    x["axis"] = {"format": "$,.2f", "tickCount": 6, "grid": False}
    y = encode_quantity("rate", "instances solved", scale={"zero": False, "padding": 16})
    y["axis"] = {"format": ".0%", "tickCount": 6}
    # Points may lie close together, so a legend names them.
    legend = {"orient": "top", "columns": 4, "title": None, "labelFontSize": 13, "labelColor": ink.text}
    legend |= {"symbolSize": 120, "labelLimit": 0, "symbolOpacity": 1}
    colour = encode_scaled("strategy", {value["strategy"]: value["colour"] for value in values}) | {"legend": legend}
    shape = encode_scaled("strategy", {value["strategy"]: value["shape"] for value in values}) | {"legend": legend}
    line: dict[str, Any] = {"type": "rule", "strokeWidth": 1.6, "opacity": 0.55}
    point = {"type": "point", "filled": True, "size": 150, "opacity": 1, "stroke": ink.ground, "strokeWidth": 1}
    return {
        "$schema": SCHEMA,
        "height": _HEIGHT,
        "data": {"values": values},
        "config": {
            "font": FONT,
            "view": {"stroke": None},
            "axis": axis | {"tickColor": ink.faint, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 400},
        },
        "encoding": {"x": x, "y": y},
        "layer": [
            {"mark": line, "encoding": {"color": colour, "y": y | {"field": "rate_low"}, "y2": {"field": "rate_high"}}},
            {"mark": line, "encoding": {"color": colour, "x": x | {"field": "usd_low"}, "x2": {"field": "usd_high"}}},
            {"mark": point, "encoding": {"color": colour, "shape": shape}},
        ],
    }


def _list_figures(row: StrategyOutcome) -> dict[str, float]:
    usd = bootstrap_mean(row.costs)
    share = row.rate_interval
    return {
        "usd": row.mean_usd or 0.0,
        "usd_low": usd.low,
        "usd_high": usd.high,
        "rate": row.rate,
        "rate_low": share.low,
        "rate_high": share.high,
    }


def _build_sections(study: OutcomeStudy) -> Iterator[str]:
    names = name_strategies(study)
    if any(row.mean_usd is not None for row in study.strategies):
        yield wrap_section("costs", "Cost against solve rate", f'<div class="picture">{_draw_svg(study)}</div>')
    rows = [(names[row.strategy], format_cells(row)) for row in study.strategies]
    yield wrap_section("strategies", "Strategies", _build_table("strategy", list(COLUMNS), rows))
    if study.shared and not study.is_same_set:
        count = format_plural(len(study.shared[0].joined), "instance")
        shared = [(names[row.strategy], format_cells(row)) for row in study.shared]
        yield wrap_section(
            "strategies", f"The {count} that all strategies have", _build_table("strategy", list(COLUMNS), shared)
        )
    if study.differences:
        pairs = [(names[each.strategy], format_difference(each)) for each in study.differences]
        yield wrap_section("strategies", describe_pairs(study), _build_table("strategy", list(DIFFERENCES), pairs))
    notes = "".join(f"<li>{escape_text(note)}</li>" for note in list_notes(study))
    if notes:
        yield wrap_section("notes", "Notes", f"<ul>{notes}</ul>")


def _draw_svg(study: OutcomeStudy) -> str:
    """Draw the picture without its own title, in colours that follow the page's scheme."""
    rows = study.shared or study.strategies
    spec = _draw_points(rows, PAPER) | {"width": _WIDTH, "background": None}
    svg: str = load_vega().vegalite_to_svg(json.dumps(spec))
    names = {PAPER.text: "currentColor", PAPER.faint: "var(--line)", PAPER.ground: "var(--ground)"}
    for colour, name in (names | {light: f"var(--{slot})" for slot, (light, _) in COLOURS.items()}).items():
        svg = svg.replace(colour, name)
    return svg


def _build_table(first: str, titles: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    return build_table(
        [escape_text(title.strip()) for title in (first, *titles)],
        [build_row(cells, name) for name, cells in rows],
    )
