"""One session in the terminal: its totals, its context over the calls, and every pass that did something."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from elision.cli.amounts import format_duration
from elision.cli.savings import choose_colour
from elision.cli.session_names import format_session_name
from elision.cli.sessions_table import format_usd
from elision.cli.show_chart import draw_chart
from elision.cli.show_totals import list_totals
from elision.cli.view_screen import QUIET
from elision.cli.view_text import escape_controls
from elision.lab.report import figures
from elision.manager.session_history import CallReport, SessionReport
from elision.manager.summary_list import SessionSummary
from elision.stores.store import SessionInfo
from elision.telemetry.diagnostics import Diagnostics, Hidden
from elision.trajectory.events import SummaryFailed
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
#: Cells of a chart at most.
_WIDEST: Final = 160


class SessionScreen:
    """Prints sessions to `console`. full: name everything that was hidden, and print summaries whole.

    redaction: of the texts of summaries.
    """

    def __init__(self, console: Console, *, full: bool, redaction: Redaction = DEFAULT) -> None:
        self.console = console
        self.full = full
        self.redaction = redaction

    def show(self, account: SessionReport, branches: Sequence[SessionInfo]) -> None:
        """The session. branches: forks, rewritten histories and sub-agents that came from it."""
        self._print_block(Rule(Text(format_session_name(account.info.key), style="bold"), style=QUIET))
        self._print_block(Text(_describe_session(account), style=QUIET))
        if account.final is None:
            self._print_block(Text(f"no call yet, {figures.format_plural(account.info.turns, 'turn')} kept"))
            return
        self._print_chart(account)
        self._print_rows(list_totals(account, account.final))
        self._print_rows(_list_branches(branches))
        self._print_timeline(account)
        self._print_summaries(account)

    def _print_block(self, what: RenderableType) -> None:
        # Sessions hold anyone's text: nothing in it is markup.
        self.console.print(what, markup=False, emoji=False, highlight=False)

    def _print_rows(self, rows: Iterator[tuple[str, Text]]) -> None:
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style=QUIET, no_wrap=True, min_width=8)
        grid.add_column()
        for name, fact in rows:
            grid.add_row(name, fact)
        if grid.row_count:
            self._print_block(grid)

    def _print_chart(self, account: SessionReport) -> None:
        sent = [each.sent_tokens for each in account.calls]
        raw = [max(each.raw_tokens, each.sent_tokens) for each in account.calls]
        self._print_block(Text())
        for row in draw_chart(sent, raw, min(self.console.width, _WIDEST)):
            self._print_block(row)
        hidden = ", ░ hidden or summarized" if raw != sent else ""
        self._print_block(Text(f"       context in tokens, call 1 to {len(sent)}: █ sent{hidden}", style=QUIET))
        self._print_block(Text())

    def _print_summaries(self, account: SessionReport) -> None:
        """Print every summary with its beginning, or whole."""
        found = account.summaries
        if not found:
            return
        self._print_block(Text())
        self._print_block(Text("summaries", style="bold"))
        for entry in found:
            self._print_block(_describe_entry(entry))
            lines = self.redaction.redact_text(entry.text).strip().splitlines()
            shown = lines if self.full else lines[:SUMMARY_LINES]
            # A line that is too wide is cut where only a beginning is shown, and folded otherwise.
            for line in shown:
                text = Text(escape_controls(line), style=QUIET)
                if not self.full:
                    text.truncate(max(20, self.console.width - 2), overflow="ellipsis")
                self._print_block(Padding(text, (0, 0, 0, 2)))
            if len(lines) > len(shown):
                more = figures.format_plural(len(lines) - len(shown), "more line")
                self._print_block(Padding(Text(f"… {more}; --full prints all", style=QUIET), (0, 0, 0, 2)))

    # -- time line ------------------------------------------------------------------------------------------------

    def _print_timeline(self, account: SessionReport) -> None:
        """Every pass that did something, and what the calls from there to the next one saved."""
        told = [each for each in account.calls if has_news(each)]
        self._print_block(Text())
        if not told:
            calls = figures.format_plural(len(account.calls), "call")
            reason = format_session_name(account.calls[-1].diagnostics.reason)
            is_shorter = any(each.diagnostics.folded for each in account.calls)
            hidden = "masked or summarized" if is_shorter else "hidden"
            self._print_block(Text(f"Nothing was {hidden} in {calls}; at the last one: {reason}."))
            return
        table = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(4):
            table.add_column(justify="right", no_wrap=True)
        table.add_column(ratio=1)
        table.add_row(*(Text(title, style="bold") for title in ("call", "at", "context", "saved", "what and why")))
        rows = list(zip(told, _accumulate_savings(account, told), strict=True))
        between = [] if self.full else rows[FIRST:-LAST]
        for number, (made, saved) in enumerate(rows):
            if not FIRST <= number < FIRST + len(between):
                table.add_row(*self._timeline_cells(made, account, saved), Text("\n").join(self._timeline_lines(made)))
            elif number == FIRST:
                passes = figures.format_plural(len(between), "pass", "passes")
                note = f"{passes} between; --full lists {'it' if len(between) == 1 else 'them'}"
                table.add_row("⋮", "", "", format_usd(sum(usd for _, usd in between)), Text(note), style=QUIET)
        self._print_block(table)
        self._print_block(Padding(Text(_explain_table(account), style=QUIET), (1, 0, 0, 0)))

    def _timeline_cells(self, made: CallReport, account: SessionReport, saved: float) -> Iterator[Text]:
        told = made.diagnostics
        yield Text(figures.format_count(told.call), style="bold")
        yield Text(_format_moment(made.at, account.calls[0].at), style=QUIET)
        after = figures.format_tokens(made.sent_tokens)
        yield Text(f"{figures.format_tokens(made.tokens_before)} → {after}" if told.after != told.before else after)
        yield Text(format_usd(saved), style=choose_colour(saved))

    def _timeline_lines(self, made: CallReport) -> Iterator[Text]:
        told = made.diagnostics
        yield from _list_events(made)
        if told.summarized is not None:
            yield _describe_summary(told)
        if told.masked:
            yield self._hidden_line("masked", told.masked, "yellow")
        if told.clipped:
            yield self._hidden_line("cut to fit", told.clipped, "red")
        if told.folded:
            yield self._hidden_line("folded", told.folded, "bright_blue")
        if told.unfolded:
            yield Text(f"shown whole again: {', '.join(told.unfolded[:NAMED])}", style="bright_blue")
        if told.acted or made.held:
            yield Text(f"why: {format_session_name(told.reason)}", style=QUIET)
        yield from _list_recalls(made)
        yield from _list_exchanges(made)

    def _hidden_line(self, word: str, hidden: Sequence[Hidden], colour: str) -> Text:
        """How much, and the largest of it by handle."""
        tokens = sum(each.tokens for each in hidden)
        left = sum(each.left for each in hidden)
        line = Text.assemble((f"{word} {figures.format_plural(len(hidden), 'result')}", colour))
        line.append(f", {figures.format_tokens(tokens)} → {figures.format_tokens(left)}: ")
        largest = hidden if self.full else sorted(hidden, key=lambda each: -each.tokens)[:NAMED]
        line.append(
            ", ".join(
                f"{each.handle} {format_session_name(each.tool)} {figures.format_tokens(each.tokens)}"
                for each in largest
            )
        )
        if more := len(hidden) - len(largest):
            line.append(f" and {more} more", style=QUIET)
        return line


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


def _accumulate_savings(account: SessionReport, told: Sequence[CallReport]) -> Iterator[float]:
    """Net USD that hiding saved from each of `told` up to the next."""
    before = [0.0, *(each.diagnostics.costs.hiding for each in account.calls)]
    saved = [before[place] for place, each in enumerate(account.calls) if any(each is one for one in told)]
    saved.append(account.final.costs.hiding if account.final is not None else before[-1])
    yield from (later - earlier for earlier, later in pairwise(saved))


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


def _list_events(made: CallReport) -> Iterator[Text]:
    if made.head_changed:
        yield Text("system prompt, tools or task changed: everything is sent anew", style="cyan")
    if made.tools_entered:
        anew = "everything is sent anew" if made.diagnostics.call > 1 else "from the first call on"
        yield Text(f"the recall tools entered: {anew}", style="cyan")
    for failed in made.failed_summaries:
        line = describe_failure(failed)
        if failed.usd:
            line.append(f", {figures.format_usd(failed.usd)}")
        if failed.retry_at > made.diagnostics.call:
            line.append(f"; not again before call {failed.retry_at}")
        yield line
    if made.learned_window:
        yield Text(f"refused: the model's window is {figures.format_tokens(made.learned_window)} tokens", style="red")


def describe_failure(failed: SummaryFailed) -> Text:
    """Return why there is no summary."""
    return Text(f"no summary ({format_session_name(failed.cause)}): {format_session_name(failed.reason)}", style="red")


def _describe_summary(told: Diagnostics) -> Text:
    made = told.summarized
    assert made is not None
    line = Text.assemble((f"summarized turns {made.first}-{made.last}", "magenta"))
    line.append(f", {figures.format_tokens(made.tokens)} → {figures.format_tokens(made.left)}, ")
    line.append("without a model" if made.route == "model-free" else f"{figures.format_usd(made.usd)} ({made.route})")
    return line


def _describe_entry(entry: SessionSummary) -> Text:
    first, last = entry.covers_turns
    line = Text.assemble((f"turns {first}-{last}", "magenta"))
    line.append(f" at call {figures.format_count(entry.call)}, {figures.format_tokens(entry.tokens)} tokens, by ")
    line.append(escape_controls(entry.writer) or "a function of one's own")
    if entry.usd:
        line.append(f", {figures.format_usd(entry.usd)}")
    return line


def _list_recalls(made: CallReport) -> Iterator[Text]:
    read = []
    for each in made.recalled:
        reader = "the agent" if each.by == "tool" else f"the {format_session_name(each.by)}"
        read.append(f"{make_handle(each.key)} ({figures.format_tokens(each.tokens)}, by {reader})")
    if read:
        yield Text.assemble(("read again: ", "cyan"), ", ".join(read))


def _list_exchanges(made: CallReport) -> Iterator[Text]:
    for each in made.exchanged:
        messages = figures.format_plural(len(each.messages), "message")
        line = Text.assemble(("answered here: ", "cyan"), f"{messages} in place of the one that the client saw")
        if each.results:
            line.append(f", {figures.format_plural(len(each.results), 'result')} in front of its next")
        yield line


# -- the session ------------------------------------------------------------------------------------------------------


def _describe_session(account: SessionReport) -> str:
    info = account.info
    facts = [format_session_name(account.strategy)] if account.strategy else []
    facts.append(format_session_name(account.model) if account.model else "no model named")
    if not account.has_own_prices or account.prices.name != account.model:
        facts.append(f"priced as {account.prices.name}")
    if info.parent:
        facts.append(f"{info.relation or 'child'} of {format_session_name(info.parent)}")
    return " · ".join([*facts, f"changed {format_duration(time.time() - info.changed)} ago"])


def _list_branches(branches: Sequence[SessionInfo]) -> Iterator[tuple[str, Text]]:
    now = time.time()
    for place, info in enumerate(branches):
        turns = figures.format_plural(info.turns, "turn")
        told = f"{format_session_name(info.key)} · {info.relation or 'child'} · {turns}"
        yield "" if place else "branches", Text(f"{told} · changed {format_duration(now - info.changed)} ago")
