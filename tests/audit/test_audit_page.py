"""The page of an audit: one file, no script, no request, and no text of a log as markup."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from elision.audit.audit_report import AuditReport, SavingEstimate
from elision.audit.bill_report import build_bill_report
from elision.audit.cause_table import CAUSES
from elision.audit.run_partition import partition_run
from elision.lab.report.page import build_page
from elision.lab.results import SentSummary
from tests.audit.planted_runs import PRICES, SIZER, PlantedRun


def report(file: str = "logs/s.jsonl", reader: str = "claude-code") -> AuditReport:
    run = partition_run(replace(PlantedRun(3).build(), file=file), SIZER, price=lambda model, on: PRICES)
    assert run is not None
    return AuditReport(
        runs=(replace(run, reader=reader),),
        saving=SavingEstimate(
            sent=SentSummary(runs=1, billed_runs=1),
            billed_usd=2.01,
            recorded_usd=2.0,
            raw_usd=2.0,
            instead_usd=1.0,
            on_top_usd=1.0,
        ),
    )


def build_audit_page(found: AuditReport, paths: list[Path]) -> str:
    return build_page(build_bill_report(found, paths))


def test_the_page_has_every_cause_and_the_next_command() -> None:
    found = report()
    page = build_audit_page(found, [Path("logs")])
    assert all(CAUSES[cause].title in page for cause in found.total.causes)
    assert "elision wrap --strategy masking claude" in page


def test_the_page_asks_for_nothing() -> None:
    page = build_audit_page(report(), [Path("logs")])
    assert "<script" not in page
    assert re.findall(r"(?:src|href|url)\s*[=(]", page) == []


def test_text_of_a_log_is_no_markup() -> None:
    page = build_audit_page(report(file="<b>bold</b>.jsonl"), [Path("<i>")])
    assert "<b>" not in page
    assert "<i>" not in page


def test_a_log_of_no_known_agent_leads_to_the_gateway() -> None:
    assert "elision serve --strategy masking" in build_audit_page(report(reader="inspect-ai"), [Path("logs")])


def test_an_audit_without_a_bill_is_a_page_too() -> None:
    assert "No billed call" in build_audit_page(AuditReport(runs=(), silent=2), [Path("logs")])
