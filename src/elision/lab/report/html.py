"""A study as one self-contained page: charts, tables and what they mean. It asks the network for nothing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from html import escape as html_escape
from typing import Any

from elision.lab.report import charts, figures, page_shell, sent_wording, wording
from elision.lab.report.columns import (
    COLUMNS,
    CONTROL_TITLES,
    HINDSIGHT,
    format_control,
    format_growth,
    keep_most_needed,
    select_columns,
    title_growth,
)
from elision.lab.report.names import (
    group_rows,
    is_raw,
    list_shortened,
    name_runs,
    neutralize_text,
)
from elision.lab.report.page_shell import (
    build_row,
    build_table,
    embed_json,
    escape_text,
    list_problems,
    place_chart,
    wrap_section,
    wrap_subtitle,
)
from elision.lab.report.palette import Look, assign_looks
from elision.lab.report.provenance import Provenance
from elision.lab.results import Row, Study, SummaryTable

#: What a page holds at most, so that it stays under 2.5 MB and quick: bytes of the runs' table, and points of lines.
ROW_BYTES = 700_000
POINTS = 120_000

#: Columns of the totals: more do not fit 1,280 pixels. The rest is in the JSON.
MOST_COLUMNS = 13

#: Of the runs' table: key, title, how its numbers are written (page.js).
RUN_COLUMNS = (
    ("run", "run", "word"),
    ("strategy", "strategy", "word"),
    ("reader", "format", "word"),
    ("calls", "calls", "count"),
    ("usd", "cost", "usd"),
    ("to_recorded", "vs recorded", "change"),
    ("to_hindsight", HINDSIGHT, "times"),
    ("peak", "peak context", "tokens"),
    ("rewrites", "cache rewrites", "count"),
    ("summaries", "summaries", "count"),
    ("evidence", "facts still visible", "percent"),
    ("regret", "turns missing a fact", "count"),
)


def build_page(study: Study, made_by: Provenance | None = None) -> str:
    """Return the page, to be written as UTF-8.

    made_by: what the page says of its making; None leaves that out.
    """
    slots = {look.slot for look in assign_looks(study.strategies).values()}
    return page_shell.fill_page(
        page_shell.PageParts(
            brand="Elision replay",
            headline=wording.write_headline(study),
            scope=wording.describe_scope(study),
            prices=wording.describe_prices(study.prices) if study.rows else "",
            warning=wording.describe_interruption(study),
            sections=_build_sections(study),
            footer=_show_provenance(study, made_by),
            data=_collect_data(study) if study.rows else None,
            slots=sorted(slots),
        )
    )


def _build_sections(study: Study) -> list[str]:
    if not study.rows:
        return [list_problems(study.problems), _show_glossary(study)]
    return [
        _show_tiles(study),
        _show_costs(study),
        _show_visible_facts(study),
        _show_context(study),
        _show_growth(study),
        _show_totals(study),
        _show_runs(study),
        *show_summary_tables(study.sums.tables if study.sums else ()),
        _show_controls(study),
        list_problems(study.problems),
        _show_glossary(study),
    ]


def _show_provenance(study: Study, made_by: Provenance | None) -> str:
    """Return what made the page: program, day, command, prices' source, and the models and bills of the recordings."""
    source = "; ".join(filter(None, (study.prices.source, study.prices.dated)))
    prices = f"{study.prices.name} ({source})" if source else study.prices.name
    recorded = made_by.recorded if made_by else ""
    return page_shell.list_provenance(made_by, ("Recorded as", recorded), ("Prices", prices))


def _show_tiles(study: Study) -> str:
    row = wording.find_featured(study)
    if row is None:
        return ""
    rival = wording.find_every_turn_rival(study, row)
    raw_peak = max((other.peak for other in study.totals if is_raw(other.strategy)), default=None)
    paid = f"{figures.format_usd(row.usd)} instead of {figures.format_usd(row.paid_usd)}"
    tiles = [("cost vs recorded", figures.format_change(row.to_recorded), paid)]
    rewrites = f"in {figures.format_plural(row.calls, 'call')}"
    if rival is not None:
        tiles.append(
            ("the same at every turn", figures.format_change(rival.to_recorded), figures.format_usd(rival.usd))
        )
        rewrites += f"; at every turn {figures.format_count(rival.cache_rewrites)}"
    missed = f"{figures.format_plural(row.regret_turns, 'turn')} missed a fact"
    peak = f"tokens instead of {figures.format_tokens(raw_peak)}" if raw_peak is not None else "tokens"
    tiles += [
        ("cache rewrites", figures.format_count(row.cache_rewrites), rewrites),
        ("facts still visible", figures.format_share(row.evidence_recall), missed),
        ("peak context", figures.format_tokens(row.peak), peak),
    ]
    extra = wording.describe_break_even(row)
    if extra:
        number, _, rest = extra.partition(" ")
        tiles.append(("break-even", number, rest))
    cells = (
        f"<div><dt>{escape_text(name)}</dt><dd><strong>{escape_text(value)}</strong><small>{escape_text(more)}</small></dd></div>"
        for name, value, more in tiles
    )
    return f'<section><dl class="tiles">{"".join(cells)}</dl></section>'


def _show_costs(study: Study) -> str:
    text = "Dashed line: what was sent, as recorded."
    text += wording.describe_hindsight_mark(study)
    what = "stacked bars: the cost of each strategy, by what is paid for"
    chart = place_chart("cost", what, partial(charts.draw_costs, study))
    return wrap_section("", "What each strategy costs, and what is paid for", wrap_subtitle(text), chart)


def _show_visible_facts(study: Study) -> str:
    if not charts.list_visible_facts(study):
        return ""
    text = "Further left is cheaper; further up keeps visible more of the facts that the agent used later."
    chart = place_chart("recall", "points: cost and facts still visible", partial(charts.draw_visible_facts, study))
    return wrap_section("", "Cost against facts still visible", wrap_subtitle(text), chart)


def _show_context(study: Study) -> str:
    if not study.series:
        return ""
    names = sent_wording.name_rows(study)
    style = assign_looks(study.strategies)
    first = wording.select_lines(study)
    keys = "".join(
        f'<li><label><input type="checkbox"{" checked" if label in first else ""} data-strategy="{place}">'
        f"{_draw_line(style[label])}{escape_text(names[label])}</label></li>"
        for place, label in enumerate(study.strategies)
    )
    text = "A dot is a cache rewrite, a diamond a summary. Point at a call to read its sizes."
    shown = _choose_series(study)
    if len(shown) < len({key[:2] for key in study.series}):
        text += f" The {figures.format_count(len(shown))} longest runs."
    return wrap_section(
        "",
        "Context of each call",
        wrap_subtitle(text),
        '<div class="bar"><label>Run <select id="run"></select></label></div>',
        f'<ul class="key">{keys}</ul>',
        place_chart("context", "lines: context size call by call"),
    )


def _draw_swatch(slot: str) -> str:
    return f'<span class="dot c-{slot}"></span>'


def _draw_line(look: Look) -> str:
    """A short stretch of the strategy's line."""
    dash = f'stroke-dasharray="{look.dash[0]} {look.dash[1]}"' if look.dash[1] else ""
    line = f'<line class="c-{look.slot}" x1="0" y1="4" x2="22" y2="4" stroke-width="2.5" {dash}/>'
    return f'<svg width="22" height="8" aria-hidden="true">{line}</svg>'


def _show_totals(study: Study) -> str:
    names = sent_wording.name_rows(study)
    style = assign_looks(study.strategies)
    columns = keep_most_needed(select_columns(COLUMNS, study), MOST_COLUMNS)
    body = []
    for heading, rows in group_rows(study.totals):
        if heading:
            body.append(
                f'<tr class="group"><th scope="rowgroup" colspan="{len(columns) + 1}">{escape_text(heading)}</th></tr>'
            )
        for row in rows:
            recommended = row.strategy == study.recommended
            mark = page_shell.BADGE if recommended else ""
            name = f"<td>{_draw_swatch(style[row.strategy].slot)}{escape_text(names[row.strategy])}{mark}</td>"
            cells = "".join(
                f'<td class="{column.mood(row)}">{escape_text(column.cell(row))}</td>' for column in columns
            )
            body.append(f"<tr{' class=recommended' if recommended else ''}>{name}{cells}</tr>")
    legend = "".join(
        f'<p class="legend">{escape_text(name)}: {escape_text(label)}</p>' for name, label in list_shortened(study)
    )
    notes = (
        wording.write_recommendation(study),
        *sent_wording.describe_study_sent(study),
        wording.explain_missing_hindsight(study),
        wording.describe_turns(study),
    )
    foot = "".join(f'<p class="legend">{escape_text(note)}</p>' for note in notes if note)
    titles = ["strategy", *(escape_text(column.heading) for column in columns)]
    return wrap_section("", "All strategies", build_table(titles, body), foot, legend)


def _show_runs(study: Study) -> str:
    text = "Click a heading to sort, a run to see its context."
    kept = len(_choose_rows(study))
    if study.sums is not None:
        text += f" The {figures.format_plural(len({(row.file, row.trajectory) for row in study.rows}), 'run')} with the"
        text += f" highest cost vs recorded, of {figures.format_count(study.run_count)}."
    elif kept < len(study.rows):
        every = figures.format_count(len(study.rows))
        text += f" The {figures.format_count(kept)} rows of the most expensive runs, of {every}."
    return wrap_section(
        "long",
        "Runs",
        wrap_subtitle(text),
        '<div class="bar"><label>Strategy <select id="only"><option value="">all</option></select></label></div>',
        '<div class="scroll"><table id="runs"><thead></thead><tbody></tbody></table></div>',
        '<p><button type="button" id="more" hidden></button></p>',
    )


def show_summary_tables(tables: Sequence[SummaryTable]) -> list[str]:
    """Show what a study of many runs says in groups."""
    sections = []
    for found in tables:
        rows = [build_row(row) for row in found.rows]
        if found.links:
            rows = [_build_linked_row(row, link) for row, link in zip(found.rows, found.links, strict=True)]
        table = build_table(map(escape_text, found.headings), rows)
        sections.append(wrap_section("long" if found.links else "", found.title, wrap_subtitle(found.text), table))
    return sections


def _build_linked_row(row: Sequence[str], link: str) -> str:
    name, *cells = map(escape_text, row)
    anchor = f'<a href="{html_escape(link)}">{name}</a>' if link else name
    return f"<tr><td>{anchor}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _show_controls(study: Study) -> str:
    if not wording.has_controls(study):
        return ""
    body = (build_row(format_control(control)) for control in study.controls)
    title = "How far “facts still visible” can be trusted"
    return wrap_section("", title, wrap_subtitle(wording.CONTROLS), build_table(CONTROL_TITLES, body))


def _show_glossary(study: Study) -> str:
    words = "".join(
        f"<dt>{escape_text(word)}</dt><dd>{escape_text(meaning)}</dd>" for word, meaning in wording.select_words(study)
    )
    told = wording.list_notes(study)
    if study.summarizer is not None:
        told.insert(0, wording.describe_summarizer(study.summarizer))
    notes = "".join(f"<p>{escape_text(note)}</p>" for note in told)
    return wrap_section("read", "How to read this", f"<dl>{words}</dl>{notes}")


def _collect_data(study: Study) -> dict[str, Any]:
    """What page.js works from."""
    names = sent_wording.name_rows(study)
    places = {label: place for place, label in enumerate(study.strategies)}
    rows = _choose_rows(study)
    series = _choose_series(study)
    runs = {
        key: place for place, key in enumerate(dict.fromkeys([*((row.file, row.trajectory) for row in rows), *series]))
    }
    called = name_runs(study.rows)
    first = {(row.file, row.trajectory): row for row in study.rows}
    best = wording.find_featured(study)
    columns = [column for column in RUN_COLUMNS if study.hindsight or column[1] != HINDSIGHT]
    return {
        "strategies": list(names.values()),
        "looks": [[look.slot, list(look.dash)] for look in assign_looks(study.strategies).values()],
        "featured": names[best.strategy] if best else "",
        "columns": [{"key": key, "title": title, "kind": kind} for key, title, kind in columns],
        "runs": [
            {"name": called[key], "reader": neutralize_text(first[key].reader), "calls": first[key].calls}
            for key in runs
        ],
        "rows": [
            [runs[row.file, row.trajectory], places[row.strategy], *_list_run_numbers(row, columns)] for row in rows
        ],
        "series": [
            [runs[key], place, list(found.tokens), list(found.rewrites), list(found.summaries)]
            for key in series
            for label, place in places.items()
            if (found := study.series.get((*key, label))) is not None
        ],
        "first": runs[series[0]] if series else None,
    }


def _list_run_numbers(row: Row, columns: Sequence[tuple[str, str, str]]) -> list[float | None]:
    """A row's cells after run, strategy and format, in the order of `columns`."""
    values = {
        "calls": row.calls,
        "usd": row.usd,
        "to_recorded": row.to_recorded,
        "to_hindsight": row.to_hindsight,
        "peak": row.peak,
        "rewrites": row.cache_rewrites,
        "summaries": row.summaries,
        "evidence": row.evidence_recall,
        "regret": row.regret_turns,
    }
    return [_round_number(values[key]) for key, _, _ in columns if key in values]


def _round_number(value: float | None) -> float | None:
    # JSON knows no infinity.
    found = value if value is not None and math.isfinite(value) else None
    if found is None or isinstance(found, int):
        return found
    return float(f"{found:.6g}")


def _show_growth(study: Study) -> str:
    """Show what the turns consist of, and the size of the context by turn under every strategy."""
    composition = wording.describe_composition(study)
    sizes = study.growth
    if not sizes and not composition:
        return ""
    names = sent_wording.name_rows(study)
    style = assign_looks(study.strategies)
    rows = [
        f"<tr><td>{_draw_swatch(style[label].slot)}{escape_text(names[label])}</td>"
        f"{''.join(f'<td>{escape_text(cell)}</td>' for cell in format_growth(study, label))}</tr>"
        for label in study.strategies
    ]
    titles = ["context at turn", *(escape_text(title_growth(size, study).replace("\n", " ")) for size in sizes)]
    table = build_table(titles, rows) if sizes else ""
    text = " ".join(filter(None, (composition, "Mean over the runs that reach the turn." if sizes else "")))
    return wrap_section("", "Tokens of the context, turn by turn", wrap_subtitle(text), table)


def _choose_rows(study: Study) -> list[Row]:
    """Return all rows, or those of the most expensive runs if they are too many."""
    names = name_runs(study.rows)
    rows_of = Counter((row.file, row.trajectory) for row in study.rows)
    dearest = dict.fromkeys((row.file, row.trajectory) for row in sorted(study.rows, key=lambda row: -row.paid_usd))
    kept = set(
        _take_while_fitting(ROW_BYTES, ((key, len(embed_json(names[key])) + 60 + 75 * rows_of[key]) for key in dearest))
    )
    return [row for row in study.rows if (row.file, row.trajectory) in kept]


def _choose_series(study: Study) -> list[tuple[str, str]]:
    """Runs whose lines are drawn: the longest first, as many as there is room for."""
    sizes: Counter[tuple[str, str]] = Counter()
    for (file, run, _), series in study.series.items():
        sizes[file, run] += len(series.tokens) + len(series.rewrites)
    listed = {(row.file, row.trajectory) for row in _choose_rows(study)}
    return _take_while_fitting(POINTS, ((key, size) for key, size in sizes.most_common() if key in listed))


def _take_while_fitting(room: int, sized: Iterable[tuple[tuple[str, str], int]]) -> list[tuple[str, str]]:
    """The first of `sized` that fit into `room`, and at least one."""
    kept: list[tuple[str, str]] = []
    for key, size in sized:
        room -= size
        if room < 0 and kept:
            break
        kept.append(key)
    return kept
