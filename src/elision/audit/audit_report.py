"""What an audit found in all runs together, and the same as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from elision.audit.cause_table import CAUSES, Cause, CauseTotal
from elision.audit.habits import HABITS, Habit
from elision.audit.run_partition import AuditedRun, AuditFinding
from elision.audit.saving_estimate import SavingEstimate
from elision.audit.tool_bills import ToolBill, sum_tools
from elision.lab.ratios import divide_or_none
from elision.lab.results import LEAST_SAVING, SummaryTable, encode_problems
from elision.lab.study_settings import RECOMMENDED
from elision.trajectory.run_roles import ROLES, Role
from elision.trajectory.trajectory import Problem

#: Findings that JSON and page list, the most expensive first.
LISTED_FINDINGS: Final = 50
#: Share by which a recorded bill may differ from the sum of the causes before the report says so.
TOLERANCE: Final = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """runs: those with recorded usage. silent: logs without any. finished: False if the user interrupted.

    counter: how tokens were counted. saving: None where no replay was asked for. tables: of a study, whose `runs` are
    sums by format and model: the bill by agent, tag, day and model.
    """

    runs: tuple[AuditedRun, ...]
    silent: int = 0
    problems: tuple[Problem, ...] = ()
    finished: bool = True
    counter: str = "o200k"
    saving: SavingEstimate | None = None
    tables: tuple[SummaryTable, ...] = ()

    @property
    def calls(self) -> int:
        return sum(run.calls for run in self.runs)

    @property
    def usd(self) -> float:
        """All priced calls at list prices, which is the sum of the causes."""
        return sum(run.usd for run in self.runs)

    @property
    def avoidable_usd(self) -> float:
        return sum(total.avoidable_usd for total in self.causes.values())

    @property
    def causes(self) -> dict[Cause, CauseTotal]:
        """The causes that occur, in the order of `CAUSES`."""
        return sum_causes(self.runs)

    @property
    def habits(self) -> dict[Habit, CauseTotal]:
        """The habits that occur, in the order of `HABITS`; they overlap the causes and each other."""
        found: dict[Habit, CauseTotal] = {}
        for run in self.runs:
            for habit, total in run.habits.items():
                found[habit] = found.get(habit, CauseTotal()) + total
        return {habit: found[habit] for habit in HABITS if habit in found}

    @property
    def tools(self) -> list[ToolBill]:
        """The tools that the runs declare, what was paid for nothing first."""
        return sum_tools(run.tools for run in self.runs)

    @property
    def stated_usd(self) -> float:
        """What the logs themselves state."""
        return sum(run.stated_usd for run in self.runs)

    @property
    def stated_list_usd(self) -> float:
        """The sum of the causes of the calls whose cost the logs state."""
        return sum(run.stated_list_usd for run in self.runs)

    @property
    def stated_calls(self) -> int:
        return sum(run.stated_calls for run in self.runs)

    @property
    def copied_calls(self) -> int:
        return sum(run.copied_calls for run in self.runs)

    @property
    def unpriced(self) -> dict[str, tuple[int, int]]:
        """Model without a price -> its calls and tokens."""
        found: dict[str, tuple[int, int]] = {}
        for run in self.runs:
            if run.unpriced_calls:
                calls, tokens = found.get(run.model, (0, 0))
                found[run.model] = (calls + run.unpriced_calls, tokens + run.unpriced_tokens)
        return found

    @property
    def findings(self) -> list[AuditFinding]:
        """The calls at which old text was sent again, the most expensive first."""
        found = [finding for run in self.runs for finding in run.findings]
        return sorted(found, key=lambda finding: -finding.usd)

    @property
    def main_reader(self) -> str:
        """The format that most of the bill is for; "" without any."""
        usd: dict[str, float] = {}
        for run in self.runs:
            usd[run.reader] = usd.get(run.reader, 0.0) + run.usd
        return max(usd, key=lambda reader: usd[reader], default="")

    @property
    def strategy(self) -> str:
        """The strategy to take: the recommended one where its replay costs less than what was sent."""
        if self.saving is None or self.saving.to_recorded is None or self.saving.to_recorded < LEAST_SAVING:
            return RECOMMENDED
        return "raw"

    def list_roles(self) -> list[tuple[Role, list[AuditedRun]]]:
        """Return the runs of each role that occurs."""
        found = [(role, [run for run in self.runs if run.role == role]) for role in ROLES]
        return [(role, runs) for role, runs in found if runs]

    def list_readers(self) -> list[tuple[str, list[AuditedRun]]]:
        """Return the runs of each format, by its name."""
        readers = sorted({run.reader for run in self.runs})
        return [(reader, [run for run in self.runs if run.reader == reader]) for reader in readers]

    def to_json(self) -> dict[str, Any]:
        return {
            "finished": self.finished,
            "counter": self.counter,
            "calls": self.calls,
            "usd": self.usd,
            "avoidable_usd": self.avoidable_usd,
            "recorded": {
                "calls": self.stated_calls,
                "usd": self.stated_usd,
                "causes_usd": self.stated_list_usd,
                "difference": compare_bills(self.stated_usd, self.stated_list_usd),
            },
            "causes": encode_causes(self.causes),
            "habits": encode_causes(self.habits),
            "roles": {role: _encode_role(runs) for role, runs in self.list_roles()},
            "tools": [bill.to_json() for bill in self.tools],
            "findings": [_encode_finding(finding) for finding in self.findings[:LISTED_FINDINGS]],
            "saving": None if self.saving is None else _encode_saving(self.saving, self.strategy),
            "runs": [_encode_run(run) for run in self.runs if run.file],
            "tables": [asdict(table) for table in self.tables],
            "without_price": [
                {"model": model, "calls": calls, "tokens": tokens} for model, (calls, tokens) in self.unpriced.items()
            ],
            "without_usage": self.silent,
            "copied_calls": self.copied_calls,
            "problems": encode_problems(self.problems),
        }


def sum_causes(runs: Iterable[AuditedRun]) -> dict[Cause, CauseTotal]:
    """Return what each cause amounts to in `runs`, in the order of `CAUSES`; those that do not occur are left out."""
    found: dict[Cause, CauseTotal] = {}
    for run in runs:
        for cause, total in run.causes.items():
            found[cause] = found.get(cause, CauseTotal()) + total
    return {cause: found[cause] for cause in CAUSES if cause in found}


def compare_bills(stated: float, causes: float) -> float | None:
    """Return by what share the sum of the causes differs from the recorded bill; None without one."""
    ratio = divide_or_none(causes, stated)
    return None if ratio is None else ratio - 1


def encode_causes(causes: Mapping[Cause, CauseTotal] | Mapping[Habit, CauseTotal]) -> dict[str, Any]:
    """Return the totals as JSON."""
    return {
        cause: {
            "usd": total.usd,
            "avoidable_usd": total.avoidable_usd,
            "tokens": total.tokens,
            "calls": total.calls,
        }
        for cause, total in causes.items()
    }


def _encode_finding(finding: AuditFinding) -> dict[str, Any]:
    return {
        "file": finding.file,
        "trajectory": finding.trajectory,
        "call": finding.call,
        "cause": finding.cause,
        "usd": finding.usd,
        "tokens": finding.tokens,
        "first_token": finding.first_token,
        "place": finding.place,
        "seconds_since_call_before": finding.seconds,
        "inferred": finding.is_inferred,
        "changed": list(finding.changed),
    }


def _encode_role(runs: Sequence[AuditedRun]) -> dict[str, Any]:
    return {
        "runs": sum(run.runs for run in runs),
        "calls": sum(run.calls for run in runs),
        "usd": sum(run.usd for run in runs),
        "first_tokens": sum(run.first_tokens for run in runs),
        "first_read": sum(run.first_read for run in runs),
        "causes": encode_causes(sum_causes(runs)),
    }


def _encode_run(run: AuditedRun) -> dict[str, Any]:
    stated = run.stated_calls > 0
    return {
        "file": run.file,
        "trajectory": run.trajectory,
        "reader": run.reader,
        "model": run.model,
        "priced_as": None if run.prices is None else run.prices.name,
        "calls": run.calls,
        "cached": run.is_cached,
        "role": run.role,
        "usd": run.usd,
        "recorded_usd": run.stated_usd if stated else None,
        "difference": compare_bills(run.stated_usd, run.stated_list_usd) if stated else None,
        "copied_calls": run.copied_calls,
        "causes": encode_causes(sum_causes([run])),
    }


def _encode_saving(saving: SavingEstimate, strategy: str) -> dict[str, Any]:
    return {
        "sent": asdict(saving.sent),
        "billed_usd": saving.billed_usd,
        "recorded_usd": saving.recorded_usd,
        "everything_usd": saving.raw_usd,
        "instead_usd": saving.instead_usd,
        "on_top_usd": saving.on_top_usd,
        "recommended_to_recorded": saving.to_recorded,
        "strategy": strategy,
    }
