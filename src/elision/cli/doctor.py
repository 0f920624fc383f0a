"""`elision doctor`: whether agents on this machine reach a gateway, and what to do where they do not."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Final

import typer

from elision.config import load_settings

if TYPE_CHECKING:
    from rich.table import Table

    from elision.wrap.findings import SetupFinding

#: Shape of what --json prints.
SCHEMA: Final = "elision.doctor/1"
_COLOURS: Final = {"ok": "green", "note": "yellow", "failed": "bold red"}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (elision.doctor/1), no table.")] = False,
) -> None:
    """Check what is installed, set and answering: whether agents reach the gateway, each finding with its mend.

    No provider is asked, nothing is written, and no value of a variable is printed. The exit code is 1 if something
    that is set cannot work.
    """
    # Slow to import, and help needs none of it.
    from elision.cli.console import open_console
    from elision.wrap.findings import collect_findings

    findings = collect_findings(load_settings(), os.environ)
    if as_json:
        typer.echo(json.dumps({"format": SCHEMA, "findings": [asdict(each) for each in findings]}, indent=1))
    else:
        open_console().print(_build_table(findings))
    if any(each.status == "failed" for each in findings):
        raise typer.Exit(1)


def _build_table(findings: list[SetupFinding]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    from elision.cli.view_text import escape_controls

    table = Table(box=SIMPLE_HEAD, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False)
    table.add_column("looked at", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("found", overflow="fold")
    for each in findings:
        text = Text(escape_controls(each.message))
        if each.mend:
            text.append(f"\n→ {escape_controls(each.mend)}", style="dim")
        table.add_row(each.subject, Text(each.status, style=_COLOURS[each.status]), text)
    return table
