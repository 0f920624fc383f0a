"""What would save most on an agent's bill: at most five sentences in USD, each with the calls that show it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from elision.audit.audit_report import AuditReport
from elision.audit.audit_wording import name_run
from elision.audit.cause_table import Cause, CauseTotal
from elision.audit.habits import CallExample, Habit, pick_examples
from elision.lab.report.figures import format_plural, format_usd
from elision.lab.results import LEAST_SAVING

#: Sentences at most, and the share of the bill from which on something is one.
MOST_ADVICE: Final = 5
LEAST_SHARE: Final = 0.01

Topic: TypeAlias = Cause | Habit | Literal["hiding"]


@dataclass(frozen=True, slots=True)
class _Remedy:
    """cost: begins the sentence: "Reads that follow reads cost $41". act: what to do about it, in whole sentences.

    setting: of Elision, where it can do it; "" where only the user can.
    """

    cost: str
    act: str
    setting: str = ""


#: In the order of a tie.
_REMEDIES: Final[dict[Topic, _Remedy]] = {
    "hiding": _Remedy(
        "Old results that Elision would have hidden cost",
        "Start the agent with `elision wrap AGENT`, or send its requests through `elision serve`.",
        'strategy = "masking"',
    ),
    "reads-apart": _Remedy(
        "Reads that follow reads cost",
        'Let the agent batch them: add "Call all reads and searches that you need next in one step" to its prompt.',
    ),
    "large-results": _Remedy(
        "What results have beyond 4,000 tokens costs",
        "Let these tools return a page, with the line numbers to ask for the next.",
    ),
    "whole-files": _Remedy(
        "Unchanged lines in files that were written again cost",
        'Give the agent an edit tool, and add "Change files by edits, and write only new files whole" to its prompt.',
    ),
    "expired-5m": _Remedy(
        "Pauses that outlast a cache entry of five minutes cost",
        "Use one-hour cache entries if the agent often waits.",
        'cache_ttl = "1h"',
    ),
    "expired-1h": _Remedy(
        "Pauses of more than an hour cost", "Let the agent compact before it waits so long, or begin a new session."
    ),
    "prefix-changed": _Remedy(
        "Prefixes that changed without a pause cost",
        "Keep dates, ids and the order of tools out of the beginning of the prompt, and edit no earlier message.",
    ),
    "missed": _Remedy(
        "Prefixes that the provider's cache did not find cost",
        "Keep the prefix fixed, and send a `prompt_cache_key` where the provider takes one.",
    ),
    "not-cached": _Remedy(
        "Old text that was sent without a cache costs",
        "Have Elision set the breakpoints, or set them in the agent.",
        'cache_control = "auto"',
    ),
    "model-switch": _Remedy("Switches between models cost", "Switch between tasks, not within one."),
    "hour-unpaid": _Remedy(
        "Writes for an hour that served no later call cost",
        "Use five-minute cache entries if calls follow quickly.",
    ),
    "unused-tools": _Remedy(
        "Definitions of tools that were never called cost",
        "Declare the tools that a task needs, or have Elision leave out definitions beyond 2,000 tokens.",
        'tools = "defer"',
    ),
}


@dataclass(frozen=True, slots=True)
class Advice:
    """usd: at most so much of the bill falls away. calls: that have it. examples: the most expensive of them.

    setting: of Elision, where it can do it; "" where only the user can.
    """

    topic: Topic
    text: str
    usd: float
    calls: int
    examples: tuple[CallExample, ...]
    setting: str

    def to_json(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "setting": self.setting or None,
        }


def list_advice(report: AuditReport) -> list[Advice]:
    """Return what would save most, the largest first."""
    found = [advice for advice in _list_all(report) if advice.usd >= LEAST_SHARE * report.total.usd > 0]
    return sorted(found, key=lambda advice: -advice.usd)[:MOST_ADVICE]


def _list_all(report: AuditReport) -> Iterator[Advice]:
    totals: dict[Topic, CauseTotal] = dict([*report.total.causes.items(), *report.habits.items()])
    for topic, remedy in _REMEDIES.items():
        if topic == "hiding":
            saving = report.saving
            if saving is not None and saving.to_recorded is not None and saving.to_recorded < LEAST_SAVING:
                yield _write_advice(topic, remedy, saving.recorded_usd - saving.strategy_usd, report.total.calls, ())
        elif total := totals.get(topic):
            shown = pick_examples(each for run in report.runs for each in run.examples.get(topic, ()))
            yield _write_advice(topic, remedy, total.avoidable_usd, total.calls, shown)


def _write_advice(topic: Topic, remedy: _Remedy, usd: float, calls: int, examples: tuple[CallExample, ...]) -> Advice:
    where = "" if topic == "hiding" else f" in {format_plural(calls, 'call')}"
    setting = f" The setting: {remedy.setting}." if remedy.setting else ""
    shown = f" See {_name_calls(examples)}." if examples else ""
    text = f"{remedy.cost} {format_usd(usd)}{where}. {remedy.act}{setting}{shown}"
    return Advice(topic, text, usd, calls, examples, remedy.setting)


def _name_calls(examples: tuple[CallExample, ...]) -> str:
    """Return which calls of which runs these are: `pi-session, calls 12, 45; kit, call 3`."""
    runs: dict[str, list[int]] = {}
    for each in examples:
        runs.setdefault(name_run(each.file, each.trajectory), []).append(each.call)
    return "; ".join(
        f"{name}, {'call' if len(calls) == 1 else 'calls'} {', '.join(map(str, sorted(calls)))}"
        for name, calls in runs.items()
    )
