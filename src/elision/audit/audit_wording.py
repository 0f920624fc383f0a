"""The sentences of an audit, for terminal and page alike.

What would save most on the bill is said in at most five of them, in USD, each with the calls that show it.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from elision.audit.audit_report import TOLERANCE, AuditReport, RunTotals, SavingEstimate, compare_bills
from elision.audit.cause_table import CAUSES, Cause, CauseTotal
from elision.audit.habits import CallExample, Habit, pick_examples
from elision.audit.run_partition import AuditFinding
from elision.formats.source import derive_run_name
from elision.lab.ratios import divide_or_none
from elision.lab.report.figures import (
    NOTHING,
    format_change,
    format_count,
    format_plural,
    format_share,
    format_tokens,
    format_usd,
    neutralize_text,
)
from elision.lab.report.report import Column
from elision.lab.report.sent_wording import describe_sent, label_sent_rows
from elision.lab.results import BILLED, LEAST_SAVING, RECORDED
from elision.telemetry.context_report import format_signed_percent

#: Runs that are named whose recorded bill is not the sum of their causes.
LISTED_DEVIATIONS: Final = 5
#: Of the cells of one format.
READER_COLUMNS: Final = (
    Column("runs", 5),
    Column("calls", 4),
    Column("causes", 6),
    Column("recorded", 3),
    Column("difference", 2),
    Column("largest cause", 1, "left"),
)
#: Format of a log -> what `elision wrap` calls the agent that wrote it.
_WRAPPED: Final = {"claude-code": "claude", "codex": "codex", "opencode": "opencode", "pi-session": "pi"}


def write_audit_headline(report: AuditReport) -> str:
    """Return the bill, what of it could have been avoided, and what Elision would have cost where that is less."""
    billed = [run for run in report.runs if run.calls]
    if not billed:
        return "No billed call with a known price was found."
    total = report.total
    share = format_share(divide_or_none(total.avoidable_usd, total.usd))
    scope = f"{format_plural(total.calls, 'call')} in {format_plural(sum(run.runs for run in billed), 'run')}"
    avoidable = f"{format_usd(total.avoidable_usd)} ({share})"
    text = f"{format_usd(total.usd)} for {scope}; at most {avoidable} of it could have been avoided."
    saving = report.saving
    if saving is None or saving.to_recorded is None or saving.to_recorded >= LEAST_SAVING:
        return text
    costs = f"{format_usd(saving.strategy_usd)} instead of {format_usd(saving.recorded_usd)}"
    return f"{text} Masking would have cost {costs} ({format_change(saving.to_recorded)})."


def describe_recorded_bill(report: AuditReport) -> str:
    """Return how the sum of the causes compares with what the logs state."""
    total = report.total
    if not total.stated_calls:
        return "The causes sum to the bill at list prices; the logs state no cost."
    calls = format_plural(total.stated_calls, "call")
    text = (
        f"The causes of {calls} sum to {format_usd(total.stated_list_usd)}; the logs state"
        f" {format_usd(total.stated_usd)} for them"
    )
    return text if total.difference is None else f"{text} ({format_signed_percent(total.difference, 2)})."


def list_audit_notes(report: AuditReport) -> Iterator[str]:
    """Yield what else a reader must know of the figures."""
    deviating = []
    for run in report.runs:
        difference = compare_bills(run.stated_usd, run.stated_list_usd)
        if run.file and difference is not None and abs(difference) > TOLERANCE:
            deviating.append(run)
    for run in deviating[:LISTED_DEVIATIONS]:
        yield (
            f"{name_run(run.file, run.trajectory)}: the log states {format_usd(run.stated_usd)}, list prices of"
            f" {run.prices.name if run.prices else run.model} give {format_usd(run.stated_list_usd)};"
            " --model or --price sets others."
        )
    if len(deviating) > LISTED_DEVIATIONS:
        rest = format_plural(len(deviating) - LISTED_DEVIATIONS, "more run")
        yield f"Likewise {rest}; --json has the difference of each."
    for model, (calls, tokens) in report.unpriced.items():
        yield (
            f"No price is known for {neutralize_text(model) or 'an unnamed model'}: {format_plural(calls, 'call')} with"
            f" {format_tokens(tokens)} tokens are left out; --price sets one."
        )
    if report.total.copied_calls:
        yield f"Counted once: {format_plural(report.total.copied_calls, 'call')} of which several logs have a copy."
    if report.silent:
        yield f"Left out: {format_plural(report.silent, 'run')} without recorded usage."
    if report.saving is not None:
        saving = report.saving
        yield from describe_sent(saving.sent, saving.billed_usd, saving.recorded_usd, "given")


def list_reader_cells(total: RunTotals) -> list[str]:
    """Return the cells of one format: runs, calls, sum of the causes, recorded bill, difference, largest cause."""
    causes = total.causes
    largest = max(causes, key=lambda cause: causes[cause].usd, default=None)
    return [
        format_count(total.runs),
        format_count(total.calls),
        format_usd(total.usd) if causes else NOTHING,
        format_usd(total.stated_usd) if total.stated_usd else NOTHING,
        NOTHING if total.difference is None else format_signed_percent(total.difference, 2),
        NOTHING if largest is None else CAUSES[largest].title,
    ]


def describe_saving(report: AuditReport) -> str:
    """Return what the recommended strategy would have saved; "" where nothing was replayed."""
    saving = report.saving
    if saving is None or saving.to_recorded is None:
        return ""
    change = format_change(saving.to_recorded)
    runs = format_plural(saving.sent.runs, "run")
    how = ""
    if saving.sent.condensed_runs:
        how = " on top of the agents' own condensing" if saving.is_on_top else " instead of the agents' own condensing"
    text = (
        f"Replayed over the same {runs}, the strategy masking{how} costs {format_usd(saving.strategy_usd)}; what was"
        f" sent costs {format_usd(saving.recorded_usd)} by the same count ({change})."
    )
    if saving.to_recorded >= LEAST_SAVING:
        why = "these runs are too short for hiding to pay"
        if saving.sent.condensed_runs:
            why = "the agents' own condensing saves as much already"
        return f"{text} Change nothing, because {why}."
    return f'{text} The setting to take: strategy = "{report.strategy}".'


def list_saving_rows(saving: SavingEstimate) -> list[tuple[str, str, str]]:
    """Return what the replayed runs cost, as rows: what of, USD, and the change against what was sent."""
    names = label_sent_rows(saving.sent)
    rows = [(names[BILLED], saving.billed_usd), (names[RECORDED], saving.recorded_usd)]
    if saving.sent.condensed_runs:
        rows += [
            ("sending everything (never sent)", saving.raw_usd),
            ("masking instead of the agents' condensing", saving.instead_usd),
            ("masking on top of it", saving.on_top_usd),
        ]
    else:
        rows.append(("masking", saving.instead_usd))
    # A bill of some of the runs compares with nothing.
    is_whole = saving.sent.billed_runs == saving.sent.runs and saving.sent.own_prices
    alone = {names[RECORDED]} if is_whole else set(names.values())
    return [
        (name, format_usd(usd), NOTHING if name in alone else format_change(usd / saving.recorded_usd))
        for name, usd in rows
        if usd and saving.recorded_usd
    ]


def suggest_command(report: AuditReport, paths: Sequence[Path]) -> str:
    """Return one command to continue with; "" where there is nothing to gain."""
    if report.saving is None or report.saving.to_recorded is None:
        return shlex.join(["elision", "replay", *map(str, paths)])
    if report.strategy == "raw":
        return ""
    agent = _WRAPPED.get(report.main_reader)
    if agent is not None:
        return shlex.join(["elision", "wrap", "--strategy", report.strategy, agent])
    return shlex.join(["elision", "serve", "--strategy", report.strategy])


def describe_finding(finding: AuditFinding) -> str:
    """Return what happened at a call, where and after what pause."""
    if finding.cause == "compaction" and finding.first_token:
        place = f"after the first {format_count(finding.first_token)}"
    elif finding.first_token:
        place = f"from token {format_count(finding.first_token)} on: {finding.place}"
    else:
        place = "the whole prompt"
    place += _explain_edit(finding)
    pause = "" if finding.seconds is None else f"; {format_pause(finding.seconds)} since the call before"
    guess = " (inferred)" if finding.is_inferred else ""
    return f"{CAUSES[finding.cause].title}{guess}: {format_tokens(finding.tokens)} tokens, {place}{pause}"


def _explain_edit(finding: AuditFinding) -> str:
    """Return whose edit a changed prefix was, as far as the log shows; "" for every other cause."""
    if finding.changed and finding.cause in ("prefix-changed", "missed"):
        return f"; {' and '.join(finding.changed)} changed before this call"
    if finding.cause != "prefix-changed" or not finding.first_token:
        return ""
    if finding.place == "system prompt, tools or task":
        return "; changed by the agent, or by a proxy in between"
    # A provider may also have read an older, shorter entry: one report does not tell the two apart.
    return "; whole in the log, so edited on its way (agent, proxy, gateway), or an older entry was read"


def name_finding(finding: AuditFinding) -> str:
    """Return which call of which run a finding is about."""
    return f"{name_run(finding.file, finding.trajectory)}, call {finding.call}"


def name_run(file: str, trajectory: str) -> str:
    """Return how a run is called: its file's name, and its own where the file has several."""
    name = derive_run_name(file)
    run = "" if trajectory in ("main", name) else f" {trajectory}"
    return neutralize_text(f"{name}{run}")


def format_pause(seconds: float) -> str:
    """Return a pause in its largest unit: `38 s`, `28 min`, `9.3 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


# -- what would save most ---------------------------------------------------------------------------------------------


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
