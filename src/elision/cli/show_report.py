"""One session as a report: its totals, its context over the calls, and every pass that did something."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from typing import Any, Final

from elision.cli.session_figures import choose_mood, describe_hiding
from elision.cli.session_names import format_session_name
from elision.lab.report import figures
from elision.lab.report.report import (
    Block,
    Chart,
    Column,
    Facts,
    Report,
    Section,
    Sentence,
    Table,
    TableRow,
    Words,
)
from elision.manager.session_history import CallReport, SessionReport
from elision.stores.store import SessionInfo
from elision.telemetry.context_report import ContextReport
from elision.telemetry.diagnostics import Diagnostics, Hidden, Summarized
from elision.trajectory.events import SummaryFailed
from elision.trajectory.foreign_text import escape_controls
from elision.trajectory.plan import make_handle
from elision.trajectory.redact import DEFAULT, Redaction

#: Results that are named for one pass unless all are asked for: the largest.
NAMED: Final = 4
#: Passes that are listed where there are more: the first ones, and the newest.
FIRST = 8
LAST = 16
#: Lines of a summary that are shown unless all are asked for.
SUMMARY_LINES: Final = 3
#: Hours from which on time is told in days.
_DAYS: Final = 48
#: Rows of a chart.
HEIGHT: Final = 6
#: Cells of the scale in front of it.
SCALE: Final = 7
#: Cells of a chart at most, however wide the terminal.
WIDEST: Final = 160
#: Cells of a call at most.
WIDE: Final = 4
#: Raw contexts that are larger by more than this leave the chart at its top, so that what was sent can be seen.
TALLEST: Final = 4.0
_EIGHTHS: Final = " ▁▂▃▄▅▆▇█"
_RAW: Final = "░"


def build_session_report(
    account: SessionReport,
    branches: Sequence[SessionInfo],
    data: Mapping[str, Any],
    *,
    full: bool,
    redaction: Redaction = DEFAULT,
) -> Report:
    """Return the report of a session. branches: forks, rewritten histories and sub-agents that came from it.

    full: name everything that was hidden, and show summaries whole. redaction: of the texts of summaries.
    """
    name = format_session_name(account.info.key)
    end = account.final
    if end is None:
        turns = figures.format_plural(account.info.turns, "turn")
        headline, sections = f"{name}: no call yet, {turns} kept", []
    else:
        headline = f"{name}: {describe_hiding(end.costs)}"
        now = time.time()
        facts = [*_list_totals(account, end)]
        for place, info in enumerate(branches):
            turns = figures.format_plural(info.turns, "turn")
            changed = f"changed {figures.format_duration(now - info.changed)} ago"
            branch = f"{format_session_name(info.key)} · {info.relation or 'child'} · {turns} · {changed}"
            facts.append(("" if place else "branches", branch))
        sent = [each.sent_tokens for each in account.calls]
        raw = [max(each.raw_tokens, each.sent_tokens) for each in account.calls]
        hidden = ", ░ hidden or summarized" if raw != sent else ""
        chart: list[Block] = [
            Chart("context", "the context over the calls", rows=partial(draw_chart, sent, raw)),
            Sentence(f"context in tokens, call 1 to {len(sent)}: █ sent{hidden}", "quiet"),
        ]
        sections = [
            Section("", chart),
            Section("", [Facts(facts)]),
            Section("", list(_build_timeline(account, full=full))),
            Section("summaries", list(_show_summaries(account, redaction, full=full))),
        ]
    return Report(
        command="sessions show",
        headline=headline,
        scope=[Sentence(_describe_session(account))],
        sections=sections,
        data=data,
        has_page=False,
    )


def _show_summaries(account: SessionReport, redaction: Redaction, *, full: bool) -> Iterator[Block]:
    """Yield every summary with its beginning, or whole."""
    for entry in account.summaries:
        first, last = entry.covers_turns
        writer = escape_controls(entry.writer) or "a function of one's own"
        cost = f", {figures.format_usd(entry.usd)}" if entry.usd else ""
        call, tokens = figures.format_count(entry.call), figures.format_tokens(entry.tokens)
        made = f" at call {call}, {tokens} tokens, by {writer}{cost}"
        yield Sentence([(f"turns {first}-{last}", "summary"), made])
        lines = redaction.redact_text(entry.text).strip().splitlines()
        shown = lines if full else lines[:SUMMARY_LINES]
        for line in shown:
            yield Sentence(escape_controls(line), "quiet", clipped=not full)
        if len(lines) > len(shown):
            more = figures.format_plural(len(lines) - len(shown), "more line")
            yield Sentence(f"… {more}; --full prints all", "quiet")


# -- time line --------------------------------------------------------------------------------------------------------


def _build_timeline(account: SessionReport, *, full: bool) -> Iterator[Block]:
    """Yield every pass that did something, and what the calls from there to the next one saved."""
    told = [each for each in account.calls if has_news(each)]
    if not told:
        yield Sentence(_describe_idle_calls(account.calls))
        return
    columns = [Column("call"), Column("at", 1), Column("context", 3), Column("saved", 4)]
    # Net USD that hiding saved from each of them up to the next.
    before = [0.0, *(each.diagnostics.costs.hiding for each in account.calls)]
    marks = [before[place] for place, each in enumerate(account.calls) if has_news(each)]
    marks.append(account.final.costs.hiding if account.final is not None else before[-1])
    saved = [later - earlier for earlier, later in pairwise(marks)]
    between = [] if full else told[FIRST:-LAST]
    rows = [
        TableRow([*_list_cells(made, account, usd), _join_lines(_list_lines(made, full=full))])
        for made, usd in zip(told, saved, strict=True)
    ]
    if between:
        passes = figures.format_plural(len(between), "pass", "passes")
        note = f"{passes} between; --full lists {'it' if len(between) == 1 else 'them'}"
        usd = figures.format_signed_usd(sum(saved[FIRST:-LAST]))
        rows[FIRST:-LAST] = [TableRow(["⋮", "", "", usd, note], "quiet")]
    yield Table([*columns, Column("what and why", 5, "wrap")], rows)
    yield Sentence(_explain_table(account), "quiet")


def _describe_idle_calls(calls: Sequence[CallReport]) -> str:
    is_shorter = any(each.diagnostics.folded for each in calls)
    hidden = "masked or summarized" if is_shorter else "hidden"
    reason = format_session_name(calls[-1].diagnostics.reason)
    return f"Nothing was {hidden} in {figures.format_plural(len(calls), 'call')}; at the last one: {reason}."


def _list_cells(made: CallReport, account: SessionReport, saved: float) -> Iterator[Words]:
    told = made.diagnostics
    yield [(figures.format_count(told.call), "strong")]
    yield [(_format_moment(made.at, account.calls[0].at), "quiet")]
    after = figures.format_tokens(made.sent_tokens)
    yield f"{figures.format_tokens(made.tokens_before)} → {after}" if told.after != told.before else after
    yield [(figures.format_signed_usd(saved), choose_mood(saved))]


def _join_lines(lines: Iterator[Words]) -> Words:
    pieces: list[str | tuple[str, str]] = []
    for line in lines:
        pieces += ["\n"] if pieces else []
        pieces += [line] if isinstance(line, str) else line
    return pieces


def _list_lines(made: CallReport, *, full: bool) -> Iterator[Words]:
    told = made.diagnostics
    yield from _list_events(made)
    if told.summarized is not None:
        yield _describe_summary(told.summarized)
    for word, hidden, mood in (
        ("masked", told.masked, "masked"),
        ("cut to fit", told.clipped, "clipped"),
        ("folded", told.folded, "folded"),
    ):
        if hidden:
            yield _describe_hidden(word, hidden, mood, full=full)
    if told.unfolded:
        yield [(f"shown whole again: {', '.join(told.unfolded[:NAMED])}", "folded")]
    if told.acted or made.held:
        yield [(f"why: {format_session_name(told.reason)}", "quiet")]
    read = []
    for each in made.recalled:
        reader = "the agent" if each.by == "tool" else f"the {format_session_name(each.by)}"
        read.append(f"{make_handle(each.key)} ({figures.format_tokens(each.tokens)}, by {reader})")
    if read:
        yield [("read again: ", "note"), ", ".join(read)]
    for exchange in made.exchanged:
        messages = figures.format_plural(len(exchange.messages), "message")
        count = len(exchange.results)
        results = f", {figures.format_plural(count, 'result')} in front of its next" if count else ""
        yield [("answered here: ", "note"), f"{messages} in place of the one that the client saw{results}"]


def _describe_hidden(word: str, hidden: Sequence[Hidden], mood: str, *, full: bool) -> Words:
    """How much, and the largest of it by handle."""
    tokens = sum(each.tokens for each in hidden)
    left = sum(each.left for each in hidden)
    largest = hidden if full else sorted(hidden, key=lambda each: -each.tokens)[:NAMED]
    named = ", ".join(
        f"{each.handle} {format_session_name(each.tool)} {figures.format_tokens(each.tokens)}" for each in largest
    )
    more = len(hidden) - len(largest)
    return [
        (f"{word} {figures.format_plural(len(hidden), 'result')}", mood),
        f", {figures.format_tokens(tokens)} → {figures.format_tokens(left)}: {named}",
        (f" and {more} more" if more else "", "quiet"),
    ]


def _explain_table(account: SessionReport) -> str:
    """Return what `saved` means, and the commands that show more of this session."""
    session = shlex.quote(format_session_name(account.info.key))
    hidden = next((each.diagnostics.masked[0] for each in account.calls if each.diagnostics.masked), None)
    handle = hidden.handle if hidden else "t1.1"
    return (
        "saved: by hiding, net USD from this call to the next one listed, against sending everything. Read what was "
        f"hidden: elision sessions recall {session} {handle}; a call as it was sent: elision sessions show {session} "
        "--call N; both with the same --store."
    )


def has_news(made: CallReport) -> bool:
    """Whether there is anything to say of a pass."""
    told = made.diagnostics
    beside = (
        made.failed_summaries
        or made.recalled
        or made.exchanged
        or made.head_changed
        or made.learned_window
        or made.tools_entered
        or made.held
    )
    return bool(told.acted or beside)


def _format_moment(at: float | None, first: float | None) -> str:
    """Since the session's first call: +2:30, +1:04:10, +3 d."""
    if at is None or first is None:
        return figures.NOTHING
    minutes, seconds = divmod(max(0, round(at - first)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= _DAYS:
        return f"+{hours // 24} d"
    if hours:
        return f"+{hours}:{minutes:02}:{seconds:02}"
    return f"+{minutes}:{seconds:02}"


# -- what happened ----------------------------------------------------------------------------------------------------


def _list_events(made: CallReport) -> Iterator[Words]:
    if made.head_changed:
        yield [("system prompt, tools or task changed: everything is sent again", "note")]
    if made.tools_entered:
        anew = "everything is sent again" if made.diagnostics.call > 1 else "from the first call on"
        yield [(f"the recall tools entered: {anew}", "note")]
    for failed in made.failed_summaries:
        cost = f", {figures.format_usd(failed.usd)}" if failed.usd else ""
        later = f"; not again before call {failed.retry_at}" if failed.retry_at > made.diagnostics.call else ""
        yield [(describe_failure(failed), "worse"), cost + later]
    if made.learned_window:
        yield [(f"refused: the model's window is {figures.format_tokens(made.learned_window)} tokens", "worse")]


def describe_failure(failed: SummaryFailed) -> str:
    """Return why there is no summary."""
    return f"no summary ({format_session_name(failed.cause)}): {format_session_name(failed.reason)}"


def _describe_summary(made: Summarized) -> Words:
    how = "without a model" if made.route == "model-free" else f"{figures.format_usd(made.usd)} ({made.route})"
    sizes = f"{figures.format_tokens(made.tokens)} → {figures.format_tokens(made.left)}"
    return [(f"summarized turns {made.first}-{made.last}", "summary"), f", {sizes}, {how}"]


# -- the session ------------------------------------------------------------------------------------------------------


def _describe_session(account: SessionReport) -> str:
    info = account.info
    facts = [format_session_name(account.strategy)] if account.strategy else []
    facts.append(format_session_name(account.model) if account.model else "no model named")
    if not account.has_own_prices or account.prices.name != account.model:
        facts.append(f"priced as {account.prices.name}")
    if info.parent:
        facts.append(f"{info.relation or 'child'} of {format_session_name(info.parent)}")
    return " · ".join([*facts, f"changed {figures.format_duration(time.time() - info.changed)} ago"])


# -- totals -----------------------------------------------------------------------------------------------------------


def _list_totals(account: SessionReport, end: Diagnostics) -> Iterator[tuple[str, Words]]:
    """Yield the name and the text of each row. end: diagnostics of the newest call."""
    if account.shadow:
        yield "shadow", [("requests were sent unchanged; all of this is hypothetical", "warning")]
    yield "sent", _describe_tokens_sent(account, end)
    yield "cost", describe_cost(end, account.calls)
    yield "hidden", _describe_hidden_now(end)
    if any(made.diagnostics.folded for made in account.calls):
        yield "folded", _describe_folded(account.calls)
    if account.context is not None and account.context.phase != "raw":
        yield "phases", _describe_phases(account.context)
    yield "rewrites", _describe_rewrites(end, account.failed_summary_count)
    if end.recalls:
        cost = f", {figures.format_usd(end.costs.recalls)}" if end.costs.recalls else ""
        yield "recalls", f"{end.recalls}{cost}"
    for name, said in (("stop", end.stop), ("hint", end.hint)):
        if said is not None:
            yield name, [(str(said), "warning")]


def _describe_folded(calls: Sequence[CallReport]) -> Words:
    # Each folded result is counted once.
    folded = {each.handle: each for made in calls for each in made.diagnostics.folded}.values()
    tokens = figures.format_tokens(sum(each.tokens for each in folded))
    left = figures.format_tokens(sum(each.left for each in folded))
    unfolded = sum(len(made.diagnostics.unfolded) for made in calls)
    again = f" · {unfolded} × one shown in full again" if unfolded else ""
    return [(figures.format_plural(len(folded), "result"), "folded"), f", {tokens} → {left}{again}"]


def _describe_phases(context: ContextReport) -> str:
    counted = {name: count for name, count in asdict(context.phase_turns).items() if count}
    listed = ", ".join(f"{count} {name}" for name, count in counted.items())
    often = context.summaries.frequency
    every = f" · a summary every {often:.0f} turns" if often is not None else ""
    return f"{figures.format_plural(context.turns, 'turn')}: {listed}{every}"


def _describe_tokens_sent(account: SessionReport, end: Diagnostics) -> Words:
    calls = figures.format_plural(len(account.calls), "call")
    text = f" in {calls} over {figures.format_plural(end.turns, 'turn')}"
    if account.raw_tokens > account.sent_tokens:
        change = figures.format_change(account.sent_tokens / account.raw_tokens)
        text += f" · {figures.format_tokens(account.raw_tokens)} had everything been sent ({change})"
    peak = max(each.sent_tokens for each in account.calls)
    text += f" · at most {figures.format_tokens(peak)} at once"
    return [(f"{figures.format_tokens(account.sent_tokens)} tokens", "strong"), text]


def describe_cost(end: Diagnostics, passes: Sequence[CallReport]) -> list[str | tuple[str, str]]:
    """The bill so far, against the other one. passes: those that providers may have reported on."""
    costs = end.costs
    parts = (("summaries", costs.summarizer), ("recalls", costs.recalls))
    of_it = [f"{name} {figures.format_usd(usd)}" for name, usd in parts if usd]
    rest = []
    if costs.caching > 0:
        rest.append(f"cache breakpoints, which the client does not set, saved {figures.format_usd(costs.caching)}")
    if of_it:
        rest.append(f"of it {', '.join(of_it)}")
    if costs.billed is not None:
        reported = sum(each.usage is not None for each in passes)
        # Beside the whole bill the sum of a few calls would look like a discount.
        some = f" ({reported:,} of {figures.format_plural(len(passes), 'call')})" if reported < len(passes) else ""
        rest.append(f"as reported {figures.format_usd(costs.billed)}{some}")
    return [
        (figures.format_usd(costs.ours), "strong"),
        f" instead of {figures.format_usd(costs.raw)}: ",
        (describe_hiding(costs), choose_mood(costs.hiding)),
        "".join(f" · {text}" for text in rest),
    ]


def _describe_rewrites(end: Diagnostics, failed: int) -> Words:
    causes = ", ".join(f"{number} × {cause}" for cause, number in end.rewrites.items() if number)
    in_all = f" · {figures.format_count(end.epoch - 1)} in all" if len(end.rewrites) > 1 else ""
    lost = f" · {figures.format_plural(failed, 'summary', 'summaries')} not taken" if failed else ""
    return [(causes or "none") + in_all, (lost, "worse")]


def _describe_hidden_now(end: Diagnostics) -> Words:
    savings = end.savings
    visible = savings.visible + savings.folded
    seen = figures.format_plural(savings.masked + visible + savings.covered, "result")
    sizes = f"{figures.format_tokens(end.after)} in place of {figures.format_tokens(end.raw)}"
    return [
        (f"{savings.masked} of {seen} masked", "masked" if savings.masked else ""),
        (f", {savings.covered} in the summary" if savings.covered else "", "summary"),
        f", {visible} visible",
        (f", {savings.folded} of them folded" if savings.folded else "", "folded"),
        f" · {sizes} at the last call" if end.raw > end.after else "",
    ]


# -- chart -----------------------------------------------------------------------------------------------------------


def draw_chart(sent: Sequence[int], raw: Sequence[int], width: int) -> list[Words]:
    """`HEIGHT` rows of at most `width` cells; a call takes a cell or more; where there
    are too many, a cell is the largest of several.

    sent, raw: tokens, call by call, equally many.
    """
    room = max(1, min(width, WIDEST) - SCALE)
    columns = max(1, min(len(sent), room))
    # Few calls have several cells each, so that more than a sliver is seen.
    cells = max(1, min(WIDE, room // columns))
    ends = [len(sent) * column // columns for column in range(columns + 1)]
    ours, everything = (
        [max(values[start:end], default=0) for start, end in pairwise(ends) for _ in range(cells)]
        for values in (sent, raw)
    )
    highest = min(max(everything, default=0), int(max(ours, default=0) * TALLEST)) or 1
    return [_draw_row(row, ours, everything, highest) for row in reversed(range(HEIGHT))]


def _draw_row(row: int, ours: Sequence[int], raw: Sequence[int], highest: int) -> Words:
    """Row `row` from below: eighths of a cell for what was sent, a shade where only raw would have reached."""
    cells = []
    for mine, all_ in zip(ours, raw, strict=True):
        filled = _filled_eighths(mine, row, highest)
        shade = _RAW if _filled_eighths(all_, row, highest) >= 4 else " "
        cells.append((_EIGHTHS[filled], "note") if filled else (shade, "quiet"))
    label = {HEIGHT - 1: figures.format_tokens(highest), 0: "0"}.get(row, "")
    return [(f"{label:>{SCALE - 1}} ", "quiet"), *cells]


def _filled_eighths(value: int, row: int, highest: int) -> int:
    """Eighths of row `row` that `value` reaches; what is there at all shows in the lowest row."""
    eighths = round(value * HEIGHT * 8 / highest)
    return max(0, min(8, max(eighths, 1 if value else 0) - row * 8))
