"""An audit for the terminal: the causes, the most expensive calls, each format, what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elision.audit.audit_report import AuditReport, compare_bills
from elision.audit.audit_wording import (
    READER_TITLES,
    describe_finding,
    describe_recorded_bill,
    describe_saving,
    format_difference,
    list_audit_notes,
    list_reader_cells,
    list_saving_rows,
    name_finding,
    name_run,
    suggest_command,
    write_audit_headline,
)
from elision.audit.cause_table import CAUSES
from elision.lab.ratios import divide_or_none
from elision.lab.report import wording
from elision.lab.report.figures import NOTHING, format_count, format_plural, format_share, format_usd
from elision.lab.report.fitting import open_table, print_paragraph, print_text
from elision.lab.report.terminal import print_summary_tables

#: Calls that are listed.
SHOWN_CALLS: Final = 5
#: Columns of a terminal from which on the table of formats has its last column.
WIDE: Final = 96
#: Columns that the figures of a run take beside its name.
_FIGURES: Final = 62


def print_audit(report: AuditReport, console: Console, paths: Sequence[Path], *, detail: bool = False) -> None:
    """Print the whole of `report`. paths: what was audited. detail: a line for each run too."""
    print_text(console, write_audit_headline(report), "bold")
    if not report.finished:
        print_text(console, "Interrupted: only the runs read so far are counted.", "yellow")
    if report.causes:
        console.print()
        console.print(_build_cause_table(report))
        console.print()
        print_text(console, describe_recorded_bill(report))
        _print_findings(report, console)
        if len(report.list_readers()) > 1:
            console.print()
            console.print(_build_reader_table(report, console.width))
        print_summary_tables(report.tables, console)
        if detail:
            console.print()
            console.print(_build_run_table(report, console.width))
        console.print()
    for note in list_audit_notes(report):
        print_text(console, note, "dim")
    _print_problems(report, console)
    _print_next_step(report, console, paths)


def _build_cause_table(report: AuditReport) -> Table:
    table = open_table()
    table.add_column("cause", no_wrap=True)
    for title in ("USD", "share", "avoidable", "calls"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("what to do")
    for cause, total in report.causes.items():
        text = CAUSES[cause]
        table.add_row(
            text.title,
            format_usd(total.usd),
            format_share(divide_or_none(total.usd, report.usd)),
            format_usd(total.avoidable_usd) if total.avoidable_usd else NOTHING,
            format_count(total.calls),
            Text(text.remedy if total.avoidable_usd else "", style="dim"),
        )
    table.add_row("all", format_usd(report.usd), "100 %", format_usd(report.avoidable_usd), "", style="bold")
    return table


def _print_findings(report: AuditReport, console: Console) -> None:
    shown = report.findings[:SHOWN_CALLS]
    if not shown:
        return
    console.print()
    print_text(console, "Calls at which old text was paid for again, the most expensive first", "bold")
    for finding in shown:
        print_text(console, f"{format_usd(finding.usd)}  {name_finding(finding)}")
        print_paragraph(console, describe_finding(finding), "dim")
    if len(report.findings) > len(shown):
        rest = format_plural(len(report.findings) - len(shown), "more call")
        print_text(console, f"{rest}; --json and --html list the first fifty.", "dim")


def _build_reader_table(report: AuditReport, width: int) -> Table:
    """Build the table of formats; the last column is left out where the terminal is narrow."""
    shown = len(READER_TITLES) if width >= WIDE else len(READER_TITLES) - 1
    table = open_table()
    table.add_column("format", no_wrap=True)
    for title in READER_TITLES[:shown]:
        table.add_column(title, justify="left" if title == READER_TITLES[-1] else "right", no_wrap=True)
    for reader, runs in report.list_readers():
        table.add_row(reader, *list_reader_cells(runs)[:shown])
    return table


def _build_run_table(report: AuditReport, width: int) -> Table:
    """Build the table of the runs with a bill; the largest cause among those that could be avoided is named."""
    table = open_table()
    table.add_column("run", no_wrap=True)
    for title in ("calls", "USD", "difference", "avoidable"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("most of it", no_wrap=True)
    for run in report.runs:
        if not (run.calls and run.file):
            continue
        difference = compare_bills(run.stated_usd, run.stated_list_usd)
        avoidable = {cause: total.avoidable_usd for cause, total in run.causes.items() if total.avoidable_usd}
        largest = max(avoidable, key=lambda cause: avoidable[cause], default=None)
        name = name_run(run.file, run.trajectory)
        if len(name) > width - _FIGURES:
            # Names of runs differ at their ends.
            name = f"…{name[_FIGURES + 1 - width :]}"
        table.add_row(
            Text(name),
            format_count(run.calls),
            format_usd(run.usd),
            NOTHING if difference is None else format_difference(difference),
            format_share(divide_or_none(sum(avoidable.values()), run.usd)),
            NOTHING if largest is None else CAUSES[largest].title,
        )
    return table


def _print_problems(report: AuditReport, console: Console) -> None:
    if not report.problems:
        return
    lines, more = wording.summarize_problems(report.problems)
    console.print()
    print_text(
        console, f"{format_plural(len(report.problems), 'problem')} while reading; the rest was audited", "yellow"
    )
    for line in lines:
        print_paragraph(console, line)
    if more:
        print_paragraph(console, f"and {format_count(more)} more")


def _print_next_step(report: AuditReport, console: Console, paths: Sequence[Path]) -> None:
    saving = describe_saving(report)
    command = suggest_command(report, paths) if report.causes else ""
    if saving or command:
        console.print()
    print_text(console, saving, "bold")
    if report.saving is not None and saving:
        table = open_table()
        table.add_column("the same runs", no_wrap=True)
        for title in ("USD", "vs recorded"):
            table.add_column(title, justify="right", no_wrap=True)
        for row in list_saving_rows(report.saving):
            table.add_row(*row)
        console.print(table)
    if command:
        # Not wrapped: a command is copied whole.
        console.print(Text(f"Next: {command}"), soft_wrap=True)
