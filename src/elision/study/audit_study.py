"""An audit of any number of logs: a row for each call, and a signature by which DuckDB leaves copies out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from elision.audit.audit_report import LISTED_FINDINGS, AuditReport
from elision.audit.cause_table import Cause, CauseTotal
from elision.audit.habits import EXAMPLES, CallExample, Habit
from elision.audit.prompt_content import ToolBill
from elision.audit.run_partition import (
    AuditedRun,
    AuditFinding,
    PriceFinder,
    find_list_prices,
    find_role,
    partition_calls,
)
from elision.lab.ratios import divide_or_none
from elision.lab.report.figures import NOTHING, format_count, format_share, format_usd, neutralize_text
from elision.lab.results import SummaryTable
from elision.study.manifest import RunFacts, clean_text, pick_fields
from elision.study.row_schema import AUDIT_ROWS
from elision.study.run_sample import Samples, hash_item
from elision.study.shard_runner import ROWS_FOLDER, Rows
from elision.study.study_report import list_groups
from elision.study.study_tables import StudyTables
from elision.trajectory.prices import Prices
from elision.trajectory.run_roles import Role
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Problem, Trajectory

#: Column -> what a table of the report is by.
_GROUPS: Final = (("reader", "agent"), ("tag", "tag"), ("day", "day"), ("model", "model"))


#: What the runs share that are summed to one: format, model and role.
_SAME: Final = "reader, run_model, role"
_Group: TypeAlias = tuple[str, str, Role]


@dataclass(frozen=True, slots=True)
class AuditWork:
    """Every call by cause. tokens: name of the counter. prices: of every run; each call at its model's if None."""

    tokens: str
    prices: Prices | None = None

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        return {ROWS_FOLDER: AUDIT_ROWS}

    def measure_run(
        self, run: Trajectory, facts: RunFacts, samples: Samples, place: int
    ) -> tuple[Rows, Sequence[Problem]]:
        """Return a row for each call of `run`; one with call 0 where it records no usage."""
        price: PriceFinder = find_list_prices if self.prices is None else lambda model, day: self.prices
        shared = {
            "place": place,
            "file": clean_text(run.file),
            "trajectory": clean_text(run.id),
            "reader": run.format,
            "run_model": clean_text(run.model),
            "tag": clean_text(facts.tag),
            "role": find_role(run),
        }
        found = partition_calls(run, _load_sizer(self.tokens), price=price)
        if found is None:
            return {ROWS_FOLDER: [shared | {"call": 0, "model": "", "day": facts.day, "is_priced": False}]}, ()
        audited, calls = found
        rows = [
            shared
            | {
                "call": call.number,
                "signature": None if call.signature is None else hash_item(repr(call.signature)),
                "model": clean_text(call.model),
                "day": call.day or facts.day,
                **pick_fields(call, ("is_priced", "tokens", "usd", "stated_usd", "tools_usd")),
                "avoidable_usd": sum(total.avoidable_usd for total in call.causes.values()),
                "causes": [{"cause": cause} | pick_fields(total, _TOTAL) for cause, total in call.causes.items()],
                "habits": [{"habit": habit} | pick_fields(total, _TOTAL) for habit, total in call.habits.items()],
                "findings": [
                    pick_fields(finding, _FINDING) | {"place": clean_text(finding.place)} for finding in call.findings
                ],
            }
            for call in calls
        ]
        rows[0]["tools"] = [
            pick_fields(tool, _TOOL) | {"name": clean_text(tool.name)} for tool in audited.tools.values()
        ]
        return {ROWS_FOLDER: rows}, ()


_TOTAL: Final = ("tokens", "usd", "avoidable_usd")
_TOOL: Final = ("tokens", "calls", "idle_runs")
_FINDING: Final = ("call", "cause", "tokens", "first_token", "usd", "seconds", "is_inferred")


@lru_cache(maxsize=1)
def _load_sizer(tokens: str) -> Sizer:
    return Sizer(make_counter(tokens))


def build_audit(tables: StudyTables) -> AuditReport:
    """Return the audit of a study: totals by format, model and role, with no run listed by itself.

    A call that several runs have counts in the one that is read first, as in an audit in memory.
    """
    tables.ask(
        "create table copies as select signature, min(place) as first from rows where signature is not null"
        " group by 1 having min(place) <> max(place)"
    )
    tables.ask(
        "create view audited as select rows.*, coalesce(place <> first, false) as is_copy,"
        " is_priced and not is_copy as is_billed from rows left join copies using (signature)"
    )
    causes: dict[_Group, dict[Cause, CauseTotal]] = defaultdict(dict)
    habits: dict[_Group, dict[Habit, CauseTotal]] = defaultdict(dict)
    for name, found in (("cause", causes), ("habit", habits)):
        for row in tables.ask(
            f"select {_SAME}, each.{name} as what, sum(each.tokens) as tokens, sum(each.usd) as usd,"
            " sum(each.avoidable_usd) as avoidable_usd, count(*) as calls"
            f" from (select {_SAME}, unnest({name}s) as each from audited where is_billed) group by all"
        ):
            key, what = _take_group(row), row.pop("what")
            found[key][what] = CauseTotal(**row)
    examples: dict[_Group, dict[Cause | Habit, tuple[CallExample, ...]]] = defaultdict(dict)
    for row in tables.ask(
        f"select {_SAME}, what, file, trajectory, call, usd from ("
        + " union all ".join(
            f"select {_SAME}, file, trajectory, call, each.{name} as what, each.avoidable_usd as usd"
            f" from (select *, unnest({name}s) as each from audited where is_billed) where each.avoidable_usd > 0"
            for name in ("cause", "habit")
        )
        + f") qualify row_number() over (partition by {_SAME}, what order by usd desc, file, trajectory, call)"
        f" <= {EXAMPLES} order by usd desc, file, trajectory, call"
    ):
        key, what = _take_group(row), row.pop("what")
        examples[key][what] = (*examples[key].get(what, ()), CallExample(**row))
    findings: dict[_Group, list[AuditFinding]] = defaultdict(list)
    for row in tables.ask(
        f"select {_SAME}, file, trajectory, unnest(findings, recursive := true) from audited where is_billed"
        f" order by usd desc, file, trajectory, call limit {LISTED_FINDINGS}"
    ):
        findings[_take_group(row)].append(AuditFinding(**row))
    tools: dict[_Group, dict[str, ToolBill]] = defaultdict(dict)
    # What all definitions cost a run is divided between its tools by their tokens, as in an audit in memory.
    for row in tables.ask(
        f"select {_SAME}, name, max(tokens) as tokens, sum(calls) as calls, coalesce(sum(share), 0) as usd,"
        " coalesce(sum(share) filter (idle_runs > 0), 0) as idle_usd, count(*) as runs, sum(idle_runs) as idle_runs"
        " from (select *, usd * tokens / nullif(sum(tokens) over (partition by place), 0) as share"
        f" from (select place, {_SAME}, usd, unnest(tools, recursive := true) from ("
        f"select place, {_SAME}, first(tools order by call) as tools,"
        " coalesce(sum(tools_usd) filter (is_billed), 0) as usd from audited where call > 0 group by all)))"
        " group by all order by name"
    ):
        key = _take_group(row)
        tools[key][row["name"]] = ToolBill(**row)
    totals = tables.ask(
        f"select {_SAME}, count(distinct place) filter (is_billed) as runs,"
        " count_if(is_billed) as calls, coalesce(sum(usd) filter (is_billed), 0) as usd,"
        " coalesce(sum(stated_usd) filter (is_billed), 0) as stated_usd,"
        " coalesce(sum(usd) filter (is_billed and stated_usd is not null), 0) as stated_list_usd,"
        " count_if(is_billed and stated_usd is not null) as stated_calls,"
        " count_if(not is_copy and not is_priced) as unpriced_calls,"
        " coalesce(sum(tokens) filter (not is_copy and not is_priced), 0) as unpriced_tokens,"
        " count_if(is_copy) as copied_calls from audited where call > 0 group by all order by 1, 2, 3"
    )
    (unpriced,) = tables.ask("select count_if(call = 0) as silent from rows")
    return AuditReport(
        runs=tuple(
            AuditedRun(
                file="",
                trajectory="",
                prices=None,
                reader=group[0],
                model=group[1],
                role=group[2],
                causes=causes[group],
                habits=habits[group],
                examples=examples[group],
                findings=tuple(findings[group]),
                tools=tools[group],
                **row,
            )
            for row in totals
            for group in [_take_group(row)]
        ),
        silent=unpriced["silent"],
        problems=tables.list_problems(),
        finished=len(tables.parts) == len(tables.names),
        counter=tables.plan.options["tokens"],
        tables=tuple(_tabulate_groups(tables)),
    )


def _take_group(row: dict[str, Any]) -> _Group:
    return row.pop("reader"), row.pop("run_model"), row.pop("role")


def _tabulate_groups(tables: StudyTables) -> Iterator[SummaryTable]:
    """Yield the bill by agent, tag, day and model, where there is more than one of these."""
    for column, title in _GROUPS:
        found = tables.ask(
            f"select {column}, count(distinct place) as runs, count(*) as calls, sum(usd) as usd,"
            " sum(stated_usd) as stated, sum(avoidable_usd) as avoidable from audited where is_billed"
            " group by 1 order by usd desc, 1"
        )
        if len(found) < 2:
            continue
        shown, rest = list_groups(found, column)
        yield SummaryTable(
            title=f"By {title}",
            text=f"Calls by {title}, each counted once.{rest}",
            headings=(title, "runs", "calls", "causes", "recorded", "avoidable"),
            rows=tuple(
                (
                    neutralize_text(row[column] or NOTHING),
                    format_count(row["runs"]),
                    format_count(row["calls"]),
                    format_usd(row["usd"]),
                    NOTHING if row["stated"] is None else format_usd(row["stated"]),
                    format_share(divide_or_none(row["avoidable"], row["usd"])),
                )
                for row in shown
            ),
        )
