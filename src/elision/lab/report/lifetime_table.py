"""What cache lifetimes cost, as a table in the terminal and on the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rich.console import Console
from rich.text import Text

from elision.lab.lifetime_study import PINGS, LifetimeCosts
from elision.lab.report import figures
from elision.lab.report.fitting import open_table, print_paragraph
from elision.lab.report.names import shorten_strategies
from elision.lab.report.page_shell import build_row, build_table, wrap_section, wrap_subtitle

TITLE: Final = "What expired cache entries cost"
NOTE: Final = (
    "never cold: if no cache entry ever expired, which nothing can reach. saved: of what expired entries cost. "
    "hindsight: the best choice for each pause, by who knows them all. Pings after the last call are counted."
)
NOTHING_EXPIRED: Final = "Nothing: no pause of these runs outlasts an entry, or their times are not known."
HEADINGS: Final = ("strategy", "cache entries live", "cost", "saved")


def print_lifetimes(costs: Mapping[str, LifetimeCosts], console: Console) -> None:
    """Print a row for each strategy and choice. costs: by strategy."""
    console.print()
    console.print(Text(TITLE, style="bold"))
    rows = list_rows(costs)
    if not rows:
        print_paragraph(console, NOTHING_EXPIRED)
        return
    table = open_table()
    for heading in HEADINGS[:2]:
        table.add_column(Text(heading), no_wrap=True)
    for heading in HEADINGS[2:]:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    before = ""
    for label, *cells in rows:
        table.add_row(*map(Text, (label if label != before else "", *cells)))
        before = label
    console.print(table)
    print_paragraph(console, NOTE)


def build_section(costs: Mapping[str, LifetimeCosts]) -> str:
    """Return the same as a section of the page; "" where nothing was compared."""
    if not costs:
        return ""
    rows = list_rows(costs)
    if not rows:
        return wrap_section("", TITLE, wrap_subtitle(NOTHING_EXPIRED))
    return wrap_section("", TITLE, wrap_subtitle(NOTE), build_table(HEADINGS, map(build_row, rows)))


def list_rows(costs: Mapping[str, LifetimeCosts]) -> list[tuple[str, str, str, str]]:
    """Return the cells of a row for each strategy and choice; none where nothing expired. costs: by strategy."""
    if all(each.compute_share(0.0) is None for each in costs.values()):
        return []
    names = shorten_strategies(tuple(costs))
    return [
        (names[label], choice, figures.format_usd(usd), format_share(each.compute_share(usd)))
        for label, each in costs.items()
        for choice, usd in list_choices(each)
    ]


def list_choices(costs: LifetimeCosts) -> tuple[tuple[str, float], ...]:
    """Return every choice with what it costs, in USD."""
    return (
        ("5 minutes", costs.five_minutes),
        ("1 hour", costs.hour),
        ("as planned", costs.planned),
        (f"as planned, at most {PINGS} pings", costs.pinged),
        ("hindsight", costs.hindsight),
        ("never cold", costs.never_cold),
    )


def format_share(share: float | None) -> str:
    """Return a share of what expired entries cost, in percent."""
    if share is None:
        return "–"
    return f"{round(100 * share)} %".replace("-", "−")
