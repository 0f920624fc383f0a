"""The report of an audit: the causes of the bill, the most expensive calls, each format, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from elision.audit.audit_report import LISTED_FINDINGS, AuditReport, compare_bills
from elision.audit.audit_wording import (
    READER_COLUMNS,
    describe_finding,
    describe_recorded_bill,
    describe_saving,
    list_advice,
    list_audit_notes,
    list_reader_cells,
    list_saving_rows,
    name_finding,
    name_run,
    suggest_command,
    write_audit_headline,
)
from elision.audit.cause_table import CAUSES, LIFETIMES, CauseTotal
from elision.lab.ratios import divide_or_none
from elision.lab.report.figures import NOTHING, format_count, format_share, format_usd
from elision.lab.report.replay_report import build_problem_section, build_summary_sections
from elision.lab.report.report import (
    Bar,
    BarChart,
    Block,
    Column,
    Provenance,
    Report,
    Section,
    Sentence,
    Table,
    TableRow,
    Words,
)
from elision.telemetry.context_report import format_signed_percent
from elision.trajectory.run_roles import ROLE_TITLES

#: Calls that a terminal lists.
_FEW_CALLS: Final = 5
#: Cells that a run's name keeps.
_NAME: Final = 12
#: Slots of the palette: of what could have been avoided, and of the rest.
_AVOIDABLE: Final = "pays-write"
_REST: Final = "grey"


def build_bill_report(
    report: AuditReport, paths: Sequence[Path], made_by: Provenance | None = None, *, detail: bool = False
) -> Report:
    """Return the report of an audit. paths: what was audited. detail: whether a terminal lists each run too."""
    scope = [
        Sentence(describe_recorded_bill(report)),
        Sentence("List prices of the recorded models on the days of the runs, unless the command names others."),
    ]
    if not report.finished:
        scope.append(Sentence("Interrupted: only the runs read so far are counted.", "warning"))
    return Report(
        command="audit",
        headline=write_audit_headline(report),
        scope=scope if report.total.causes else scope[2:],
        sections=list(_build_sections(report, paths, detail=detail)),
        data=report.to_json() | {"advice": [advice.to_json() for advice in list_advice(report)]},
        made_by=made_by,
    )


def _build_sections(report: AuditReport, paths: Sequence[Path], *, detail: bool) -> Iterator[Section]:
    if report.total.causes:
        text = "Every billed token has exactly one cause. They sum to the bill."
        yield Section("Causes of the bill", [_build_bars(report)], text)
        yield Section("", [_build_cause_table(report)])
        yield from _show_findings(report)
        yield from _show_roles(report)
        yield from _show_tools(report)
        formats = [TableRow([reader, *list_reader_cells(total)]) for reader, total in report.total_readers().items()]
        yield Section(
            "By format", [Table([Column("format"), *READER_COLUMNS], formats)], only="" if formats[1:] else "page"
        )
        yield from build_summary_sections(report.tables)
        if any(run.file for run in report.runs):
            yield Section("Runs", [_build_run_table(report)], only="" if detail else "page")
    yield Section("", [Sentence(note, "quiet") for note in list_audit_notes(report)])
    yield from build_problem_section(report.problems)
    yield Section("What to do", list(_list_next_steps(report, paths)))


def _build_bars(report: AuditReport) -> BarChart:
    """Return a bar for each cause: what could have been avoided, and the rest."""
    bars = [
        Bar(
            CAUSES[cause].title,
            format_usd(total.usd),
            [
                (_AVOIDABLE, "avoidable, at most", total.avoidable_usd),
                (_REST, "the rest", max(0.0, total.usd - total.avoidable_usd)),
            ],
        )
        for cause, total in report.total.causes.items()
    ]
    return BarChart("causes", "bars: the bill by cause, and what of it could have been avoided", bars, "USD")


def _build_cause_table(report: AuditReport) -> Table:
    columns = [
        Column("cause"),
        Column("USD", 6),
        Column("share", 4),
        Column("avoidable", 5),
        Column("calls", 2),
        Column("what to do", 3, "wrap"),
        Column("what happened", 1, "wrap"),
    ]
    bill = report.total
    rows = []
    for cause, total in bill.causes.items():
        text = CAUSES[cause]
        cells: list[Words] = [
            text.title,
            format_usd(total.usd),
            format_share(divide_or_none(total.usd, bill.usd)),
            format_usd(total.avoidable_usd) if total.avoidable_usd else NOTHING,
            format_count(total.calls),
            [(text.remedy if total.avoidable_usd else "", "quiet")],
            [(text.meaning, "quiet")],
        ]
        rows.append(TableRow(cells))
    all_causes = ["all", format_usd(bill.usd), "100 %", format_usd(bill.avoidable_usd), "", "", ""]
    return Table(columns, [*rows, TableRow(all_causes, "strong")])


def _show_findings(report: AuditReport) -> Iterator[Section]:
    shown = report.findings[:LISTED_FINDINGS]
    if not shown:
        return
    title = "Calls at which old text was paid for again, the most expensive first"
    blocks: list[Block] = []
    for finding in shown[:_FEW_CALLS]:
        blocks.append(Sentence(f"{format_usd(finding.usd)}  {name_finding(finding)}"))
        blocks.append(Sentence(describe_finding(finding), "quiet"))
    if len(report.findings) > _FEW_CALLS:
        rest = len(report.findings) - _FEW_CALLS
        calls = "1 more call" if rest == 1 else f"{format_count(rest)} more calls"
        blocks.append(Sentence(f"{calls}; --json and --html list the first fifty.", "quiet"))
    yield Section(title, blocks, only="terminal")
    rows = [TableRow([name_finding(finding), format_usd(finding.usd), describe_finding(finding)]) for finding in shown]
    yield Section(
        title, [Table([Column("call"), Column("USD", 2), Column("what happened", 1, "wrap")], rows)], only="page"
    )


def _show_roles(report: AuditReport) -> Iterator[Section]:
    """Yield one bill for the whole tree, by role: agents, those that they started, and side calls."""
    roles = report.total_roles()
    if len(roles) < 2:
        return
    columns = [
        Column("role"),
        Column("runs", 3),
        Column("calls", 2),
        Column("USD", 5),
        Column("share", 4),
        Column("first write", 3),
        Column("head from cache", 2),
        Column("lifetimes", 1),
    ]
    rows = []
    for role, total in roles.items():
        first = total.causes.get("first-write", CauseTotal())
        cells = [
            ROLE_TITLES[role],
            format_count(total.runs),
            format_count(total.calls),
            format_usd(total.usd),
            format_share(divide_or_none(total.usd, report.total.usd)),
            format_usd(first.usd),
            format_share(divide_or_none(total.first_read, total.first_tokens)),
            format_usd(sum(each.usd for cause, each in total.causes.items() if cause in LIFETIMES)),
        ]
        rows.append(TableRow(cells))
    text = (
        "What of first prompts other runs had left in the cache, and what expired entries and writes for an hour cost."
    )
    yield Section("Agents, their sub-agents and side calls", [Table(columns, rows)], text)


def _show_tools(report: AuditReport) -> Iterator[Section]:
    """Yield the tools that were paid for and never called, if any: a few in a terminal, more on a page."""
    idle = [bill for bill in report.tools if bill.idle_usd]
    columns = [
        Column("tool"),
        Column("never called", 7),
        Column("tokens", 5),
        Column("calls", 4),
        Column("runs", 3),
        Column("without call", 2),
        Column("all its prompts", 1),
    ]
    rows = [
        TableRow(
            [
                bill.name,
                format_usd(bill.idle_usd),
                format_count(bill.tokens),
                format_count(bill.calls),
                format_count(bill.runs),
                format_count(bill.idle_runs),
                format_usd(bill.usd),
            ]
        )
        for bill in idle[:LISTED_FINDINGS]
    ]
    text = "What their definitions cost, in USD, in the prompts of runs that never call them."
    if rows:
        yield Section("Tools that were declared in vain", [Table(columns, rows[:_FEW_CALLS])], text, only="terminal")
        yield Section("Tools that were declared in vain", [Table(columns, rows)], text, only="page")


def _build_run_table(report: AuditReport) -> Table:
    """Return the runs with a bill; the largest cause among those that could be avoided is named."""
    columns = [
        Column("run"),
        Column("calls", 4),
        Column("USD", 7),
        Column("recorded", 2),
        Column("difference", 3),
        Column("avoidable", 6),
        Column("most of it", 5, "left"),
        Column("model", 1, "left"),
    ]
    rows = []
    for run in sorted((run for run in report.runs if run.calls and run.file), key=lambda run: -run.usd):
        difference = compare_bills(run.stated_usd, run.stated_list_usd)
        avoidable = {cause: total.avoidable_usd for cause, total in run.causes.items() if total.avoidable_usd}
        largest = max(avoidable, key=lambda cause: avoidable[cause], default=None)
        cells = [
            name_run(run.file, run.trajectory),
            format_count(run.calls),
            format_usd(run.usd),
            format_usd(run.stated_usd) if run.stated_calls else NOTHING,
            NOTHING if difference is None else format_signed_percent(difference, 2),
            format_share(divide_or_none(sum(avoidable.values()), run.usd)),
            NOTHING if largest is None else CAUSES[largest].title,
            run.model,
        ]
        rows.append(TableRow(cells))
    return Table(columns, rows, least=_NAME, clip="start")


def _list_next_steps(report: AuditReport, paths: Sequence[Path]) -> Iterator[Block]:
    if advice := list_advice(report):
        yield Sentence("What would save most. Each amount is an upper bound, and they overlap.", "quiet")
        for number, each in enumerate(advice, start=1):
            yield Sentence(f"{number}. {each.text}")
    saving = describe_saving(report)
    if report.saving is not None and saving:
        yield Sentence(saving, "strong")
        columns = [Column("the same runs"), Column("USD", 2), Column("vs recorded", 1)]
        yield Table(columns, [TableRow(row) for row in list_saving_rows(report.saving)])
    if report.total.causes and (command := suggest_command(report, paths)):
        yield Sentence(f"Next: {command}", whole=True)
