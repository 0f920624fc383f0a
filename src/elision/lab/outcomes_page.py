"""Cost against solve rate as a picture, and as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

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
from elision.lab.report.figures import format_plural
from elision.lab.report.names import shorten_strategies
from elision.lab.report.page_shell import (
    PageParts,
    build_row,
    build_table,
    escape_text,
    fill_page,
    list_provenance,
    place_chart,
    wrap_section,
)
from elision.lab.report.palette import PAPER, Ink, assign_looks
from elision.lab.report.provenance import Provenance
from elision.lab.report.svg import PADDING, WIDTH, Axis, Drawing, Plot, find_ends, write_share_tick, write_usd_tick

#: Pixels of the plot.
_HEIGHT: Final = 380


def build_page(study: OutcomeStudy, made_by: Provenance | None = None) -> str:
    """Return the page, to be written as UTF-8. Raises MissingExtra without numpy.

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


def draw_picture(study: OutcomeStudy, ink: Ink = PAPER) -> str:
    """Return cost against solve rate as SVG, with a title."""
    rows = study.shared or study.strategies
    counts = {len(row.joined) for row in rows}
    scope = f"{format_plural(max(counts), 'instance')} each" if len(counts) == 1 else "a different number of instances"
    count = format_plural(len(rows), "strategy", "strategies")
    lines = (
        f"{count}, {scope}. Further up solves more, further left is cheaper.",
        "Lines are 95 % intervals: Wilson's for the share, a bootstrap over instances for the cost.",
    )
    drawing = Drawing(WIDTH, ink)
    drawing.add_heading(write_headline(study), lines)
    _draw_points(rows, drawing)
    return drawing.render(padding=PADDING)


def _draw_points(rows: Sequence[StrategyOutcome], drawing: Drawing) -> None:
    """Draw a point with its intervals for each strategy whose cost is known; a key names them: they may be close."""
    ink = drawing.ink
    names = shorten_strategies([row.strategy for row in rows])
    looks = assign_looks([row.strategy for row in rows])
    known = [(row, row.mean_usd, bootstrap_mean(row.costs)) for row in rows if row.mean_usd is not None]
    drawing.add_key(
        (looks[row.strategy].shape, ink.slots[looks[row.strategy].slot], names[row.strategy]) for row, _, _ in known
    )
    left, right = find_ends(end for _, _, cost in known for end in (cost.low, cost.high))
    low, high = find_ends(end for row, _, _ in known for end in (row.rate_interval.low, row.rate_interval.high))
    plot = Plot(
        drawing,
        Axis(title="mean cost of a run as billed, USD", low=max(0.0, left), high=right, write=write_usd_tick),
        Axis(title="instances solved", low=low, high=high, write=write_share_tick, most=1.0),
        _HEIGHT,
    )
    for row, usd, cost in known:
        x, y = plot.place((usd, row.rate))
        colour = ink.slots[looks[row.strategy].slot]
        share = row.rate_interval
        for ends in (
            (x, plot.place_y(share.low), x, plot.place_y(share.high)),
            (plot.place_x(cost.low), y, plot.place_x(cost.high), y),
        ):
            drawing.add_line(*ends, colour, stroke_width=1.6, opacity=0.55, class_="interval")
    for row, usd, _ in known:
        look = looks[row.strategy]
        drawing.add_mark(*plot.place((usd, row.rate)), look.shape, ink.slots[look.slot], radius=6)


def _build_sections(study: OutcomeStudy) -> Iterator[str]:
    names = name_strategies(study)
    if any(row.mean_usd is not None for row in study.strategies):
        draw = partial(_draw_points, study.shared or study.strategies)
        chart = place_chart("outcomes", "points: mean cost and share of instances solved of each strategy", draw)
        yield wrap_section("costs", "Cost against solve rate", chart)
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


def _build_table(first: str, titles: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    return build_table(
        [escape_text(title.strip()) for title in (first, *titles)],
        [build_row(cells, name) for name, cells in rows],
    )
