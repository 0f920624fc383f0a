"""The report of a replay, and of a study: what was paid against Elision, every strategy, and how to read it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from elision.lab.report import charts, figures, sent_wording, wording
from elision.lab.report.columns import HINDSIGHT, VS_RECORDED, StrategyColumn, format_controls, select_columns
from elision.lab.report.explorer import build_explorer
from elision.lab.report.names import group_rows, is_raw, list_shortened, name_runs
from elision.lab.report.palette import assign_looks
from elision.lab.report.report import (
    Block,
    Chart,
    Column,
    Glossary,
    Provenance,
    Report,
    Section,
    Sentence,
    Table,
    TableRow,
    Tiles,
)
from elision.lab.results import ContextSize, Row, Study, SummaryTable
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
        text = "Dashed line: what was sent, as recorded." + wording.describe_hindsight_mark(study)
        yield Section("What each strategy costs, and what is paid for", [charts.build_costs(study)], text)
        yield Section("", list(_list_tiles(study)), only="page")
        yield Section("All strategies", [build_totals(study), *_list_totals_notes(study)])
        yield from _show_charts(study)
        yield from _show_growth(study)
        yield from _show_runs(study)
        yield from build_summary_sections(study.sums.tables if study.sums else ())
        if wording.has_controls(study):
            controls: list[Block] = [format_controls(study.controls), Sentence(wording.CONTROLS)]
            yield Section("How far “facts still visible” can be trusted", controls)
    yield from build_problem_section(study.problems)
    if study.rows:
        yield Section(
            "How to read this",
            [Glossary(list(_list_words(study))), *map(Sentence, wording.list_notes(study))],
        )


def _list_words(study: Study) -> Iterator[tuple[str, str, str]]:
    for word, meaning in wording.select_words(study):
        yield word, meaning, wording.COLUMN_OF[word]


def _list_tiles(study: Study) -> Iterator[Block]:
    row = wording.find_featured(study)
    if row is None:
        return
    rival = wording.find_every_turn_rival(study, row)
    raw_peak = max((other.peak for other in study.totals if is_raw(other.strategy)), default=None)
    paid = f"{figures.format_usd(row.usd)} instead of {figures.format_usd(row.paid_usd)}"
    tiles = [("cost vs recorded", figures.format_change(row.to_recorded), paid)]
    rewrites = f"in {figures.format_plural(row.calls, 'call')}"
    if rival is not None:
        change = figures.format_change(rival.to_recorded)
        tiles.append(("the same at every turn", change, figures.format_usd(rival.usd)))
        rewrites += f"; at every turn {figures.format_count(rival.cache_rewrites)}"
    missed = f"{figures.format_plural(row.regret_turns, 'turn')} missed a fact"
    peak = f"tokens instead of {figures.format_tokens(raw_peak)}" if raw_peak is not None else "tokens"
    tiles += [
        ("cache rewrites", figures.format_count(row.cache_rewrites), rewrites),
        ("facts still visible", figures.format_share(row.evidence_recall), missed),
        ("peak context", figures.format_tokens(row.peak), peak),
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
    notes = (
        wording.write_recommendation(study),
        *sent_wording.describe_study_sent(study),
        wording.describe_turns(study),
    )
    if missing := wording.explain_missing_hindsight(study):
        yield Sentence(missing, column=HINDSIGHT if study.hindsight else "")
    yield from (Sentence(note) for note in notes if note)
    yield from (Sentence(f"{name}: {label}", "quiet") for name, label in list_shortened(study))


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
    columns = [Column(_title_growth(size, study), place) for place, size in enumerate(sizes)]
    shown = wording.select_lines(study)
    rows = [
        TableRow([names[label], *(figures.format_tokens(size.tokens[label]) for size in sizes)], slot=looks[label].slot)
        for label in sorted(study.strategies, key=lambda label: label not in shown)
    ]
    yield Section(
        "Tokens of the context, mean over the runs that reach the turn",
        [Table([Column("context at turn"), *columns], rows, few=len(shown))],
    )


def _title_growth(size: ContextSize, study: Study) -> str:
    """`100`, or `100 (2 of 4 runs)` on two lines where some runs are shorter."""
    if size.runs == study.run_count:
        return figures.format_count(size.turn)
    every = figures.format_plural(study.run_count, "run")
    return f"{figures.format_count(size.turn)}\n({figures.format_count(size.runs)} of {every})"


def _show_runs(study: Study) -> Iterator[Section]:
    """Yield the strategy of the headline run by run for a terminal, and all rows with their contexts for a page."""
    best = wording.find_featured(study)
    rows = wording.rank_runs(study, best.strategy) if best else []
    if best and rows:
        name = wording.capitalize_word(sent_wording.name_rows(study)[best.strategy])
        title = f"{name}, run by run"
        if len(rows) > _FEW_RUNS:
            every = figures.format_count(study.run_count)
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
        StrategyColumn("calls", 96, lambda row: figures.format_count(row.calls)),
        StrategyColumn("as\nrecorded", 93, lambda row: figures.format_usd(row.paid_usd)),
        *kept[:2],
    ]
    rival = wording.find_every_turn_rival(study, rows[0])
    if rival is not None:
        of_rival = {(row.file, row.trajectory): row.to_recorded for row in study.of(rival.strategy)}
        columns.append(
            StrategyColumn(
                "at every\nturn", 92, lambda row: figures.format_change(of_rival.get((row.file, row.trajectory)))
            )
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
        rest = [Sentence(f"and {figures.format_count(more)} more")] if more else []
        title = f"{figures.format_plural(len(problems), 'problem')} while reading"
        yield Section(title, [*(Sentence(line, "warning") for line in lines), *rest])
