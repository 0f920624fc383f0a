"""A run of the agent in the terminal: a line a turn, and at the end what it was."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from elision.agent import Model, RunReport, RunResult, Step
from elision.agent.run_report import Phase
from elision.cli.savings import describe_caching, describe_hiding
from elision.cli.view_text import escape_controls
from elision.lab.ratios import divide_or_zero
from elision.lab.report import figures
from elision.telemetry.diagnostics import Diagnostics

#: Phase -> its colour.
_COLOURS: dict[Phase, str] = {"explore": "cyan", "edit": "yellow", "test": "magenta", "talk": "green"}
#: Stretches of phases that are shown one by one.
_MAX_PHASES = 12


class RunScreen:
    """Writes to `console`; what the model said is text, whatever it holds."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def print_start(self, llm: Model, folder: Path, session: str, goes_on: bool) -> None:
        """Who works where."""
        how = "goes on" if goes_on else "begins"
        where = escape_controls(str(folder.resolve()))
        self._print_line(
            Text(f"{escape_controls(llm.name)} in {where}, session {escape_controls(session)} {how}", style="dim")
        )
        self._print_line(Text("turn  context     cost  phase    what", style="dim"))

    def print_turn(self, step: Step) -> None:
        """A turn is over."""
        told = step.diagnostics
        cost = figures.format_usd(told.costs.ours)
        line = Text(f"{told.turns + 1:4}  {figures.format_tokens(told.after):>7}  {cost:>7}  ")
        line.append(f"{step.phase:<7}", style=_COLOURS[step.phase])
        line.append("  ")
        line.append(_describe_step(step))
        if step.failed:
            line.append("  ✗", style="red")
        self._print_line(line)
        for note in _list_hidden(told):
            self._print_line(Text(f"{'':24}{note}", style="dim"))

    def print_end(
        self, run: RunResult | None, report: RunReport, session: str, again: Mapping[str, str | None]
    ) -> None:
        """What the run was. run: None if it was interrupted. again: options by which it was called."""
        why = "interrupted" if run is None else f"{run.ending}: {escape_controls(run.why)}"
        table = Table.grid(padding=(0, 2))
        table.add_column(style="bold")
        table.add_column()
        table.add_row("ended", why)
        for name, value in _list_result_rows(report):
            table.add_row(name, value)
        self._console.print()
        self._console.print(table)
        self._console.print()
        self._console.print(Text(_list_next_commands(session, again), style="dim"), soft_wrap=True)

    def _print_line(self, line: Text) -> None:
        self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def _describe_step(step: Step) -> str:
    said = step.calls[0] if step.calls else " ".join(step.text.split())
    more = f"  (+{len(step.calls) - 1})" if len(step.calls) > 1 else ""
    return escape_controls(said).replace("\n", " ")[:400] + more


def _list_hidden(told: Diagnostics) -> Iterator[str]:
    """What this pass hid, in a line each."""
    if told.masked:
        saved = sum(each.tokens - each.left for each in told.masked)
        which = _format_range(told.masked[0].handle, " … ", told.masked[-1].handle)
        results = figures.format_plural(len(told.masked), "result")
        yield f"hidden: {results} ({which}), {figures.format_tokens(saved)} tokens"
    if (made := told.summarized) is not None:
        size = f"{figures.format_tokens(made.tokens)} tokens become {figures.format_tokens(made.left)}"
        yield f"summarized: turns {made.first} to {made.last}, {size} ({made.route}, {figures.format_usd(made.usd)})"
    for fault in told.faults:
        yield f"passed over: {fault.kind}: {escape_controls(fault.what)}"


def _list_result_rows(report: RunReport) -> Iterator[tuple[str, str]]:
    steps = report.steps
    newest = report.newest
    if not steps or newest is None:
        yield "turns", "none"
        return
    counted = report.phases
    named = ", ".join(f"{name} {counted[name]}" for name in _COLOURS if counted[name])
    yield "turns", f"{len(steps)} in {sum(step.seconds for step in steps):,.0f} s: {named}"
    spans = [f"{each.phase} {_format_range(str(each.first), '-', str(each.last))}" for each in report.phase_spans]
    left = len(spans) - _MAX_PHASES
    yield "phases", ", ".join(spans[:_MAX_PHASES]) + (f" and {left} more" if left > 0 else "")
    yield "context", _describe_context(report, newest)
    yield "hidden", _describe_hidden(report)
    yield "sent", _describe_sent(report)
    yield "cost", _describe_cost(newest, report)


def _describe_context(report: RunReport, newest: Diagnostics) -> str:
    largest = figures.format_tokens(report.peak_tokens)
    described = f"at most {largest} tokens, {figures.format_plural(newest.epoch - 1, 'cache rewrite')}"
    session = report.context_report
    if session is None or session.phase == "raw":
        return described
    counted = asdict(session.phase_turns)
    phases = ", ".join(f"{count} {name}" for name, count in counted.items() if count)
    return f"{described}; turns of the session: {phases}"


def _format_range(first: str, joint: str, last: str) -> str:
    return first if first == last else f"{first}{joint}{last}"


def _describe_hidden(report: RunReport) -> str:
    if not report.masked_results and not report.summary_calls:
        return "nothing"
    every = report.turns_per_summary
    often = figures.format_plural(len(report.summary_calls), "summary", "summaries")
    if every is not None:
        often += f" (one in {every:.0f} turns)"
    masked = figures.format_plural(report.masked_results, "result")
    return f"{masked}, {often}; {figures.format_tokens(report.tokens_saved)} tokens not sent"


def _describe_sent(report: RunReport) -> str:
    usage = report.usage
    read = divide_or_zero(usage.cache_read, usage.prompt)
    prompt = figures.format_tokens(usage.prompt)
    output = figures.format_tokens(usage.output)
    return f"{prompt} tokens, {figures.format_share(read)} of them read from cache; {output} answered"


def _describe_cost(newest: Diagnostics, report: RunReport) -> str:
    costs = newest.costs
    told = f"{figures.format_usd(costs.ours)} instead of {figures.format_usd(costs.raw)} for sending everything"
    told += f": {describe_hiding(costs)}"
    if caching := describe_caching(costs):
        told += f"; {caching}"
    if costs.summarizer:
        told += f", summaries {figures.format_usd(costs.summarizer)} of it"
    if costs.billed is None:
        return told
    # Of the session's earlier runs it is not known here who reported.
    calls = len(report.steps)
    reported = sum(step.usage is not None for step in report.steps)
    note = f" (in this run {reported} of {figures.format_plural(calls, 'call')})" if reported < calls else ""
    return f"{told}; as reported {figures.format_usd(costs.billed)}{note}"


def _list_next_commands(session: str, again: Mapping[str, str | None]) -> str:
    """Commands that can be typed as they stand; a store whose address may hold a password is not written out."""
    given = {name: value for name, value in again.items() if value}
    if "@" in given.get("store", ""):
        given["store"] = "STORE"
    where = {"store": given["store"]} if "store" in given else {}
    on = _format_command("run", "--session", session, **given)
    export = _format_command("store", "export", session, **where)
    return f"To go on:      {on}\nFor hindsight: {export} --out run.jsonl, then elision replay run.jsonl"


def _format_command(*words: str, **options: str) -> str:
    named = (part for name, value in options.items() for part in (f"--{name}", value))
    return escape_controls(shlex.join(["elision", *words, *named]))
