"""What cache lifetimes cost, as a table in the terminal and on the page."""

from __future__ import annotations

from typing import Final

from rich.console import Console
from rich.text import Text

from elision.lab.lifetime_study import PINGS, LifetimeCosts
from elision.lab.report import figures
from elision.lab.report.fitting import open_table, print_paragraph
from elision.lab.report.lifetime_wording import has_lifetimes
from elision.lab.report.names import shorten_strategies
from elision.lab.report.page_shell import build_row, build_table, wrap_section, wrap_subtitle
from elision.lab.results import Study

TITLE: Final = "What expired cache entries cost"
NOTE: Final = (
    "never cold: if no cache entry ever expired, which nothing can reach. saved: of what expired entries cost. "
    "hindsight: the best choice for each pause, with all pauses known. Pings after the last call are counted."
)
NO_CHOICE: Final = "Nothing to choose: at these prices cache entries have one lifetime."
NOTHING_EXPIRED: Final = "Nothing: no pause of these runs outlasts an entry, or their times are not known."
HEADINGS: Final = ("strategy", "cache entries live", "cost", "saved")


def print_lifetimes(study: Study, console: Console) -> None:
    """Print a row for each strategy and choice; nothing where none were compared."""
    if not study.lifetimes:
        return
    console.print()
    console.print(Text(TITLE, style="bold"))
    rows = list_rows(study)
    if not rows:
        print_paragraph(console, _explain_missing_rows(study))
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


def build_section(study: Study) -> str:
    """Return the same as a section of the page; "" where nothing was compared."""
    if not study.lifetimes:
        return ""
    rows = list_rows(study)
    if not rows:
        return wrap_section("", TITLE, wrap_subtitle(_explain_missing_rows(study)))
    # A column for each choice: with a row for each the page would be long.
    choices = list(dict.fromkeys(choice for _, choice, _, _ in rows))
    cells = {(label, choice): f"{usd} ({share})" for label, choice, usd, share in rows}
    table = build_table(
        [HEADINGS[0], *choices],
        [
            build_row([cells[label, choice] for choice in choices], label)
            for label in dict.fromkeys(row[0] for row in rows)
        ],
    )
    text = f"Cost by how long cache entries live, and in brackets what that saves. {NOTE}"
    return wrap_section("", TITLE, wrap_subtitle(text), table)


def _explain_missing_rows(study: Study) -> str:
    return NOTHING_EXPIRED if has_lifetimes(study) else NO_CHOICE


def list_rows(study: Study) -> list[tuple[str, str, str, str]]:
    """Return the cells of a row for each strategy and choice; none where nothing expired, or nothing is chosen."""
    costs = study.lifetimes
    if not has_lifetimes(study) or all(each.compute_share(0.0) is None for each in costs.values()):
        return []
    names = shorten_strategies(tuple(costs))
    return [
        (names[label], choice, figures.format_usd(usd), format_share(each.compute_share(usd)))
        for label, each in costs.items()
        for choice, usd in list_choices(each, study.lifetime.most_pings or PINGS)
    ]


def list_choices(costs: LifetimeCosts, pings: int = PINGS) -> tuple[tuple[str, float], ...]:
    """Return every choice with what it costs, in USD."""
    return (
        ("5 minutes", costs.five_minutes),
        ("1 hour", costs.hour),
        ("as planned", costs.planned),
        (f"as planned, at most {figures.format_plural(pings, 'ping')}", costs.pinged),
        ("hindsight", costs.hindsight),
        ("never cold", costs.never_cold),
    )


def format_share(share: float | None) -> str:
    """Return a share of what expired entries cost, in percent."""
    if share is None:
        return "–"
    return f"{round(100 * share)} %".replace("-", "−")
