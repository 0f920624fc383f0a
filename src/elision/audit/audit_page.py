"""An audit as one self-contained page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from elision.audit.audit_report import LISTED_FINDINGS, AuditReport
from elision.audit.audit_wording import (
    READER_TITLES,
    describe_finding,
    describe_recorded_bill,
    describe_saving,
    list_audit_notes,
    list_reader_cells,
    list_saving_rows,
    name_finding,
    suggest_command,
    write_audit_headline,
)
from elision.audit.cause_table import CAUSES, Cause, CauseTotal
from elision.lab.ratios import divide_or_none, divide_or_zero
from elision.lab.report.figures import NOTHING, format_count, format_plural, format_share, format_usd
from elision.lab.report.html import show_summary_tables
from elision.lab.report.page_shell import (
    PageParts,
    build_row,
    build_table,
    escape_text,
    fill_page,
    list_problems,
    list_provenance,
    wrap_section,
    wrap_subtitle,
)
from elision.lab.report.provenance import Provenance

#: Runs that the page lists, the most expensive first.
LISTED_RUNS: Final = 100
#: Pixels of the longest bar.
_BAR: Final = 140
#: Slots of the palette: of what could have been avoided, and of the rest.
_AVOIDABLE: Final = "pays-write"
_REST: Final = "grey"


def build_audit_page(report: AuditReport, paths: Sequence[Path], made_by: Provenance | None = None) -> str:
    """Return the page, to be written as UTF-8. It has no script and asks for nothing.

    paths: what was audited. made_by: what the page says of its making; None leaves that out.
    """
    return fill_page(
        PageParts(
            brand="Elision audit",
            headline=write_audit_headline(report),
            scope=describe_recorded_bill(report),
            prices="List prices of the recorded models on the days of the runs, unless the command names others.",
            warning=None if report.finished else "Interrupted: only the runs read so far are counted.",
            sections=[*_build_sections(report, paths)],
            footer=list_provenance(made_by),
            slots=(_AVOIDABLE, _REST),
        )
    )


def _build_sections(report: AuditReport, paths: Sequence[Path]) -> Iterator[str]:
    if report.causes:
        yield _build_cause_section(report)
        yield from _build_next_section(report, paths)
        yield from _build_finding_section(report)
        yield _build_reader_section(report)
        yield from show_summary_tables(report.tables)
        if any(run.file for run in report.runs):
            yield _build_run_section(report)
    notes = "".join(f"<li>{escape_text(note)}</li>" for note in list_audit_notes(report))
    if notes:
        yield wrap_section("notes", "Notes", f"<ul>{notes}</ul>")
    yield list_problems(report.problems)


def _build_cause_section(report: AuditReport) -> str:
    most = max(total.usd for total in report.causes.values())
    rows = [_build_cause_row(cause, total, report.usd, most) for cause, total in report.causes.items()]
    rows.append(build_row(["", format_usd(report.usd), "100 %", format_usd(report.avoidable_usd), "", ""], name="all"))
    titles = ("cause", "", "USD", "share", "avoidable", "calls", '<span class="word">what happened; what to do</span>')
    key = f'<ul class="key"><li>{_draw_bar(12, 12)} avoidable, at most</li><li>{_draw_bar(12, 0)} the rest</li></ul>'
    return wrap_section(
        "causes",
        "Causes",
        wrap_subtitle("Every billed token has exactly one. They sum to the bill."),
        key,
        build_table(titles, rows),
    )


def _build_cause_row(cause: Cause, total: CauseTotal, bill: float, most: float) -> str:
    text = CAUSES[cause]
    scale = divide_or_zero(_BAR, most)
    advice = f"{text.meaning}; {text.remedy}" if text.remedy and total.avoidable_usd else text.meaning
    figures = (
        format_usd(total.usd),
        format_share(divide_or_none(total.usd, bill)),
        format_usd(total.avoidable_usd) if total.avoidable_usd else NOTHING,
        format_count(total.calls),
    )
    cells = "".join(f"<td>{escape_text(figure)}</td>" for figure in figures)
    return (
        f'<tr><th scope="row">{escape_text(text.title)}</th>'
        f'<td class="word">{_draw_bar(total.usd * scale, total.avoidable_usd * scale)}</td>'
        f'{cells}<td class="sentence">{escape_text(advice)}</td></tr>'
    )


def _draw_bar(length: float, avoidable: float) -> str:
    """Return a bar of `length` pixels whose first `avoidable` ones have the colour of what could be avoided."""
    return (
        f'<svg width="{max(1.0, length):.1f}" height="11" aria-hidden="true">'
        f'<rect class="c-{_REST}" stroke-width="0" width="{max(1.0, length):.1f}" height="11"/>'
        f'<rect class="c-{_AVOIDABLE}" stroke-width="0" width="{min(length, avoidable):.1f}" height="11"/></svg>'
    )


def _build_next_section(report: AuditReport, paths: Sequence[Path]) -> Iterator[str]:
    saving = describe_saving(report)
    command = suggest_command(report, paths)
    lines = [f"<p>{escape_text(saving)}</p>"] if saving else []
    if report.saving is not None and saving:
        lines.append(
            build_table(("the same runs", "USD", "vs recorded"), map(build_row, list_saving_rows(report.saving)))
        )
    if command:
        lines.append(f"<p>Next: <code>{escape_text(command)}</code></p>")
    if lines:
        yield wrap_section("next", "What to do", *lines)


def _build_finding_section(report: AuditReport) -> Iterator[str]:
    shown = report.findings[:LISTED_FINDINGS]
    if not shown:
        return
    rows = [
        f'<tr><td class="sentence">{escape_text(name_finding(finding))}</td>'
        f"<td>{escape_text(format_usd(finding.usd))}</td>"
        f'<td class="sentence">{escape_text(describe_finding(finding))}</td></tr>'
        for finding in shown
    ]
    count = f"{format_count(len(shown))} of {format_plural(len(report.findings), 'call')}, the most expensive first."
    titles = ("call", "USD", '<span class="word">what happened</span>')
    yield wrap_section("findings", "Old text that was paid for again", wrap_subtitle(count), build_table(titles, rows))


def _build_reader_section(report: AuditReport) -> str:
    rows = [build_row(list_reader_cells(runs), name=reader) for reader, runs in report.list_readers()]
    return wrap_section("formats", "By format", build_table(("format", *READER_TITLES), rows))


def _build_run_section(report: AuditReport) -> str:
    billed = sorted((run for run in report.runs if run.calls and run.file), key=lambda run: -run.usd)
    rows = []
    for run in billed[:LISTED_RUNS]:
        avoidable = sum(total.avoidable_usd for total in run.causes.values())
        largest = max(run.causes, key=lambda cause: run.causes[cause].usd)
        figures = (
            format_count(run.calls),
            format_usd(run.usd),
            format_usd(run.stated_usd) if run.stated_calls else NOTHING,
            format_usd(avoidable),
        )
        cells = "".join(f"<td>{escape_text(figure)}</td>" for figure in figures)
        rows.append(
            f'<tr><td class="name"><bdi>{escape_text(f"{run.file} {run.trajectory}")}</bdi></td>'
            f'<td class="word">{escape_text(run.model)}</td>{cells}'
            f'<td class="word">{escape_text(CAUSES[largest].title)}</td></tr>'
        )
    titles = (
        "run",
        '<span class="word">model</span>',
        "calls",
        "USD",
        "recorded",
        "avoidable",
        '<span class="word">largest cause</span>',
    )
    count = f"{format_count(len(rows))} of {format_plural(len(billed), 'run')}, the most expensive first."
    return wrap_section("runs", "Runs", wrap_subtitle(count), build_table(titles, rows))
