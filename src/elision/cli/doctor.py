"""`elision doctor`: whether agents on this machine reach a gateway, the settings in force, and what models cost."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import click

from elision.cli.declarations import Option
from elision.cli.options import Output
from elision.errors import SettingError

if TYPE_CHECKING:
    from elision.lab.report.report import Table
    from elision.wrap.findings import SetupFinding

_MOODS: Final = {"ok": "better", "note": "warning", "failed": "worse"}


def doctor(
    *,
    settings: Annotated[
        bool, Option("--settings", help="Show the current settings and their sources instead of the checks.")
    ] = False,
    everything: Annotated[bool, Option("--all", help="With --settings: include defaults.")] = False,
    prices: Annotated[
        str | None,
        Option(
            "--prices", help="List the prices of models, or the details of one model or price set.", without_value=""
        ),
    ] = None,
    output: Output,
) -> None:
    """Check whether agents on this machine reach the gateway, and show how to fix what does not work.

    It contacts no provider, writes nothing, and prints no value of a variable. The exit code is 1 if something that you
    set cannot work.
    """
    if settings and prices is not None:
        raise SettingError("--settings and --prices contradict each other; give one")
    if everything and not settings:
        raise SettingError("--all belongs to --settings")
    if settings:
        from elision.cli.doctor_reports import show_settings

        show_settings(output, everything=everything)
        return
    if prices is not None:
        from elision.cli.doctor_reports import build_prices_report

        output.show(build_prices_report(prices, has_notes=not output.quiet))
        return
    # Slow to import, and help needs none of it.
    from elision.config import load_settings
    from elision.wrap.findings import collect_findings

    findings = collect_findings(load_settings(), os.environ)
    table = _build_table([each for each in findings if not output.quiet or each.status != "ok"])
    output.answer("doctor", {"findings": [asdict(each) for each in findings]}, table)
    if any(each.status == "failed" for each in findings):
        raise click.exceptions.Exit(1)


def _build_table(findings: list[SetupFinding]) -> Table:
    from elision.lab.report.report import Column, Table, TableRow, Words
    from elision.trajectory.foreign_text import escape_controls

    columns = [Column("looked at"), Column("", 2, "left"), Column("found", 1, "wrap")]
    rows = []
    for each in findings:
        fix = f"\n→ {escape_controls(each.fix)}" if each.fix else ""
        found: Words = [escape_controls(each.message), (fix, "quiet")]
        rows.append(TableRow([each.subject, [(each.status, _MOODS[each.status])], found]))
    return Table(columns, rows)
