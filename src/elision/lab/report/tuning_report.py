"""The report of a tuning: what is recommended, the frontier on both parts of the runs, and how to use it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from elision.lab.report import figures, tuning_wording, wording
from elision.lab.report.names import name_runs
from elision.lab.report.replay_report import build_problem_section
from elision.lab.report.report import (
    Bar,
    BarChart,
    Block,
    Chart,
    Column,
    Provenance,
    Report,
    Section,
    Sentence,
    Table,
    TableRow,
)
from elision.lab.report.sent_wording import label_sent_rows
from elision.lab.report.settings_file import describe_fully, quote_toml
from elision.lab.report.tuning_chart import describe_far_points, draw_frontier
from elision.lab.results import Row
from elision.lab.tuning.tuning_result import TunedPoint, Tuning

#: The columns of figures, those of the runs to fit first.
_COLUMNS: Final = (
    Column("fit: vs\nrecorded", 6),
    Column("fit:\nfacts", 5),
    Column("fit:\nmissing", 2),
    Column("judge: vs\nrecorded", 4),
    Column("judge:\nfacts", 3),
    Column("judge:\nmissing", 1),
    Column("fit: cost", 0),
    Column("judge: cost", 0),
)
#: Cells of a name that are shown however narrow the terminal.
_NAME: Final = 26


def build_tuning_report(tuning: Tuning, made_by: Provenance) -> Report:
    """Return the report of `tuning`."""
    return Report(
        command="tune",
        headline=tuning_wording.write_headline(tuning),
        scope=list(_list_scope(tuning)),
        sections=list(_build_sections(tuning)),
        data=tuning.json(),
        made_by=made_by,
        footer=[("Prices", tuning.prices.name)],
    )


def _list_scope(tuning: Tuning) -> Iterator[Sentence]:
    yield Sentence(tuning_wording.describe_scope(tuning))
    yield Sentence(wording.describe_prices(tuning.prices))
    for warning in (tuning_wording.describe_study(tuning), tuning_wording.describe_interruption(tuning)):
        if warning:
            yield Sentence(warning, "warning")


def _build_sections(tuning: Tuning) -> Iterator[Section]:
    text = "Filled: runs to fit. Hollow: runs to judge. Ring: recommended. Grey: points that another one beats."
    chart = Chart(
        "recall",
        "points: cost and facts still visible of every strategy tried",
        lambda drawing: draw_frontier(tuning, drawing),
    )
    yield Section(
        "Cost against facts still visible", [chart], " ".join([text, *describe_far_points(tuning)]), only="page"
    )
    yield Section("What the runs to fit cost", [_build_bars(tuning)], only="terminal")
    yield Section("", [_build_points(tuning), *_list_verdicts(tuning)])
    yield Section("In full", list(_list_texts(tuning)))
    yield from _show_others(tuning)
    if shares := tuning_wording.list_tool_shares(tuning):
        titles = (Column("hidden\ntokens", 2), Column("facts\nmissed", 1), Column("rule tried:\nvisible for"))
        table = Table([Column("tool"), *titles], [TableRow(cells) for cells in shares])
        yield Section("What masking by age hides, by tool (runs to fit)", [table])
    yield _list_runs(tuning)
    yield from build_problem_section(tuning.problems)
    yield Section("How to read this", [Sentence(note) for note in tuning_wording.list_notes(tuning)])


def _build_bars(tuning: Tuning) -> BarChart:
    """Return a bar for what was sent, the references and the recommended point, for a terminal."""
    happened = label_sent_rows(tuning.sending)
    names = tuning_wording.list_reference_names(tuning.references)
    named = [(happened[each.name], each.fit, False) for each in tuning.sent]
    named += [(names[point.text], point.fit, point.text == tuning.recommended) for point in tuning.references]
    if tuning.recommended not in names:
        named.append((tuning_wording.describe_point(tuning.recommended), tuning.best.fit, True))
    bars = [
        Bar(
            f"{name} (recommended)" if is_recommended else name,
            f"{figures.format_usd(row.usd)}  {tuning_wording.format_cells(row)[0]}",
            [("", "", row.usd)],
            mood="better" if is_recommended else "",
        )
        for name, row, is_recommended in named
    ]
    return BarChart("costs", "bars: the cost of the runs to fit", bars, "USD")


def _list_verdicts(tuning: Tuning) -> Iterator[Block]:
    for text, mood in (
        (tuning_wording.describe_choice(tuning), ""),
        (tuning_wording.describe_sent(tuning), ""),
        (tuning_wording.write_verdict(tuning), "strong" if tuning.is_confirmed() else "warning"),
        (tuning_wording.describe_excess(tuning), "warning"),
        (tuning_wording.describe_break_even(tuning), ""),
        (tuning_wording.describe_rule_of_thumb(tuning), ""),
    ):
        if text:
            yield Sentence(text, mood)
    yield Sentence(f"strategy = {quote_toml(describe_fully(tuning.recommended))}", whole=True)


def _build_points(tuning: Tuning) -> Table:
    """Return what happened, the references and the frontier, each on both parts of the runs."""
    listed = tuning_wording.choose_listed(tuning)
    happened = label_sent_rows(tuning.sending)
    names = tuning_wording.list_reference_names(tuning.references)
    head = "frontier, cheapest first"
    if len(listed) < len(tuning.frontier):
        head = f"frontier ({len(listed)} of {len(tuning.frontier)})"
    rows = [TableRow([happened[each.name], *_list_cells(each.fit, each.judge)]) for each in tuning.sent]
    rows.append(TableRow(["beside it"]))
    rows += [_build_row(names[point.text], point, tuning) for point in tuning.references]
    rows.append(TableRow([head]))
    rows += [
        _build_row(f"{number:2}  {tuning_wording.describe_point(point.text)}", point, tuning)
        for number, point in enumerate(listed, start=1)
    ]
    return Table([Column("strategy"), *_COLUMNS], rows, least=_NAME)


def _build_row(name: str, point: TunedPoint, tuning: Tuning) -> TableRow:
    cells = [name, *_list_cells(point.fit, point.judge)]
    return TableRow(cells, recommended=point.text == tuning.recommended)


def _list_cells(fit: Row | None, judge: Row | None) -> list[str]:
    costs = [figures.NOTHING if row is None else figures.format_usd(row.usd) for row in (fit, judge)]
    return [*tuning_wording.format_cells(fit), *tuning_wording.format_cells(judge), *costs]


def _list_texts(tuning: Tuning) -> Iterator[Sentence]:
    """Yield the strategies in full, for -s and for settings."""
    for number, point in enumerate(tuning_wording.choose_listed(tuning), start=1):
        mood = "strong" if point.text == tuning.recommended else ""
        # On one line whatever the width, so that a copy is whole.
        yield Sentence(f"{number:2}  {describe_fully(point.text)}", mood, whole=True)


def _show_others(tuning: Tuning) -> Iterator[Section]:
    others = [point for point in tuning.points if not point.names and not point.on_frontier]
    if others:
        columns = [Column("strategy"), *_COLUMNS, Column("in full", 0, "wrap")]
        rows = [
            TableRow(
                [
                    tuning_wording.describe_point(point.text),
                    *_list_cells(point.fit, point.judge),
                    describe_fully(point.text),
                ],
                recommended=point.text == tuning.recommended,
            )
            for point in others
        ]
        yield Section("Every other point, cheapest first", [Table(columns, rows)], only="page")


def _list_runs(tuning: Tuning) -> Section:
    parts: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (
        ("to fit", tuning.fit_runs),
        ("to judge", tuning.judge_runs),
    )
    names = name_runs(Row(file=file, trajectory=run) for _, keys in parts for file, run in keys)
    rows = [TableRow([names[key], part]) for part, keys in parts for key in keys]
    return Section("Runs", [Table([Column("run"), Column("part", 0, "left")], rows)], only="page")
