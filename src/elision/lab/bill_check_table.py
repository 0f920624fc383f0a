"""Runs as recorded beside their bills, for the terminal: how far they are off, and why, a sentence each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from rich.console import Console

from elision.lab.bill_check import NEAR_RUN, NEAR_TOTAL, BillCheck, BillChecks
from elision.lab.report.figures import format_change, format_count, format_plural, format_share, format_usd
from elision.lab.report.fitting import print_paragraph, print_text
from elision.lab.report.names import neutralize_text
from elision.lab.report.sent_wording import list_missing_bills


def print_checks(checks: BillChecks, console: Console) -> None:
    """Print what `checks` found."""
    console.print()
    print_text(console, "As recorded, which is what replays compare with, against the bill", "bold")
    for line in list_check_lines(checks):
        print_paragraph(console, line)


def list_check_lines(checks: BillChecks) -> Iterator[str]:
    """Yield the total, each exception with its cause, and the runs without a bill."""
    difference = checks.difference
    if difference is not None:
        near = sum(abs(check.difference or 0.0) <= NEAR_RUN for check in checks.compared)
        yield (
            f"{format_usd(checks.recorded_usd)} as recorded, {format_usd(checks.billed_usd)} as billed "
            f"({format_change(1 + difference)}); within {format_share(NEAR_RUN)} on {format_count(near)} of "
            f"{format_plural(len(checks.compared), 'run')}."
        )
        main = checks.find_main_run()
        if main is not None:
            share = format_change(1 + (main.difference or 0.0))
            why = neutralize_text(main.cause)
            yield f"That is over {format_share(NEAR_TOTAL)}. Most of it is of {_name_run(main)}, {share}: {why}"
    for check in checks.compared:
        for reason in check.reasons:
            yield f"{_name_run(check)}: {neutralize_text(reason)}"
    missing = "; ".join(list_missing_bills(checks.sending))
    if missing:
        yield f"No bill to compare with: {missing}."


def _name_run(check: BillCheck) -> str:
    name = PurePath(check.file).name
    is_alone = check.trajectory in ("main", "") or check.trajectory in name
    return neutralize_text(name if is_alone else f"{name} {check.trajectory}")
