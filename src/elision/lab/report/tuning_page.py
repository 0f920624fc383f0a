"""A tuning as one self-contained page: the picture, every point on both parts, tools, and what the words mean."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from elision.lab.report import figures, tuning_wording, wording
from elision.lab.report.names import name_runs
from elision.lab.report.page_shell import (
    BADGE,
    NO_RUNS,
    PageParts,
    build_row,
    build_table,
    escape_text,
    fill_page,
    list_problems,
    list_provenance,
    place_chart,
    wrap_section,
    wrap_subtitle,
)
from elision.lab.report.provenance import Provenance
from elision.lab.report.sent_wording import label_sent_rows
from elision.lab.report.settings_file import describe_fully, quote_toml
from elision.lab.report.tuning_chart import describe_far_points, draw_frontier
from elision.lab.results import Row
from elision.lab.tuning.tuning_result import TunedPoint, Tuning

_TITLES = (
    "strategy",
    "fit: cost",
    "fit: vs recorded",
    "fit: facts still visible",
    "fit: turns missing a fact or own words",
    "judge: cost",
    "judge: vs recorded",
    "judge: facts still visible",
    "judge: turns missing a fact or own words",
    "in full",
)
#: Points that are listed at most; JSON has all.
MOST_LISTED = 300


def build_tuning_page(tuning: Tuning, made_by: Provenance) -> str:
    """Return the page, to be written as UTF-8."""
    others = [point for point in tuning.points if not point.names and not point.on_frontier]
    notes = "".join(f"<p>{escape_text(note)}</p>" for note in tuning_wording.list_notes(tuning))
    return fill_page(
        PageParts(
            brand="Elision tune",
            headline=tuning_wording.write_headline(tuning),
            scope=tuning_wording.describe_scope(tuning),
            prices=wording.describe_prices(tuning.prices),
            warning=tuning_wording.describe_interruption(tuning),
            sections=[
                _show_recommendation(tuning),
                _show_frontier(tuning),
                _show_sent(tuning),
                _show_points("Beside it", tuning, tuning.references),
                _show_points("Frontier, cheapest first", tuning, tuning.frontier),
                _show_points("Every other point, cheapest first", tuning, others),
                _show_tools(tuning),
                _show_runs(tuning),
                list_problems(tuning.problems),
                wrap_section("read", "How to read this", notes),
            ],
            footer=list_provenance(made_by, ("Recorded as", made_by.recorded), ("Prices", tuning.prices.name)),
            data=NO_RUNS,
        )
    )


def _show_recommendation(tuning: Tuning) -> str:
    texts = (
        tuning_wording.describe_choice(tuning),
        tuning_wording.describe_sent(tuning),
        tuning_wording.write_verdict(tuning),
        tuning_wording.describe_excess(tuning),
        tuning_wording.describe_break_even(tuning),
        tuning_wording.describe_rule_of_thumb(tuning),
        tuning_wording.describe_study(tuning),
    )
    body = "".join(f"<p>{escape_text(text)}</p>" for text in texts if text)
    setting = f"strategy = {quote_toml(describe_fully(tuning.recommended))}"
    return wrap_section("", "Recommended", body, f"<p><code>{escape_text(setting)}</code></p>")


def _show_frontier(tuning: Tuning) -> str:
    text = "Filled: runs to fit. Hollow: runs to judge. Ring: recommended. Grey: beaten. Point at one to read it."
    chart = place_chart(
        "recall", "points: cost and facts still visible of every strategy tried", partial(draw_frontier, tuning)
    )
    return wrap_section(
        "", "Cost against facts still visible", wrap_subtitle(" ".join([text, *describe_far_points(tuning)])), chart
    )


def _show_points(title: str, tuning: Tuning, points: Sequence[TunedPoint]) -> str:
    if not points:
        return ""
    body = []
    for point in points[:MOST_LISTED]:
        recommended = point.text == tuning.recommended
        badge = BADGE if recommended else ""
        names = f"{', '.join(point.names)}: " if point.names else ""
        cells = [f"<td>{escape_text(names + tuning_wording.describe_point(point.text))}{badge}</td>"]
        for row in (point.fit, point.judge):
            cost = figures.NOTHING if row is None else figures.format_usd(row.usd)
            cells += [f"<td>{escape_text(cell)}</td>" for cell in (cost, *tuning_wording.format_cells(row))]
        cells.append(f'<td class="sentence">{escape_text(describe_fully(point.text))}</td>')
        body.append(f"<tr{' class=recommended' if recommended else ''}>{''.join(cells)}</tr>")
    more = len(points) - MOST_LISTED
    note = [wrap_subtitle(f"{figures.format_count(more)} more with --json.")] if more > 0 else []
    return wrap_section("long", title, *note, build_table(map(escape_text, _TITLES), body))


def _show_sent(tuning: Tuning) -> str:
    """Show what happened in the runs, and what was paid."""
    body = []
    names = label_sent_rows(tuning.sending)
    for each in tuning.sent:
        cells = [names[each.name]]
        for row in (each.fit, each.judge):
            cost = figures.NOTHING if row is None else figures.format_usd(row.usd)
            cells += [cost, *tuning_wording.format_cells(row)]
        body.append(build_row(cells))
    return wrap_section("long", "What happened", build_table(map(escape_text, _TITLES[:-1]), body)) if body else ""


def _show_tools(tuning: Tuning) -> str:
    shares = tuning_wording.list_tool_shares(tuning)
    if not shares:
        return ""
    titles = ("tool", "hidden tokens", "facts missed", "rule tried: visible for")
    return wrap_section(
        "", "What masking by age hides, by tool (runs to fit)", build_table(titles, map(build_row, shares))
    )


def _show_runs(tuning: Tuning) -> str:
    keys = [*tuning.fit_runs, *tuning.judge_runs]
    names = name_runs(Row(file=file, trajectory=run) for file, run in keys)
    parts = (("to fit", tuning.fit_runs), ("to judge", tuning.judge_runs))
    body = [
        f"<tr><td>{part}</td><td><bdi>{escape_text(names[key])}</bdi></td></tr>" for part, keys in parts for key in keys
    ]
    return wrap_section("", "Runs", build_table(("part", "run"), body))
