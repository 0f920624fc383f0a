"""What each declared tool cost: its share of all definitions, in every prompt of the run."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from elision.audit.audit_report import AuditReport
from elision.audit.bill_report import build_bill_report
from elision.audit.prompt_content import bill_tools, count_tools, sum_tools
from elision.audit.run_partition import partition_run
from elision.lab.report.report import Table
from elision.testing import builders
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head
from elision.trajectory.usage import Usage

SIZER = Sizer(make_counter("estimate"))
TEXT = "Searches the whole repository for a word. " * 10


def declare(*names: str) -> Head:
    return Head(tools=tuple({"name": name, "description": TEXT} for name in names))


def run_with(head: Head, tools: tuple[str, ...] = ("bash", "bash"), prompt: int = 20_000) -> Trajectory:
    turns = []
    for index, tool in enumerate(tools, start=1):
        known = prompt + 200 * (index - 2) if index > 1 else 0
        usage = Usage(input=0, cache_read=known, cache_write=prompt + 200 * (index - 1) - known, output=10)
        step = builders.step(index, "done", tool=tool)
        turns.append(replace(step, usage=usage))
    return builders.trajectory(*turns, head=head, model="claude-sonnet-4-5")


def test_the_bill_is_divided_by_tokens() -> None:
    bills = bill_tools(count_tools(run_with(declare("bash", "find", "edit")), SIZER), 3.0)
    assert [bill.name for bill in bills.values()] == ["bash", "find", "edit"]
    assert [bill.calls for bill in bills.values()] == [2, 0, 0]
    assert [bill.idle_usd for bill in bills.values()] == pytest.approx([0.0, 1.0, 1.0], abs=0.02)
    assert sum(bill.usd for bill in bills.values()) == pytest.approx(3.0)


def test_runs_are_summed_and_what_was_paid_for_nothing_comes_first() -> None:
    """A tool is idle in the runs that never call it, and only there."""
    one = bill_tools(count_tools(run_with(declare("bash", "find")), SIZER), 2.0)
    other = bill_tools(count_tools(run_with(declare("bash", "find", "edit"), ("find",)), SIZER), 30.0)
    found = sum_tools([one, other])
    assert [(bill.name, bill.runs, bill.idle_runs, bill.calls) for bill in found] == [
        ("bash", 2, 1, 2),
        ("edit", 1, 1, 0),
        ("find", 2, 1, 1),
    ]


def test_a_run_cut_off_before_its_first_call_condemns_no_tool() -> None:
    run = builders.trajectory(builders.turn(1, text="Done."), head=declare("bash"))
    assert count_tools(run, SIZER)["bash"].idle_runs == 0


def test_an_audit_names_the_tools() -> None:
    """Nothing went wrong with the cache, so what was paid for nothing is the cause of that name."""
    run = partition_run(run_with(declare("bash", "find")), SIZER)
    assert run is not None
    assert run.tools["find"].usd == pytest.approx(run.causes["unused-tools"].usd, rel=0.05)
    report = AuditReport(runs=(run,))
    (find, bash) = report.to_json()["tools"]
    assert (find["name"], find["calls"], find["runs_without_call"]) == ("find", 0, 1)
    assert (bash["never_called_usd"], bash["calls"]) == (0.0, 2)
    sections = [
        each for each in build_bill_report(report, []).sections if each.title == "Tools that were declared in vain"
    ]
    assert [each.only for each in sections] == ["terminal", "page"]
    table = sections[0].blocks[0]
    assert isinstance(table, Table)
    assert [row.cells[0] for row in table.rows] == ["find"]


def test_definitions_are_counted_once_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The causes and the rows of tools take the same counts."""
    counted: list[Head] = []
    plain = Sizer.count_tools

    def count(sizer: Sizer, head: Head) -> int:
        counted.extend([head] if len(head.tools) == 1 else [])
        return plain(sizer, head)

    monkeypatch.setattr(Sizer, "count_tools", count)
    partition_run(run_with(declare("bash", "find")), SIZER)
    assert [head.tools[0]["name"] for head in counted] == ["bash", "find"]
