"""A study in the terminal: totals per strategy, worst runs, controls, what could not be read, and how to take it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from elision.lab.report import figures, wording
from elision.lab.report.columns import COLUMNS, CONTROL_TITLES, WORST, Column, control_cells, select_columns
from elision.lab.report.fitting import GAP, fitting
from elision.lab.report.fitting import width as width_of
from elision.lab.report.names import run_names, short_strategies, spelled_out
from elision.lab.results import Control, Row, Study

#: Columns of a terminal for which a table is made if nobody says otherwise.
WIDTH = 140
#: Cells of a run's name that are shown where there is room, and where there is not.
_NAME = 28
_LITTLE = 14
#: Columns of a terminal that leave room.
_ROOMY = 80

#: Of the controls' columns behind the format: the higher, the longer it stays where room is short.
_CONTROLS_KEEP = (1, 4, 3, 2)

_STYLES = {"": "", "better": "green", "worse": "red"}


def show(study: Study, console: Console) -> None:
    """Print everything that a person needs to judge the study."""
    console.print(Text(wording.headline(study), style="bold"))
    console.print(Text(wording.scope(study), style="dim"))
    missing = wording.interruption(study)
    if missing:
        console.print(Text(missing, style="yellow"))
    if not study.rows:
        _problems(study, console)
        return
    console.print(table(study, console.width))
    _hint(study, console)
    _no_hindsight(study, console)
    _legend(study, console)
    _worst_runs(study, console)
    _trust(study, console)
    _problems(study, console)
    _heading(console, "How to read this")
    for word, meaning in wording.glossary(study):
        _paragraph(console, f"{word}: {meaning}.")
    for note in wording.notes(study):
        _paragraph(console, note)


def table(study: Study, width: int = WIDTH) -> Table:
    """Totals per strategy: as many columns as fit into `width` cells, no number ever broken or cut."""
    rows = study.totals
    names = short_strategies(study.strategies)
    columns = _fitting(select_columns(COLUMNS, study), rows, width - _widest(["strategy", *names.values()]))
    result = _table(["strategy"], columns)
    for row in rows:
        result.add_row(Text(names[row.strategy]), *_cells(columns, row))
    return result


def _worst_runs(study: Study, console: Console) -> None:
    rows = wording.worst(study)
    if rows:
        _section(console, "Worst runs", _worst(study, rows, console.width))


def _trust(study: Study, console: Console) -> None:
    """How far the evidence measure can be trusted."""
    if not study.controls:
        return
    title = "Controls of the evidence measure"
    if wording.controlled(study):
        _section(console, title, _controls(study.controls, console.width))
        _paragraph(console, wording.CONTROLS)
    else:
        _heading(console, title)
        _paragraph(console, wording.NO_CONTROLS)


def _no_hindsight(study: Study, console: Console) -> None:
    said = wording.no_hindsight(study)
    if said:
        _paragraph(console, said, style="dim")


def _worst(study: Study, rows: Sequence[Row], width: int) -> Table:
    names = short_strategies(study.strategies)
    runs = run_names(study.rows)
    room = width - _widest(["strategy", *(names[row.strategy] for row in rows)]) - GAP
    columns = _fitting(select_columns(WORST, study), rows, room - (_NAME if width >= _ROOMY else _LITTLE))
    room -= sum(width_of([column.title, *(column.cell(row) for row in rows)]) for column in columns)
    result = _table(["strategy"], columns, ["run"])
    for row in rows:
        name = _end(runs[row.file, row.trajectory], room)
        result.add_row(Text(names[row.strategy]), *_cells(columns, row), Text(name))
    return result


def _table(left: Sequence[str], columns: Sequence[Column], right: Sequence[str] = ()) -> Table:
    result = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False, header_style="bold")
    for title in left:
        result.add_column(Text(title), no_wrap=True, overflow="ellipsis", vertical="bottom")
    for column in columns:
        result.add_column(Text(column.title), justify="right", no_wrap=True, vertical="bottom")
    for title in right:
        result.add_column(Text(title), no_wrap=True, overflow="ellipsis", vertical="bottom")
    return result


def _cells(columns: Sequence[Column], row: Row) -> list[Text]:
    return [Text(column.cell(row), style=_STYLES[column.mood(row)]) for column in columns]


def _fitting(columns: Sequence[Column], rows: Sequence[Row], room: int) -> list[Column]:
    """The columns that fit into `room` cells, the most needed first, in their order."""
    texts = [[column.title, *(column.cell(row) for row in rows)] for column in columns]
    return [columns[place] for place in fitting(texts, [column.keep for column in columns], room)]


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)


def _hint(study: Study, console: Console) -> None:
    missing = len(select_columns(COLUMNS, study)) + 1 - len(table(study, console.width).columns)
    if missing:
        said = f"{figures.plural(missing, 'column')} more in a wider terminal; everything with --html or --json."
        _paragraph(console, said, style="dim")


def _legend(study: Study, console: Console) -> None:
    for name, label in spelled_out(study):
        _paragraph(console, f"{name}: {label}", style="dim")


def _end(text: str, cells: int) -> str:
    """`text`, or as much of its end as fits into `cells` cells: there paths differ."""
    if cell_len(text) <= cells:
        return text
    while cell_len(text) >= cells:
        text = text[max(1, (cell_len(text) - cells) // 2) :]
    return "…" + text


def _controls(controls: Sequence[Control], width: int) -> Table:
    rows = [control_cells(control) for control in controls]
    columns = list(zip(CONTROL_TITLES, *rows, strict=True))
    shown = fitting(columns[1:], _CONTROLS_KEEP, width - width_of(columns[0]) + GAP)
    result = _table([CONTROL_TITLES[0]], [])
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
    """As Text, so that nothing in it is markup."""
    console.print(Padding(Text(text, style=style), (0, 0, 0, 2), expand=False))
