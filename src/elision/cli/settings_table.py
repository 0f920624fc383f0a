"""`elision doctor --settings`: every setting in force, and where it is from."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elision.cli.console import open_console, open_notes
from elision.cli.outputs import print_json
from elision.config import SettingEntry, Settings, load_settings
from elision.config.effective_settings import NOWHERE
from elision.lab.elongation import warn_of_window
from elision.lab.report.terminal import open_table, print_text
from elision.trajectory.control_characters import escape_controls

#: Columns from which on there is room for what each setting means.
WIDE: Final = 160
_LEGEND: Final = (
    "In the environment: ELISION_NAME or AGENT_CONTEXT_NAME. In elision.toml or [tool.elision]: name; gateway_name is "
    "name in the table [gateway]."
)


def show_settings(*, everything: bool, as_json: bool, quiet: bool) -> None:
    """Print the settings in force. everything: those that have their default, too. quiet: without notes."""
    found = load_settings()
    warning = warn_of_window(found.preset, getattr(found.strategy, "window", None))
    if as_json:
        print_json("doctor --settings", encode_settings(found) | {"warning": warning})
        return
    console = open_console()
    print_settings(found, console, everything=everything, wide=console.width >= WIDE)
    notes = open_notes(quiet)
    if warning is not None:
        print_text(notes, warning, "yellow")
    print_text(notes, _LEGEND, "dim")


def print_settings(found: Settings, console: Console, *, everything: bool, wide: bool = False) -> None:
    """Print the table of settings and who writes summaries; without `everything` only the settings that somebody set.

    wide: the meaning of each, too.
    """
    entries = found.entries
    if not everything:
        entries = tuple(entry for entry in entries if entry.place not in (NOWHERE, ""))
    if entries:
        console.print(build_table(entries, wide=wide))
        console.print()
    defaults = len(found.entries) - len(entries)
    if defaults:
        subject = f"{defaults} settings are at their defaults" if entries else "All settings are at their defaults"
        print_text(console, f"{subject}; elision doctor --settings --all lists them.", "dim")
    for entry in found.entries:
        if entry.note:
            print_text(console, f"{entry.key.name}: {entry.note}", "yellow")
    print_text(console, f"Summaries: {escape_controls(found.describe_summarizer())}", "dim")


def build_table(entries: Sequence[SettingEntry], *, wide: bool) -> Table:
    """Return the table of `entries`: each setting, its value and its place; wide: its meaning too."""
    shown = open_table()
    shown.add_column("setting", no_wrap=True)
    # A long address is folded, so that the place of each setting stays on its line.
    shown.add_column("value", overflow="fold", min_width=16)
    shown.add_column("from", overflow="fold")
    if wide:
        shown.add_column("meaning", style="dim")
    for _, group in groupby(entries, key=lambda entry: entry.key.group):
        shown.add_section()
        for entry in group:
            # What somebody set stands out; what the strategy has not is a dash.
            style = "dim" if entry.place in (NOWHERE, "") else "bold"
            cells = (entry.key.name, entry.value or "–", entry.place)
            shown.add_row(*(Text(cell, style=style) for cell in cells), *([Text(entry.key.meaning)] if wide else []))
    return shown


def encode_settings(found: Settings) -> dict[str, object]:
    """Return every setting as JSON, with its variable and where its value is from."""
    return {
        "summaries": found.describe_summarizer(),
        "settings": [
            {
                "name": entry.key.name,
                "variable": entry.key.variable,
                "value": entry.value or None,
                "from": entry.place or None,
                "note": entry.note,
            }
            for entry in found.entries
        ],
    }
