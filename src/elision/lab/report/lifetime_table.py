"""What cache lifetimes cost, as a table in the terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elision.lab.lifetime_study import PINGS, LifetimeCosts
from elision.lab.report import figures
from elision.lab.report.fitting import open_table, print_paragraph

NOTE = (
    "never cold: if no cache entry ever expired, which nothing can reach. saved: of what expired entries cost. "
    "hindsight: the best choice for each pause, by who knows them all. Pings after the last call are counted."
)


def print_lifetimes(costs: Mapping[str, LifetimeCosts], console: Console) -> None:
    """Print a row for each strategy. costs: by its name."""
    console.print()
    console.print(Text("What expired cache entries cost", style="bold"))
    if all(each.compute_share(0.0) is None for each in costs.values()):
        print_paragraph(console, "Nothing: no pause of these runs outlasts an entry, or their times are not known.")
        return
    console.print(build_lifetime_table(costs))
    print_paragraph(console, NOTE)


def build_lifetime_table(costs: Mapping[str, LifetimeCosts]) -> Table:
    """Return the table, with a row for each choice. costs: by strategy."""
    table = open_table()
    table.add_column(Text("strategy"), no_wrap=True)
    table.add_column(Text("cache entries live"), no_wrap=True)
    table.add_column(Text("cost"), justify="right", no_wrap=True)
    table.add_column(Text("saved"), justify="right", no_wrap=True)
    for label, each in costs.items():
        name = label
        for choice, usd in list_choices(each):
            share = format_share(each.compute_share(usd))
            table.add_row(Text(name), Text(choice), Text(figures.format_usd(usd)), Text(share))
            name = ""
    return table


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
