"""A tuning in the terminal: references, the frontier on both parts, what is recommended and how to use it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from elision.lab.report import tuning_wording, wording
from elision.lab.report.fitting import choose_columns, measure_column, print_paragraph, print_text
from elision.lab.report.sent_wording import label_sent_rows
from elision.lab.report.settings_file import describe_fully
from elision.lab.report.terminal import (
    MARK,
    NO_MARK,
    build_empty_table,
    measure_widest,
    print_heading,
    print_problems,
    print_section,
)
from elision.lab.tuning.tuning_result import TunedPoint, Tuning

#: Headings of the figures, those of the fit part first; and which stay the longest (highest) where room is short.
TITLES = (
    "fit: vs\nrecorded",
    "fit:\nfacts",
    "fit:\nmissing",
    "judge: vs\nrecorded",
    "judge:\nfacts",
    "judge:\nmissing",
)
_KEEP = (6, 5, 2, 4, 3, 1)
#: Cells of a name that are shown however narrow the terminal.
_SHORTEST = 26


def print_tuning(tuning: Tuning, console: Console) -> None:
    """Print everything that a person needs to choose a point."""
    print_text(console, tuning_wording.write_headline(tuning), "bold")
    print_text(console, tuning_wording.describe_scope(tuning), "dim")
    print_text(console, wording.describe_prices(tuning.prices), "dim")
    print_text(console, tuning_wording.describe_study(tuning), "yellow")
    print_text(console, tuning_wording.describe_interruption(tuning), "yellow")
    console.print()
    console.print(build_points_table(tuning, console.width))
    print_paragraph(console, tuning_wording.describe_choice(tuning))
    print_paragraph(console, tuning_wording.describe_sent(tuning))
    print_paragraph(console, tuning_wording.write_verdict(tuning), style="bold" if tuning.is_confirmed() else "yellow")
    print_paragraph(console, tuning_wording.describe_excess(tuning), style="yellow")
    print_paragraph(console, tuning_wording.describe_break_even(tuning))
    print_paragraph(console, tuning_wording.describe_rule_of_thumb(tuning))
    _print_texts(tuning, console)
    _print_tools(tuning, console)
    print_problems(tuning.problems, console)
    print_heading(console, "How to read this")
    for note in tuning_wording.list_notes(tuning):
        print_paragraph(console, note)


def build_points_table(tuning: Tuning, width: int) -> Table:
    """Return the references and the frontier, each on both parts, in `width` cells."""
    listed = tuning_wording.choose_listed(tuning)
    names = tuning_wording.list_reference_names(tuning.references)
    head = "frontier, cheapest first"
    if len(listed) < len(tuning.frontier):
        head += f" ({len(listed)} of {len(tuning.frontier)})"
    groups = [("beside it", list(tuning.references), names), (head, listed, number_points(listed))]
    rows = [(heading, point, labels[point.text]) for heading, points, labels in groups for point in points]
    cells = [
        (*tuning_wording.format_cells(point.fit), *tuning_wording.format_cells(point.judge)) for _, point, _ in rows
    ]
    happened_names = label_sent_rows(tuning.sending)
    labels = [(MARK if point.text == tuning.recommended else NO_MARK) + label for _, point, label in rows]
    happened = [
        (*tuning_wording.format_cells(each.fit), *tuning_wording.format_cells(each.judge)) for each in tuning.sent
    ]
    cells += happened
    columns = [[title, *(row[place] for row in cells)] for place, title in enumerate(TITLES)]
    widest = measure_widest([*labels, *(NO_MARK + happened_names[each.name] for each in tuning.sent)])
    shown = choose_columns(columns, _KEEP, width - min(widest, _SHORTEST))
    table = build_empty_table(["strategy"], [TITLES[place] for place in shown])
    # The names give way, never a figure.
    room = width - sum(measure_column(columns[place]) for place in shown)
    table.columns[0].max_width = max(_SHORTEST, min(widest, room))
    for each, figures_of in zip(tuning.sent, happened, strict=True):
        table.add_row(Text(NO_MARK + happened_names[each.name]), *(Text(figures_of[place]) for place in shown))
    before = None
    for (heading, point, _), label, row in zip(rows, labels, cells[: len(rows)], strict=True):
        if heading != before:
            table.add_row(Text(heading, style="italic"))
            before = heading
        style = "bold" if point.text == tuning.recommended else ""
        table.add_row(Text(label), *(Text(row[place]) for place in shown), style=style)
    return table


def number_points(points: Sequence[TunedPoint]) -> dict[str, str]:
    """Return, by strategy text, the number and short name of each point of the frontier."""
    return {
        point.text: f"{number:2}  {tuning_wording.describe_point(point.text)}"
        for number, point in enumerate(points, start=1)
    }


def _print_texts(tuning: Tuning, console: Console) -> None:
    """Print the strategies in full, for -s and for settings."""
    print_heading(console, "In full")
    for number, point in enumerate(tuning_wording.choose_listed(tuning), start=1):
        mark = MARK if point.text == tuning.recommended else NO_MARK
        # On one line whatever the width, so that a copy is whole.
        console.print(Text(f"{mark}{number:2}  {describe_fully(point.text)}"), soft_wrap=True)


def _print_tools(tuning: Tuning, console: Console) -> None:
    shares = tuning_wording.list_tool_shares(tuning)
    if not shares:
        return
    table = build_empty_table(["tool"], ["hidden\ntokens", "facts\nmissed", "rule tried:\nvisible for"])
    for cells in shares:
        table.add_row(*map(Text, cells))
    print_section(console, "What masking by age hides, by tool (runs to fit)", Padding(table, (0, 0, 0, 2)))
