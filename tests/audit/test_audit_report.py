"""The JSON of an audit says what its page in the reference lists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from elision.audit.audit_report import AuditReport
from elision.audit.audit_wording import list_advice, list_audit_notes
from elision.audit.bill_report import build_bill_report
from elision.audit.cause_table import CAUSES
from elision.audit.habits import HABITS
from elision.audit.run_partition import partition_run
from elision.testing import builders
from elision.trajectory.turn import Head
from tests.audit.planted_runs import PRICES, SIZER, PlantedRun
from tests.audit.test_audit_page import report

DOCS = Path(__file__).parents[2] / "docs"
TITLE = Head(messages=(builders.user("Generate a title for this conversation."),))


def test_every_key_is_documented() -> None:
    """Each key is in the reference, and each cause in the guide."""
    found = report().to_json()
    text = (DOCS / "reference/json.md").read_text(encoding="utf-8").partition("## Audit")[2].partition("\n## ")[0]
    keys = {
        *found,
        *found["recorded"],
        *found["findings"][0],
        *found["saving"],
        *found["runs"][0],
        *found["roles"]["main"],
    }
    keys |= {key for cause in found["causes"].values() for key in cause} | set(HABITS)
    keys |= {"advice", *list_advice(report())[0].to_json()}
    assert {key for key in keys if f"`{key}`" not in text} == set()
    guide = (DOCS / "guides/measure.md").read_text(encoding="utf-8")
    assert all(f"`{cause}`" in guide for cause in CAUSES)


def test_the_report_is_plain_json() -> None:
    text = json.dumps(report().to_json(), allow_nan=False)
    assert json.loads(text)["causes"]


def test_only_some_deviating_bills_are_named() -> None:
    """A folder of a thousand runs at a discount does not print a thousand notes."""
    one = replace(report().runs[0], stated_usd=1.0, stated_list_usd=2.0, stated_calls=1)
    notes = list(list_audit_notes(AuditReport(runs=(one,) * 9)))
    assert len(notes) == 6
    assert "4 more runs" in notes[-1]


def test_sub_agents_are_billed_apart() -> None:
    """A fork is its run's agent; a run that another one started is a sub-agent, whose head is written anew."""
    made = PlantedRun(4).build()
    runs = [
        replace(made, id="main"),
        replace(made, id="main fork 1", parent="main"),
        replace(made, id="sidechain a", parent="call_7"),
        replace(made, id="title", head=TITLE, turns=(builders.turn(1, text="A title", usage=made.turns[0].usage),)),
    ]
    audited = [partition_run(run, SIZER, price=lambda model, on: PRICES) for run in runs]
    found = AuditReport(runs=tuple(run for run in audited if run is not None))
    assert {role: each.runs for role, each in found.total_roles().items()} == {"main": 2, "sub-agent": 1, "side": 1}
    roles = found.to_json()["roles"]
    assert sum(role["usd"] for role in roles.values()) == pytest.approx(found.total.usd)
    (section,) = (each for each in build_bill_report(found, []).sections if each.title.startswith("Agents, "))
    assert "sub-agents" in str(section.blocks)
    assert "side calls" in str(section.blocks)
    assert roles["side"]["first_tokens"] == made.turns[0].usage.prompt
    alone = AuditReport(runs=found.runs[:2])
    assert not [each for each in build_bill_report(alone, []).sections if each.title.startswith("Agents, ")]
