"""A study in the terminal: totals per strategy, runs, controls, problems, and how to read the figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from elision.lab.report import figures, wording
from elision.lab.report.columns import COLUMNS, CONTROL_TITLES, HINDSIGHT, Column, control_cells, select_columns
from elision.lab.report.fitting import GAP, fitting
from elision.lab.report.fitting import width as width_of
from elision.lab.report.names import in_groups, run_names, short_strategies, spelled_out
from elision.lab.results import Control, Row, Study

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
_MARK = "▸ "
_NO_MARK = "  "

#: Of the controls' columns after the format: the higher, the longer it stays where room is short.
_CONTROLS_KEEP = (1, 4, 3, 2)

_STYLES = {"": "", "better": "green", "worse": "red"}


def show(study: Study, console: Console) -> None:
    """Print everything that a person needs to judge the study."""
    console.print(Text(wording.headline(study), style="bold"))
    console.print(Text(wording.scope(study), style="dim"))
    if study.rows:
        console.print(Text(wording.price_line(study.prices), style="dim"))
    missing = wording.interruption(study)
    if missing:
        console.print(Text(missing, style="yellow"))
    if not study.rows:
        _problems(study, console)
        return
    console.print()
    console.print(table(study, console.width))
    for text in (wording.recommendation(study), _hidden_columns(study, console), wording.no_hindsight(study)):
        if text:
            _paragraph(console, text)
    for name, label in spelled_out(study):
        _paragraph(console, f"{name}: {label}", style="dim")
    _runs(study, console)
    _controls(study, console)
    _problems(study, console)
    _how_to_read(study, console)


def show_next_steps(console: Console, page: Path | None) -> None:
    """Print what to do next. page: the report that was written as HTML."""
    _heading(console, "Next")
    steps = [Text("your own runs          elision replay my-run.json"), Text("in front of an agent   elision serve")]
    if page is not None:
        address = page.absolute().as_uri()
        link = Text(address, style=Style(color="cyan", bold=True, link=address))
        steps.insert(0, Text.assemble("charts and every run   ", link))
    for step in steps:
        # On one line whatever the width, so that a click opens the address and a copy is whole.
        console.print(Text.assemble("  ", step), soft_wrap=True)


def table(study: Study, width: int = WIDTH) -> Table:
    """Totals per strategy, in groups: as many columns as fit into `width` cells, no number ever broken or cut."""
    names = short_strategies(study.strategies)
    groups = in_groups(study.totals)
    marked = len(groups) > 1 or bool(study.recommended)
    indent = {row.strategy: _mark(row, study) if marked else "" for row in study.totals}
    labels = [indent[row.strategy] + names[row.strategy] for row in study.totals]
    columns = _columns_that_fit(
        select_columns(COLUMNS, study),
        study.totals,
        width - _widest(["strategy", *labels, *(name for name, _ in groups)]),
    )
    result = _empty_table(["strategy"], columns)
    for heading, rows in groups:
        if heading:
            result.add_row(Text(heading, style="italic"))
        for row in rows:
            if row.strategy == study.recommended:
                style = "bold"
            else:
                style = ""
            result.add_row(Text(indent[row.strategy] + names[row.strategy]), *_cells(columns, row), style=style)
    return result


def _mark(row: Row, study: Study) -> str:
    if row.strategy == study.recommended:
        return _MARK
    return _NO_MARK


def _runs(study: Study, console: Console) -> None:
    """Print the strategy that the headline names run by run, or where it does worst if there are many."""
    best = wording.featured(study)
    if best:
        rows = wording.worst_runs(study, best.strategy)
    else:
        rows = []
    if not best or not rows:
        return
    name = short_strategies(study.strategies)[best.strategy]
    title = f"{wording.capitalized(name)}, run by run"
    if len(rows) > _LISTED:
        title = f"{wording.capitalized(name)}: {_LISTED} of {figures.count(len(rows))} runs, highest cost vs raw first"
    _section(console, title, _run_table(study, rows[:_LISTED], console.width))


def _run_table(study: Study, rows: Sequence[Row], width: int) -> Table:
    names = run_names(study.rows)
    columns = _columns_that_fit(_run_columns(study, rows), rows, width - (_NAME if width >= _ROOMY else _LITTLE))
    room = width - sum(width_of([column.title, *(column.cell(row) for row in rows)]) for column in columns)
    result = _empty_table(["run"], columns)
    for row in rows:
        result.add_row(Text(_end(names[row.file, row.trajectory], room)), *_cells(columns, row))
    return result


def _run_columns(study: Study, rows: Sequence[Row]) -> list[Column]:
    """Return the columns of single runs: with the same kind of strategy at every turn, if it is compared."""
    by_heading = {column.heading: column for column in select_columns(COLUMNS, study)}
    kept = [by_heading[name] for name in ("cost", "vs raw", "facts still visible", HINDSIGHT) if name in by_heading]
    columns = [
        Column("calls", 96, lambda row: figures.count(row.calls)),
        Column("raw", 93, lambda row: figures.usd(row.raw_usd)),
        *kept[:2],
    ]
    rival = wording.every_turn_rival(study, rows[0])
    if rival is not None:
        beside = {(row.file, row.trajectory): row.to_raw for row in study.of(rival.strategy)}
        columns.append(Column("at every\nturn", 92, lambda row: figures.change(beside.get((row.file, row.trajectory)))))
    return [*columns, *kept[2:]]


def _controls(study: Study, console: Console) -> None:
    """Print how far the measure of visible facts can be trusted, where anything is known of that."""
    if wording.controlled(study):
        _section(console, "How far “facts still visible” can be trusted", _control_table(study.controls, console.width))
        _paragraph(console, wording.CONTROLS)


def _how_to_read(study: Study, console: Console) -> None:
    _heading(console, "How to read this")
    shown = {str(column.header).replace("\n", " ") for column in table(study, console.width).columns}
    for word, meaning in wording.glossary(study):
        if wording.COLUMN_OF[word] in shown or word == wording.HINDSIGHT:
            _paragraph(console, f"{word}: {meaning}.")
    for note in wording.notes(study):
        _paragraph(console, note)


def _empty_table(left: Sequence[str], columns: Sequence[Column]) -> Table:
    result = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False, header_style="bold")
    for title in left:
        result.add_column(Text(title), no_wrap=True, overflow="ellipsis", vertical="bottom")
    for column in columns:
        result.add_column(Text(column.title), justify="right", no_wrap=True, vertical="bottom")
    return result


def _cells(columns: Sequence[Column], row: Row) -> list[Text]:
    return [Text(column.cell(row), style=_STYLES[column.mood(row)]) for column in columns]


def _columns_that_fit(columns: Sequence[Column], rows: Sequence[Row], room: int) -> list[Column]:
    """Return the columns that fit into `room` cells, the most needed first, in their order."""
    texts = [[column.title, *(column.cell(row) for row in rows)] for column in columns]
    return [columns[place] for place in fitting(texts, [column.keep for column in columns], room)]


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _hidden_columns(study: Study, console: Console) -> str | None:
    missing = len(select_columns(COLUMNS, study)) + 1 - len(table(study, console.width).columns)
    if not missing:
        return None
    return f"{figures.plural(missing, 'more column')} in a wider terminal, with --html and --json."


def _end(text: str, cells: int) -> str:
    """`text`, or as much of its end as fits into `cells` cells: there paths differ."""
    if cell_len(text) <= cells:
        return text
    while cell_len(text) >= cells:
        text = text[max(1, (cell_len(text) - cells) // 2) :]
    return "…" + text


def _control_table(controls: Sequence[Control], width: int) -> Table:
    rows = [control_cells(control) for control in controls]
    columns = list(zip(CONTROL_TITLES, *rows, strict=True))
    shown = fitting(columns[1:], _CONTROLS_KEEP, width - width_of(columns[0]) + GAP)
    result = _empty_table([CONTROL_TITLES[0]], [])
    for place in shown:
        result.add_column(Text(CONTROL_TITLES[place + 1]), justify="right", no_wrap=True)
    for row in rows:
        result.add_row(Text(row[0]), *(Text(row[place + 1]) for place in shown))
    return result


def _problems(study: Study, console: Console) -> None:
    lines, more = wording.problems(study)
    if not lines:
        return
    _heading(console, f"{figures.plural(len(study.problems), 'problem')} while reading")
    for line in lines:
        _paragraph(console, line, style="yellow")
    if more:
        _paragraph(console, f"and {figures.count(more)} more")


def _heading(console: Console, title: str) -> None:
    console.print()
    console.print(Text(title, style="bold"))


def _section(console: Console, title: str, content: Table) -> None:
    _heading(console, title)
    console.print(content)


def _paragraph(console: Console, text: str, style: str = "") -> None:
    """Print `text`, in which nothing is markup."""
    console.print(Padding(Text(text, style=style), (0, 0, 0, 2), expand=False))
