"""A study in the terminal: totals per strategy, runs, controls, problems, and how to read the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from elision.lab.report import figures, sent_wording, wording
from elision.lab.report.columns import (
    COLUMNS,
    CONTROL_TITLES,
    HINDSIGHT,
    VS_RECORDED,
    Column,
    format_control,
    format_growth,
    select_columns,
    title_growth,
)
from elision.lab.report.fitting import GAP, choose_columns, open_table, print_paragraph, print_text
from elision.lab.report.fitting import measure_column as width_of
from elision.lab.report.names import group_rows, list_shortened, name_runs
from elision.lab.results import Control, Row, Study, SummaryTable
from elision.trajectory.trajectory import Problem

#: Columns of a terminal for which a table is made by default.
WIDTH = 140
#: Cells of a run's name that are shown where there is room, and where there is not.
_NAME = 28
_LITTLE = 14
#: Columns of a terminal that leave room.
_ROOMY = 80
#: Runs that are listed each; of more, only the worst are.
_LISTED = 8
#: Before the recommended strategy, and before the others.
MARK = "▸ "
NO_MARK = "  "

#: Of the controls' columns after the format: the higher, the longer it stays where room is short.
_CONTROLS_KEEP = (1, 4, 3, 2)

_STYLES = {"": "", "better": "green", "worse": "red"}


def print_study(study: Study, console: Console) -> None:
    """Print everything that a person needs to judge the study."""
    print_text(console, wording.write_headline(study), "bold")
    print_text(console, wording.describe_scope(study), "dim")
    if study.rows:
        print_text(console, wording.describe_prices(study.prices), "dim")
        print_text(console, wording.describe_composition(study), "dim")
    if study.summarizer is not None:
        print_text(console, wording.describe_summarizer(study.summarizer), "dim")
    print_text(console, wording.describe_interruption(study), "yellow")
    if not study.rows:
        print_problems(study.problems, console)
        return
    console.print()
    console.print(build_totals_table(study, console.width))
    # Why the column × hindsight has a dash or is not there; nothing where it has no room.
    missing_hindsight = wording.explain_missing_hindsight(study)
    if study.hindsight and HINDSIGHT not in _list_headings(study, console):
        missing_hindsight = None
    for text in (
        wording.write_recommendation(study),
        *sent_wording.describe_study_sent(study),
        _describe_hidden_columns(study, console),
        missing_hindsight,
        wording.describe_turns(study),
    ):
        print_paragraph(console, text)
    for name, label in list_shortened(study):
        print_paragraph(console, f"{name}: {label}", style="dim")
    _print_growth(study, console)
    _print_runs(study, console)
    print_summary_tables(study.sums.tables if study.sums else (), console)
    _print_controls(study, console)
    print_problems(study.problems, console)
    _print_glossary(study, console)


def print_next_steps(console: Console, page: Path | None) -> None:
    """Print what to do next. page: the report that was written as HTML."""
    print_heading(console, "Next")
    steps = [Text("your own runs          elision replay my-run.json"), Text("in front of an agent   elision serve")]
    if page is not None:
        address = page.absolute().as_uri()
        link = Text(address, style=Style(color="cyan", bold=True, link=address))
        steps.insert(0, Text.assemble("charts and every run   ", link))
    for step in steps:
        # On one line whatever the width, so that a click opens the address and a copy is whole.
        console.print(Text.assemble("  ", step), soft_wrap=True)


def build_totals_table(study: Study, width: int = WIDTH) -> Table:
    """Totals per strategy, in groups: as many columns as fit into `width` cells, no number ever broken or cut."""
    names = sent_wording.name_rows(study)
    groups = group_rows(study.totals)
    marked = len(groups) > 1 or bool(study.recommended)
    indent = {row.strategy: "" for row in study.totals}
    if marked:
        indent = {label: MARK if label == study.recommended else NO_MARK for label in indent}
    labels = [indent[row.strategy] + names[row.strategy] for row in study.totals]
    columns = _choose_columns(
        select_columns(COLUMNS, study),
        study.totals,
        width - measure_widest(["strategy", *labels, *(name for name, _ in groups)]),
    )
    result = build_empty_table(["strategy"], [column.title for column in columns])
    for heading, rows in groups:
        if heading:
            result.add_row(Text(heading, style="italic"))
        for row in rows:
            style = "bold" if row.strategy == study.recommended else ""
            result.add_row(Text(indent[row.strategy] + names[row.strategy]), *_build_cells(columns, row), style=style)
    return result


def _print_growth(study: Study, console: Console) -> None:
    """Print the size of the context by turn: of raw, the strategy of the headline, and the cheapest."""
    sizes = study.growth
    if not sizes:
        return
    shown = wording.select_lines(study)
    names = sent_wording.name_rows(study)
    columns = [list(each) for each in zip(*(format_growth(study, label) for label in study.strategies), strict=True)]
    titles = [title_growth(size, study) for size in sizes]
    heading = "context at turn"
    room = console.width - measure_widest([heading, *(names[label] for label in shown)])
    # The longest runs are what a reader looks for: of few columns the last ones stay.
    kept = choose_columns(
        [[title, *cells] for title, cells in zip(titles, columns, strict=True)], list(range(len(sizes))), room
    )
    table = build_empty_table([heading], [])
    for place in kept:
        table.add_column(Text(titles[place]), justify="right", no_wrap=True, vertical="bottom")
    for label in study.strategies:
        if label in shown:
            cells = format_growth(study, label)
            table.add_row(Text(names[label]), *(Text(cells[place]) for place in kept))
    print_section(console, "Tokens of the context, mean over the runs that reach the turn", table)


def _print_runs(study: Study, console: Console) -> None:
    """Print the strategy that the headline names run by run, or where it does worst if there are many."""
    best = wording.find_featured(study)
    rows = wording.rank_runs(study, best.strategy) if best else []
    if not best or not rows:
        return
    name = sent_wording.name_rows(study)[best.strategy]
    title = f"{wording.capitalize_word(name)}, run by run"
    if len(rows) > _LISTED:
        every = figures.format_count(study.run_count)
        title = f"{wording.capitalize_word(name)}: {_LISTED} of {every} runs, highest cost vs recorded first"
    print_section(console, title, _build_run_table(study, rows[:_LISTED], console.width))


def _build_run_table(study: Study, rows: Sequence[Row], width: int) -> Table:
    names = name_runs(study.rows)
    columns = _choose_columns(_choose_run_columns(study, rows), rows, width - (_NAME if width >= _ROOMY else _LITTLE))
    room = width - sum(width_of([column.title, *(column.cell(row) for row in rows)]) for column in columns)
    result = build_empty_table(["run"], [column.title for column in columns])
    for row in rows:
        result.add_row(Text(_clip_start(names[row.file, row.trajectory], room)), *_build_cells(columns, row))
    return result


def _choose_run_columns(study: Study, rows: Sequence[Row]) -> list[Column]:
    """Return the columns of single runs: with the same kind of strategy at every turn, if it is compared."""
    by_heading = {column.heading: column for column in select_columns(COLUMNS, study)}
    kept = [by_heading[name] for name in ("cost", VS_RECORDED, "facts still visible", HINDSIGHT) if name in by_heading]
    columns = [
        Column("calls", 96, lambda row: figures.format_count(row.calls)),
        Column("as\nrecorded", 93, lambda row: figures.format_usd(row.paid_usd)),
        *kept[:2],
    ]
    rival = wording.find_every_turn_rival(study, rows[0])
    if rival is not None:
        beside = {(row.file, row.trajectory): row.to_recorded for row in study.of(rival.strategy)}
        columns.append(
            Column("at every\nturn", 92, lambda row: figures.format_change(beside.get((row.file, row.trajectory))))
        )
    return [*columns, *kept[2:]]


def print_summary_tables(tables: Sequence[SummaryTable], console: Console) -> None:
    """Print what a study of many runs says in groups; of the worst runs the table above has the first."""
    for found in tables:
        if found.links:
            continue
        columns = list(zip(found.headings, *found.rows, strict=True))
        room = console.width - width_of(columns[0]) + GAP
        kept = choose_columns(columns[1:], [-place for place in range(1, len(columns))], room)
        table = build_empty_table([found.headings[0]], [found.headings[place + 1] for place in kept])
        for row in found.rows:
            table.add_row(Text(row[0]), *(Text(row[place + 1]) for place in kept))
        print_section(console, found.title, table)
        print_paragraph(console, found.text)


def _print_controls(study: Study, console: Console) -> None:
    """Print how far the measure of visible facts can be trusted, where anything is known of that."""
    if wording.has_controls(study):
        print_section(
            console, "How far “facts still visible” can be trusted", _build_control_table(study.controls, console.width)
        )
        print_paragraph(console, wording.CONTROLS)


def _print_glossary(study: Study, console: Console) -> None:
    print_heading(console, "How to read this")
    shown = _list_headings(study, console)
    for word, meaning in wording.select_words(study):
        if wording.COLUMN_OF[word] in shown or word == wording.HINDSIGHT:
            print_paragraph(console, f"{word}: {meaning}.")
    for note in wording.list_notes(study):
        print_paragraph(console, note)


def build_empty_table(left: Sequence[str], titles: Sequence[str]) -> Table:
    """Return a table without rows: columns of words with the titles `left`, and columns of numbers with `titles`."""
    result = open_table()
    for title in left:
        result.add_column(Text(title), no_wrap=True, overflow="ellipsis", vertical="bottom")
    for title in titles:
        result.add_column(Text(title), justify="right", no_wrap=True, vertical="bottom")
    return result


def _build_cells(columns: Sequence[Column], row: Row) -> list[Text]:
    return [Text(column.cell(row), style=_STYLES[column.mood(row)]) for column in columns]


def _choose_columns(columns: Sequence[Column], rows: Sequence[Row], room: int) -> list[Column]:
    """Return the columns that fit into `room` cells, the most needed first, in their order."""
    texts = [[column.title, *(column.cell(row) for row in rows)] for column in columns]
    return [columns[place] for place in choose_columns(texts, [column.keep for column in columns], room)]


def measure_widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _describe_hidden_columns(study: Study, console: Console) -> str | None:
    missing = len(select_columns(COLUMNS, study)) + 1 - len(build_totals_table(study, console.width).columns)
    if not missing:
        return None
    return f"{figures.format_plural(missing, 'more column')} in a wider terminal, with --html and --json."


def _list_headings(study: Study, console: Console) -> set[str]:
    return {str(column.header).replace("\n", " ") for column in build_totals_table(study, console.width).columns}


def _clip_start(text: str, cells: int) -> str:
    """`text`, or as much of its end as fits into `cells` cells: there paths differ."""
    if cell_len(text) <= cells:
        return text
    while cell_len(text) >= cells:
        text = text[max(1, (cell_len(text) - cells) // 2) :]
    return "…" + text


def _build_control_table(controls: Sequence[Control], width: int) -> Table:
    rows = [format_control(control) for control in controls]
    columns = list(zip(CONTROL_TITLES, *rows, strict=True))
    shown = choose_columns(columns[1:], _CONTROLS_KEEP, width - width_of(columns[0]) + GAP)
    result = build_empty_table([CONTROL_TITLES[0]], [])
    for place in shown:
        result.add_column(Text(CONTROL_TITLES[place + 1]), justify="right", no_wrap=True)
    for row in rows:
        result.add_row(Text(row[0]), *(Text(row[place + 1]) for place in shown))
    return result


def print_problems(problems: Sequence[Problem], console: Console) -> None:
    """Print what could not be read, if anything."""
    lines, more = wording.summarize_problems(problems)
    if not lines:
        return
    print_heading(console, f"{figures.format_plural(len(problems), 'problem')} while reading")
    for line in lines:
        print_paragraph(console, line, style="yellow")
    if more:
        print_paragraph(console, f"and {figures.format_count(more)} more")


def print_heading(console: Console, title: str) -> None:
    """Print `title` after an empty line."""
    console.print()
    console.print(Text(title, style="bold"))


def print_section(console: Console, title: str, content: RenderableType) -> None:
    """Print a heading and what follows it."""
    print_heading(console, title)
    console.print(content)
