"""The report of a replay, and of a study: what was paid against Elision, every strategy, and how to read it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from elision.lab.report import charts, sent_wording, wording
from elision.lab.report.charts import HINDSIGHT, VS_RECORDED, StrategyColumn, format_controls, select_columns
from elision.lab.report.figures import (
    format_change,
    format_count,
    format_plural,
    format_share,
    format_tokens,
    format_usd,
    group_rows,
    is_raw,
    name_runs,
    neutralize_text,
    shorten_strategies,
)
from elision.lab.report.report import (
    Block,
    Chart,
    Column,
    Explorer,
    Glossary,
    Provenance,
    Report,
    Section,
    Sentence,
    Table,
    TableRow,
    Tiles,
)
from elision.lab.report.svg import assign_looks
from elision.lab.results import BILLED, RECORDED, Row, Study, SummaryTable
from elision.trajectory.trajectory import Problem

#: Runs that a terminal lists, the most expensive first.
_FEW_RUNS = 8
#: Cells that a run's name keeps.
_NAME = 14


def build_replay_report(study: Study, made_by: Provenance | None = None) -> Report:
    """Return the report of `study`. made_by: what it says of its making."""
    source = "; ".join(filter(None, (study.prices.source, study.prices.dated)))
    return Report(
        command="replay",
        headline=wording.write_headline(study),
        scope=list(_list_scope(study)),
        sections=list(_build_sections(study)),
        data=study.json(),
        made_by=made_by,
        footer=[("Prices", f"{study.prices.name} ({source})" if source else study.prices.name)],
    )


def _list_scope(study: Study) -> Iterator[Sentence]:
    yield Sentence(wording.describe_scope(study))
    if study.rows:
        yield Sentence(wording.describe_prices(study.prices))
        if composition := wording.describe_composition(study):
            yield Sentence(composition)
    if study.summarizer is not None:
        yield Sentence(wording.describe_summarizer(study.summarizer))
    if warning := wording.describe_interruption(study):
        yield Sentence(warning, "warning")


def _build_sections(study: Study) -> Iterator[Section]:
    if study.rows:
        text = "Dashed line: what was sent, as recorded."
        if study.hindsight and any(row.hindsight_usd is not None for row in study.totals):
            text += " Upright mark: the cheapest schedule of the same strategy, in hindsight."
        yield Section("What each strategy costs, and what is paid for", [charts.build_costs(study)], text)
        yield Section("", list(_list_tiles(study)), only="page")
        yield Section("All strategies", [build_totals(study), *_list_totals_notes(study)])
        yield from _show_charts(study)
        yield from _show_growth(study)
        yield from _show_runs(study)
        yield from build_summary_sections(study.sums.tables if study.sums else ())
        if any(control.noise is not None or control.floor is not None for control in study.controls):
            controls: list[Block] = [format_controls(study.controls), Sentence(wording.CONTROLS)]
            yield Section("How far “facts still visible” can be trusted", controls)
    yield from build_problem_section(study.problems)
    if study.rows:
        words = [entry[:3] for entry in wording.GLOSSARY if entry[3](study)]
        yield Section("How to read this", [Glossary(words), *map(Sentence, wording.list_notes(study))])


def _list_tiles(study: Study) -> Iterator[Block]:
    row = wording.find_featured(study)
    if row is None:
        return
    rival = wording.find_every_turn_rival(study, row)
    raw_peak = max((other.peak for other in study.totals if is_raw(other.strategy)), default=None)
    paid = f"{format_usd(row.usd)} instead of {format_usd(row.paid_usd)}"
    tiles = [("cost vs recorded", format_change(row.to_recorded), paid)]
    rewrites = f"in {format_plural(row.calls, 'call')}"
    if rival is not None:
        change = format_change(rival.to_recorded)
        tiles.append(("the same at every turn", change, format_usd(rival.usd)))
        rewrites += f"; at every turn {format_count(rival.cache_rewrites)}"
    missed = f"{format_plural(row.regret_turns, 'turn')} missed a fact"
    peak = f"tokens instead of {format_tokens(raw_peak)}" if raw_peak is not None else "tokens"
    tiles += [
        ("cache rewrites", format_count(row.cache_rewrites), rewrites),
        ("facts still visible", format_share(row.evidence_recall), missed),
        ("peak context", format_tokens(row.peak), peak),
    ]
    if extra := wording.describe_break_even(row):
        number, _, rest = extra.partition(" ")
        tiles.append(("break-even", number, rest))
    yield Tiles(tiles)


# -- tables -----------------------------------------------------------------------------------------------------------


def build_totals(study: Study) -> Table:
    """Return the totals of the strategies, in groups."""
    names = sent_wording.name_rows(study)
    looks = assign_looks(study.strategies)
    columns = select_columns(study)
    rows: list[TableRow] = []
    for heading, members in group_rows(study.totals):
        if heading:
            rows.append(TableRow([heading]))
        for row in members:
            cells = [names[row.strategy], *(column.write(row) for column in columns)]
            is_recommended = row.strategy == study.recommended
            rows.append(TableRow(cells, slot=looks[row.strategy].slot, recommended=is_recommended))
    return Table([Column("strategy"), *(Column(each.title, each.keep) for each in columns)], rows)


def _list_totals_notes(study: Study) -> Iterator[Sentence]:
    costs = {row.strategy: row.usd for row in study.totals}
    notes = (
        wording.write_recommendation(study),
        *sent_wording.describe_sent(
            study.sent, costs.get(BILLED), costs.get(RECORDED), study.prices.name, is_also_on_top=True
        ),
        wording.describe_turns(study),
    )
    if missing := wording.explain_missing_hindsight(study):
        yield Sentence(missing, column=HINDSIGHT if study.hindsight else "")
    yield from (Sentence(note) for note in notes if note)
    for label, name in shorten_strategies(study.strategies).items():
        full = neutralize_text(label)
        if name != full:
            yield Sentence(f"{name}: {full}", "quiet")


def _show_charts(study: Study) -> Iterator[Section]:
    if charts.list_visible_facts(study):
        text = "Further left is cheaper; further up keeps visible more of the facts that the agent used later."
        chart = Chart(
            "recall",
            "points: cost and facts still visible",
            lambda drawing: charts.draw_visible_facts(study, drawing),
        )
        yield Section("Cost against facts still visible", [chart], text, only="page")


def _show_growth(study: Study) -> Iterator[Section]:
    """Yield the size of the context by turn; first of raw, the strategy of the headline, and the cheapest."""
    sizes = study.growth
    if not sizes:
        return
    names = sent_wording.name_rows(study)
    looks = assign_looks(study.strategies)
    # The longest runs are what a reader looks for: of few columns the last ones stay.
    every = format_plural(study.run_count, "run")
    columns = []
    for place, size in enumerate(sizes):
        title = format_count(size.turn)
        if size.runs != study.run_count:
            title += f"\n({format_count(size.runs)} of {every})"
        columns.append(Column(title, place))
    shown = wording.select_lines(study)
    rows = [
        TableRow([names[label], *(format_tokens(size.tokens[label]) for size in sizes)], slot=looks[label].slot)
        for label in sorted(study.strategies, key=lambda label: label not in shown)
    ]
    yield Section(
        "Tokens of the context, mean over the runs that reach the turn",
        [Table([Column("context at turn"), *columns], rows, few=len(shown))],
    )


def _show_runs(study: Study) -> Iterator[Section]:
    """Yield the strategy of the headline run by run for a terminal, and all rows with their contexts for a page."""
    best = wording.find_featured(study)
    rows = study.of(best.strategy) if best else []
    if best and len(rows) > 1 and not is_raw(best.strategy):
        rows.sort(key=lambda row: (-round(row.to_recorded or 0.0, 6), row.file, row.trajectory))
        name = wording.capitalize_word(sent_wording.name_rows(study)[best.strategy])
        title = f"{name}, run by run"
        if len(rows) > _FEW_RUNS:
            every = format_count(study.run_count)
            title = f"{name}: {_FEW_RUNS} of {every} runs, highest cost vs recorded first"
        yield Section(title, [_build_run_table(study, rows)], only="terminal")
    yield Section("", [build_explorer(study)], only="page")


def _build_run_table(study: Study, rows: Sequence[Row]) -> Table:
    names = name_runs(study.rows)
    columns = _choose_run_columns(study, rows)
    return Table(
        [Column("run"), *(Column(each.title, each.keep) for each in columns)],
        [
            TableRow([names[row.file, row.trajectory], *(column.write(row) for column in columns)])
            for row in rows[:_FEW_RUNS]
        ],
        least=_NAME,
        clip="start",
    )


def _choose_run_columns(study: Study, rows: Sequence[Row]) -> list[StrategyColumn]:
    """Return the columns of single runs: with the same kind of strategy at every turn, if it is compared."""
    by_heading = {column.heading: column for column in select_columns(study)}
    kept = [by_heading[name] for name in ("cost", VS_RECORDED, "facts still visible", HINDSIGHT) if name in by_heading]
    columns = [
        StrategyColumn("calls", 96, lambda row: format_count(row.calls)),
        StrategyColumn("as\nrecorded", 93, lambda row: format_usd(row.paid_usd)),
        *kept[:2],
    ]
    rival = wording.find_every_turn_rival(study, rows[0])
    if rival is not None:
        of_rival = {(row.file, row.trajectory): row.to_recorded for row in study.of(rival.strategy)}
        columns.append(
            StrategyColumn("at every\nturn", 92, lambda row: format_change(of_rival.get((row.file, row.trajectory))))
        )
    return [*columns, *kept[2:]]


def build_summary_sections(tables: Sequence[SummaryTable]) -> Iterator[Section]:
    """Yield what a study of many runs says in groups; of the worst runs, which have links, a page alone has all."""
    for found in tables:
        columns = [Column(title, -place) for place, title in enumerate(found.headings)]
        links = found.links or [""] * len(found.rows)
        rows = [TableRow(row, link=link) for row, link in zip(found.rows, links, strict=True)]
        text = [Sentence(found.text)] if found.text else []
        yield Section(found.title, [Table(columns, rows), *text], only="page" if found.links else "")


def build_problem_section(problems: Sequence[Problem]) -> Iterator[Section]:
    """Yield what could not be read, if anything."""
    lines, more = wording.summarize_problems(problems)
    if lines:
        rest = [Sentence(f"and {format_count(more)} more")] if more else []
        title = f"{format_plural(len(problems), 'problem')} while reading"
        yield Section(title, [*(Sentence(line, "warning") for line in lines), *rest])


# -- the runs as page.js reads them: as many as keep the page under 2.5 MB --------------------------------------------


#: What a page holds at most: letters of the runs' table, and points of lines.
_ROW_LETTERS: Final = 700_000
_POINTS: Final = 120_000
#: Field of a row, title, how page.js writes it, and whether it waits until the reader asks for more.
_COLUMNS: Final = (
    ("run", "run", "word", False),
    ("strategy", "strategy", "word", False),
    ("reader", "format", "word", True),
    ("calls", "calls", "count", False),
    ("usd", "cost", "usd", False),
    ("to_recorded", "vs recorded", "change", False),
    ("to_hindsight", HINDSIGHT, "times", True),
    ("peak", "peak context", "tokens", False),
    ("cache_rewrites", "cache rewrites", "count", True),
    ("summaries", "summaries", "count", True),
    ("evidence_recall", "facts still visible", "percent", False),
    ("regret_turns", "turns missing a fact", "count", True),
)


def build_explorer(study: Study) -> Explorer:
    """Return every run under every strategy; of very many, those that cost most."""
    names = sent_wording.name_rows(study)
    looks = assign_looks(study.strategies)
    rows = _choose_rows(study)
    series = _choose_series(study, rows)
    shown = wording.select_lines(study)
    context = "A dot is a cache rewrite, a diamond a summary. Point at a call to read its sizes."
    if len(series) < len({key[:2] for key in study.series}):
        context += f" The {format_count(len(series))} longest runs."
    table = "Click a heading to sort, a run to see its context."
    if study.sums is not None:
        runs = format_plural(len({(row.file, row.trajectory) for row in study.rows}), "run")
        table += f" The {runs} with the highest cost vs recorded, of {format_count(study.run_count)}."
    elif len(rows) < len(study.rows):
        every = format_count(len(study.rows))
        table += f" The {format_count(len(rows))} rows of the most expensive runs, of {every}."
    return Explorer(
        data=_collect_data(study, names, rows, series),
        lines=[(names[label], looks[label].slot, looks[label].dash, label in shown) for label in study.strategies],
        about=(context, table),
    )


def _collect_data(
    study: Study, names: dict[str, str], rows: list[Row], series: list[tuple[str, str]]
) -> dict[str, Any]:
    keys = dict.fromkeys([*((row.file, row.trajectory) for row in rows), *series])
    runs = {key: place for place, key in enumerate(keys)}
    called = name_runs(study.rows)
    first = {(row.file, row.trajectory): row for row in study.rows}
    best = wording.find_featured(study)
    columns = [column for column in _COLUMNS if study.hindsight or column[1] != HINDSIGHT]
    return {
        "strategies": list(names.values()),
        "looks": [[look.slot, list(look.dash)] for look in assign_looks(study.strategies).values()],
        "featured": names[best.strategy] if best else "",
        "columns": [{"key": key, "title": title, "kind": kind, "extra": extra} for key, title, kind, extra in columns],
        "runs": [{"name": called[key], "reader": first[key].reader, "calls": first[key].calls} for key in runs],
        # A run and its strategy are places, and the format is the run's.
        "rows": _encode_rows(study, runs, rows, [field for field, _, kind, _ in columns if kind != "word"]),
        "series": _encode_series(study, runs, series),
        "first": runs[series[0]] if series else None,
    }


def _encode_rows(
    study: Study, runs: dict[tuple[str, str], int], rows: list[Row], fields: list[str]
) -> list[list[float | None]]:
    places = {label: place for place, label in enumerate(study.strategies)}
    encoded = []
    for row in rows:
        numbers = [_round_number(getattr(row, field)) for field in fields]
        encoded.append([runs[row.file, row.trajectory], places[row.strategy], *numbers])
    return encoded


def _encode_series(study: Study, runs: dict[tuple[str, str], int], keys: list[tuple[str, str]]) -> list[list[Any]]:
    encoded = []
    for key in keys:
        for place, label in enumerate(study.strategies):
            found = study.series.get((*key, label))
            if found is not None:
                numbers = [list(each) for each in (found.tokens, found.rewrites, found.summaries)]
                encoded.append([runs[key], place, *numbers])
    return encoded


def _round_number(value: float | None) -> float | None:
    """Return a number of six digits; JSON knows no infinity."""
    if value is None or isinstance(value, int):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None


def _choose_rows(study: Study) -> list[Row]:
    """Return all rows, or those of the most expensive runs if they are too many."""
    names = name_runs(study.rows)
    rows_of = Counter((row.file, row.trajectory) for row in study.rows)
    dearest = dict.fromkeys((row.file, row.trajectory) for row in sorted(study.rows, key=lambda row: -row.paid_usd))
    # A letter that is no ASCII takes six in JSON.
    sizes = ((key, len(names[key]) + 5 * sum(not each.isascii() for each in names[key])) for key in dearest)
    kept = set(_take_while_fitting(_ROW_LETTERS, ((key, size + 60 + 75 * rows_of[key]) for key, size in sizes)))
    return [row for row in study.rows if (row.file, row.trajectory) in kept]


def _choose_series(study: Study, rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the runs of `rows` whose lines are drawn: the longest first, as many as there is room for."""
    sizes: Counter[tuple[str, str]] = Counter()
    for (file, run, _), series in study.series.items():
        sizes[file, run] += len(series.tokens) + len(series.rewrites)
    listed = {(row.file, row.trajectory) for row in rows}
    return _take_while_fitting(_POINTS, ((key, size) for key, size in sizes.most_common() if key in listed))


def _take_while_fitting(room: int, sized: Iterable[tuple[tuple[str, str], int]]) -> list[tuple[str, str]]:
    """Return the first of `sized` that fit into `room`, and at least one."""
    kept: list[tuple[str, str]] = []
    for key, size in sized:
        room -= size
        if room < 0 and kept:
            break
        kept.append(key)
    return kept
