"""What strategies pay against the best choice of what to hide, and when: a table in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elision.lab.report import figures
from elision.lab.report.fitting import open_table, print_paragraph
from elision.lab.report.names import shorten_strategies
from elision.lab.report.page_shell import build_row, build_table, escape_text, wrap_section, wrap_subtitle
from elision.lab.results import BEST_HIDING, Row, Study

TITLE = "Against the best choice of what to hide, and when"
TITLES = ("strategy", "cost", "recalls", "best", "bound", "× bound", "exact")
NOTE = (
    "recalls: what it would cost to recall the facts that were hidden and used. best: the cheapest choice that a search"
    " of the whole run found, recalls included. bound: no choice costs less. × bound: cost and recalls. exact: runs"
    " where best and bound agree. Both let the cache read any prefix; the yardstick's row above has the plan's bill."
)


def print_hiding(study: Study, console: Console) -> None:
    """Print a row for each strategy of which the best hiding was asked for; nothing if there is none."""
    rows = list(list_cells(study))
    if not rows:
        return
    console.print()
    console.print(Text(TITLE, style="bold"))
    console.print(build_hiding_table(rows))
    print_paragraph(console, NOTE)


def build_hiding_table(rows: list[tuple[str, ...]]) -> Table:
    """Return the table of the cells `rows`."""
    table = open_table()
    table.add_column(Text(TITLES[0]), no_wrap=True)
    for title in TITLES[1:]:
        table.add_column(Text(title), justify="right", no_wrap=True)
    for cells in rows:
        table.add_row(*map(Text, cells))
    return table


def show_hiding(study: Study) -> str:
    """Return the same as a section of the page; "" if there is none."""
    rows = list(list_cells(study))
    if not rows:
        return ""
    body = [build_row(cells) for cells in rows]
    return wrap_section("", TITLE, wrap_subtitle(NOTE), build_table(map(escape_text, TITLES), body))


def list_cells(study: Study) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each row: of the strategies whose best hiding was worked out for every run."""
    names = shorten_strategies(study.strategies)
    for row in study.totals:
        if row.hiding is not None:
            yield (names[row.strategy].removesuffix(f", {BEST_HIDING}"), *_format_row(row))


def _format_row(row: Row) -> tuple[str, ...]:
    found = row.hiding
    assert found is not None
    return (
        figures.format_usd(found.usd),
        figures.format_usd(found.recall_usd),
        figures.format_usd(found.best_usd),
        figures.format_usd(found.bound_usd),
        figures.format_multiple(found.to_bound),
        f"{found.exact_runs}/{row.runs}",
    )
