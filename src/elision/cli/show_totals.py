"""The totals of one session in the terminal: what it sent and cost, and what is hidden and folded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.text import Text

from elision.cli.savings import choose_colour, describe_caching, describe_hiding
from elision.lab.report import figures
from elision.manager.session_history import CallReport, SessionReport
from elision.telemetry.context_report import ContextReport
from elision.telemetry.diagnostics import Diagnostics


def list_totals(account: SessionReport, end: Diagnostics) -> Iterator[tuple[str, Text]]:
    """Yield the name and the text of each row. end: diagnostics of the newest call."""
    if account.shadow:
        yield "shadow", Text("requests went out as they came; all of this is what would have been", style="yellow")
    yield "sent", _describe_tokens_sent(account, end)
    yield "cost", describe_cost(end, account.calls)
    yield "hidden", _describe_hidden_now(end)
    yield from _list_folded_results(account)
    if account.context is not None and account.context.phase != "raw":
        yield "phases", _describe_phases(account.context)
    yield "rewrites", _describe_rewrites(account, end)
    if end.recalls:
        cost = f", {figures.format_usd(end.costs.recalls)}" if end.costs.recalls else ""
        yield "recalls", Text(f"{end.recalls}{cost}")
    if end.stop is not None:
        yield "stop", Text(str(end.stop), style="yellow")
    if end.hint is not None:
        yield "hint", Text(str(end.hint), style="yellow")


def _describe_phases(report: ContextReport) -> Text:
    counted = {name: count for name, count in asdict(report.phase_turns).items() if count}
    listed = ", ".join(f"{count} {name}" for name, count in counted.items())
    line = Text(f"{figures.format_plural(report.turns, 'turn')}: {listed}")
    if report.summaries.frequency is not None:
        line.append(f" · a summary every {report.summaries.frequency:.0f} turns")
    return line


def _describe_tokens_sent(account: SessionReport, end: Diagnostics) -> Text:
    calls = figures.format_plural(len(account.calls), "call")
    turns = figures.format_plural(end.turns, "turn")
    line = Text.assemble((f"{figures.format_tokens(account.sent_tokens)} tokens", "bold"), f" in {calls} over {turns}")
    if account.raw_tokens > account.sent_tokens:
        change = figures.format_change(account.sent_tokens / account.raw_tokens)
        line.append(f" · {figures.format_tokens(account.raw_tokens)} had everything been sent ({change})")
    peak = max(each.sent_tokens for each in account.calls)
    line.append(f" · at most {figures.format_tokens(peak)} at once")
    return line


def describe_cost(end: Diagnostics, passes: Sequence[CallReport]) -> Text:
    """The bill so far, against the other one. passes: those that providers may have reported on."""
    costs = end.costs
    line = Text.assemble((figures.format_usd(costs.ours), "bold"), f" instead of {figures.format_usd(costs.raw)}: ")
    line.append(describe_hiding(costs), style=choose_colour(costs.hiding))
    if caching := describe_caching(costs):
        line.append(f" · {caching}")
    parts = (("summaries", costs.summarizer), ("recalls", costs.recalls))
    of_it = [f"{name} {figures.format_usd(usd)}" for name, usd in parts if usd]
    line.append(f" · of it {', '.join(of_it)}" if of_it else "")
    if costs.billed is not None:
        reported = sum(each.usage is not None for each in passes)
        line.append(f" · as reported {figures.format_usd(costs.billed)}")
        # Beside the whole bill the sum of a few calls would look like a discount.
        if reported < len(passes):
            line.append(f" ({reported:,} of {figures.format_plural(len(passes), 'call')})")
    return line


def _describe_hidden_now(end: Diagnostics) -> Text:
    savings = end.savings
    visible = savings.visible + savings.folded
    seen = savings.masked + visible + savings.covered
    line = Text.assemble(
        (f"{savings.masked} of {figures.format_plural(seen, 'result')} masked", "yellow" if savings.masked else "")
    )
    if savings.covered:
        line.append(f", {savings.covered} in the summary", style="magenta")
    line.append(f", {visible} visible")
    if savings.folded:
        line.append(f", {savings.folded} of them folded", style="bright_blue")
    if end.raw > end.after:
        line.append(
            f" · {figures.format_tokens(end.after)} in place of {figures.format_tokens(end.raw)} at the last call"
        )
    return line


def _list_folded_results(account: SessionReport) -> Iterator[tuple[str, Text]]:
    """Yield a row for the results that were folded, each counted once; none if there are none."""
    folded = {each.handle: each for made in account.calls for each in made.diagnostics.folded}
    if not folded:
        return
    line = Text(figures.format_plural(len(folded), "result"), style="bright_blue")
    tokens = figures.format_tokens(sum(each.tokens for each in folded.values()))
    left = figures.format_tokens(sum(each.left for each in folded.values()))
    line.append(f", {tokens} → {left}", style="default")
    if unfolded := sum(len(made.diagnostics.unfolded) for made in account.calls):
        line.append(f" · {unfolded} × one shown whole again", style="default")
    yield "folded", line


def _describe_rewrites(account: SessionReport, end: Diagnostics) -> Text:
    causes = ", ".join(f"{number} × {cause}" for cause, number in end.rewrites.items() if number)
    line = Text(causes or "none")
    if len(end.rewrites) > 1:
        line.append(f" · {figures.format_count(end.epoch - 1)} in all")
    if account.failed_summary_count:
        line.append(
            f" · {figures.format_plural(account.failed_summary_count, 'summary', 'summaries')} not taken", style="red"
        )
    return line
