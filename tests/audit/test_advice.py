"""Advice: at most five sentences, the largest amount first, each with its calls and a setting or words to use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from elision.audit.audit_report import AuditReport
from elision.audit.audit_wording import LEAST_SHARE, MOST_ADVICE, list_advice
from elision.audit.bill_report import build_bill_report
from elision.audit.cause_table import CauseTotal
from elision.audit.habits import HABITS, CallExample, Habit
from tests.audit.test_audit_page import report


def with_habits(**usd: float) -> AuditReport:
    """The planted run, with habits of so many USD, named with `_` for `-`."""
    run = report().runs[0]
    habits: dict[Habit, CauseTotal] = {}
    examples = dict(run.examples)
    for habit in HABITS:
        if each := usd.get(habit.replace("-", "_")):
            habits[habit] = CauseTotal(9, each, each, 2)
            examples[habit] = (CallExample(run.file, run.trajectory, 7, 0.1),)
    return replace(report(), runs=(replace(run, habits=habits, examples=examples),))


def test_the_largest_come_first() -> None:
    found = list_advice(report())
    amounts = [each.usd for each in found]
    assert 1 < len(found) <= MOST_ADVICE
    assert amounts == sorted(amounts, reverse=True)
    assert all(each.usd >= LEAST_SHARE * report().total.usd for each in found)


def test_a_habit_is_shown_with_its_calls_and_the_words_to_use() -> None:
    (found,) = (each for each in list_advice(with_habits(reads_apart=9.0)) if each.topic == "reads-apart")
    assert found.text.startswith("Reads that follow reads cost $9.00 in 2 calls. Let the agent batch them: add ")
    assert found.text.endswith(" See s planted-3, call 7.")
    assert found.setting == ""


def test_what_elision_can_do_names_the_setting() -> None:
    """Hiding costs what the replay says it saves, not what the causes say could have been avoided."""
    (found,) = (each for each in list_advice(report()) if each.topic == "hiding")
    saving = report().saving
    assert saving is not None
    assert (found.usd, found.setting) == (saving.recorded_usd - saving.strategy_usd, 'strategy = "masking"')
    without = replace(report(), saving=None)
    assert "hiding" not in {each.topic for each in list_advice(without)}
    dearer = replace(report(), saving=replace(saving, instead_usd=3.0, on_top_usd=3.0))
    assert "hiding" not in {each.topic for each in list_advice(dearer)}


def test_there_are_five_at_most() -> None:
    found = list_advice(with_habits(reads_apart=9.0, whole_files=8.0, large_results=7.0))
    assert len(found) == MOST_ADVICE
    assert [each.topic for each in found][:3] == ["reads-apart", "whole-files", "large-results"]


def test_a_small_amount_is_no_advice() -> None:
    found = list_advice(with_habits(whole_files=report().total.usd * LEAST_SHARE / 2))
    assert "whole-files" not in {each.topic for each in found}
    assert list_advice(AuditReport(runs=())) == []


def test_the_report_ends_with_it() -> None:
    """On terminal and page as sentences, and in the JSON."""
    found = build_bill_report(with_habits(reads_apart=9.0), [Path("logs")])
    advice = list_advice(with_habits(reads_apart=9.0))
    assert [each["topic"] for each in found.data["advice"]] == [each.topic for each in advice]
    assert any(f"1. {advice[0].text}" in str(block) for block in found.sections[-1].blocks)
