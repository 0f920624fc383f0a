"""A view in the terminal: every message with its size, and in colour what is not the recorded text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.rule import Rule
from rich.segment import Segment as Piece
from rich.style import Style
from rich.table import Table
from rich.text import Text as Line

from elision.cli.view_text import FoldedText, escape_controls, fold_text, make_visible
from elision.lab.ratios import divide_or_none, divide_or_zero
from elision.lab.report.figures import format_change, format_plural, format_share, format_usd
from elision.lab.report.sent_wording import describe_sent, label_sent_rows
from elision.lab.results import BILLED, RECORDED
from elision.lab.view_bills import EVERYTHING, ViewBills
from elision.lab.views import ViewAt
from elision.providers.shared.base_renderer import describe_part
from elision.providers.shared.json_reading import mapping_in
from elision.trajectory.content import Content, Text
from elision.trajectory.plan import make_handle
from elision.trajectory.token_scale import TokenScale
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Message, Observation, Turn
from elision.trajectory.view import Segment

QUIET = "bright_black"
#: What a message is called in the terminal -> its colour.
COLOURS: Mapping[str, str] = {
    "hidden": QUIET,
    "tools": QUIET,
    "recall": QUIET,
    "system": "blue",
    "developer": "blue",
    "user": "cyan",
    "assistant": "green",
    "observation": "white",
    "folded": "bright_blue",
    "placeholder": "yellow",
    "clipped": "red",
    "summary": "magenta",
}
#: How an observation is shown as another text -> what that is called.
HIDING_WORDS: Mapping[str, str] = {
    "folded": "folded",
    "placeholder": "masked",
    "clipped": "cut to fit",
}
#: Rows shown of a long text: from its beginning, and from its end.
Rows: TypeAlias = tuple[int, int]
USUAL_ROWS: Rows = (7, 3)
REASONING_ROWS: Rows = (4, 1)
ARGUMENT_ROWS: Rows = (4, 1)
SUMMARY_ROWS: Rows = (30, 4)
REMOVED_ROWS: Rows = (2, 1)


@dataclass(frozen=True, slots=True)
class BarredBlock:
    """`body` with `mark` in front of every row."""

    body: RenderableType
    mark: str
    colour: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width - len(self.mark) - 1
        style = Style.parse(self.colour)
        for row in console.render_lines(self.body, options.update(width=width), pad=False):
            yield Piece(f"{self.mark} ", style)
            yield from row
            yield Piece.line()


class ViewScreen:
    """Prints views of `trajectory`.

    label: the strategy as the user wrote it. sizer: of the views. full: show every text whole.
    scale: of a stored session: what the provider counts for tokens by the sizer.
    """

    def __init__(
        self,
        console: Console,
        trajectory: Trajectory,
        label: str,
        sizer: Sizer,
        *,
        full: bool,
        scale: TokenScale | None = None,
    ) -> None:
        self.console = console
        self.trajectory = trajectory
        self.label = label
        self.sizer = sizer
        self.full = full
        self.scale = scale or TokenScale()

    def print_view(self, shown: ViewAt, *, title: str = "", more: Iterable[tuple[str, Line]] = ()) -> None:
        """The whole view. more: lines for the foot of the page."""
        self._print_title(title or f"call {shown.call} of {len(self.trajectory.turns)}")
        self._print_entries(shown.view.segments, shown)
        self._print_totals(shown, more)

    def print_changes(self, shown: ViewAt, *, more: Iterable[tuple[str, Line]] = ()) -> None:
        """What is not as it was at the call before. more: lines for the foot of the page."""
        if shown.before is None:
            self._print_title(f"call 1 of {len(self.trajectory.turns)}: everything is new")
            self._print_entries(shown.view.segments, shown, mark="+")
        else:
            self._print_title(f"call {shown.call} of {len(self.trajectory.turns)}, against call {shown.before.call}")
            self._print_changed_segments(shown, shown.before)
        self._print_totals(shown, more)

    def print_notes(self, notes: Iterable[str]) -> None:
        """Sentences below the foot of the page."""
        for note in notes:
            self._print_block(Line(escape_controls(note), style=QUIET))

    def _print_block(self, what: RenderableType) -> None:
        # No markup, emoji codes or highlighting: trajectories only ever come as `Text`, and are not to be read.
        self.console.print(what, markup=False, emoji=False, highlight=False)

    def _print_title(self, what: str) -> None:
        run = self.trajectory
        self._print_block(Rule(Line(what, style="bold"), style=QUIET))
        self._print_block(Line(escape_controls(self.label), style="bold"))
        self._print_block(
            Line(escape_controls(" · ".join(filter(None, (run.file, run.id, run.format, run.model)))), style=QUIET)
        )

    def _print_totals(self, shown: ViewAt, more: Iterable[tuple[str, Line]] = ()) -> None:
        self._print_block(Rule(style=QUIET))
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style=QUIET, no_wrap=True)
        grid.add_column()
        for name, fact in (*list_view_facts(shown), *more, *self._list_scale_facts()):
            grid.add_row(name, fact)
        self._print_block(grid)

    def _list_scale_facts(self) -> Iterator[tuple[str, Line]]:
        """Yield how many tokens the figures have for one that placeholders state, where that is not one."""
        rate = self.sizer.tokenizer.tokens_per_counted * self.scale.rate
        if rate != 1:
            yield (
                "scale",
                Line(f"{rate:.2f} tokens for each one that placeholders and summaries state in their own text"),
            )

    def _print_entries(self, segments: Iterable[Segment], shown: ViewAt, mark: str = "▌") -> None:
        for turn, group in groupby(segments, key=lambda segment: segment.turn):
            self._print_turn_head(turn)
            for segment in group:
                self._print_block(self._build_entry(segment, shown, mark))

    def _print_turn_head(self, turn: int) -> None:
        if turn:
            self._print_block(Line(""))
            self._print_block(Rule(Line(f"turn {turn}", style=QUIET), style=QUIET, align="left", characters="·"))

    # -- one segment ----------------------------------------------------------------------------------------------

    def _build_entry(self, segment: Segment, shown: ViewAt, mark: str) -> RenderableType:
        name, colour = name_segment(segment)
        title = Line(name, style=f"bold {colour}")
        title.append(self._describe_segment(segment, shown), style=f"not bold italic {colour}")
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1)
        grid.add_column(justify="right", no_wrap=True, style=QUIET)
        grid.add_row(title, self._format_tokens(segment.tokens))
        return BarredBlock(Group(grid, *self._body_lines(segment, colour)), mark, colour)

    def _format_tokens(self, counted: int) -> str:
        return format_plural(self.scale.convert_part(counted), "token")

    def _describe_segment(self, segment: Segment, shown: ViewAt) -> str:
        source = segment.source
        if segment.kind == "summary":
            return f"  of turns 1-{covered_turns(shown)}{', written now' if shown.decided.summary else ''}"
        if not isinstance(source, Observation):
            return ""
        if segment.kind in HIDING_WORDS:
            word = HIDING_WORDS[segment.kind]
            now = " now" if (segment.turn, segment.index) in changed_segments(shown) else ""
            return f"  {word}{now}, was {self._format_tokens(self.sizer.count_observation(source))}"
        return "  an error" if source.error else ""

    def _body_lines(self, segment: Segment, colour: str) -> Iterator[Line]:
        source = segment.source
        if segment.kind == "tools":
            yield self._folded_text(", ".join(list_tool_names(self.trajectory)), QUIET)
        elif segment.kind == "hidden":
            yield Line(f"[unrecorded head, {self._format_tokens(segment.tokens)}]", style=f"italic {QUIET}")
        elif segment.text:
            yield self._folded_text(segment.text, colour, SUMMARY_ROWS if segment.kind == "summary" else USUAL_ROWS)
        elif isinstance(source, Turn):
            yield from self._spoken_lines(source)
        elif isinstance(source, Message | Observation):
            yield self._folded_text(text_of_content(source.content))

    def _spoken_lines(self, turn: Turn) -> Iterator[Line]:
        if turn.reasoning:
            yield self._folded_text(turn.reasoning, f"italic {QUIET}", REASONING_ROWS)
        calls = [action for action in turn.actions if not action.implicit]
        if turn.content or not (calls or turn.reasoning):
            yield self._folded_text(text_of_content(turn.content))
        for action in calls:
            arguments = self._folded_text(action.arguments, rows=ARGUMENT_ROWS)
            yield Line.assemble(("→ ", "green"), (escape_controls(action.name), "bold"), " ", arguments)

    def _folded_text(self, text: str, style: str = "", rows: Rows = USUAL_ROWS) -> Line:
        clean = make_visible(text).expandtabs(4).strip("\n")
        if not clean.strip():
            return Line("(empty)", style=f"italic {QUIET}")
        return build_line(
            FoldedText(clean) if self.full else fold_text(clean, *rows, width=max(20, self.console.width - 2)), style
        )

    # -- differences ----------------------------------------------------------------------------------------------

    def _print_changed_segments(self, shown: ViewAt, before: ViewAt) -> None:
        kept = shown.view.count_common(before.view)
        now = shown.view.segments
        then = before.view.segments
        self._print_block(_describe_rewrite_line(shown))
        self._print_quietly(f"⋮ {_describe_messages(now[:kept])} kept")
        self._print_removed(shown, then[kept:])
        old = {_segment_identity(segment) for segment in then}
        replaced = {(segment.turn, segment.index): segment for segment in then[kept:] if segment.index}
        for same, group in groupby(now[kept:], key=lambda segment: _segment_identity(segment) in old):
            segments = list(group)
            if same:
                self._print_quietly(f"⋮ {_describe_messages(segments)} as before, sent anew")
                continue
            for turn, each in groupby(segments, key=lambda segment: segment.turn):
                self._print_turn_head(turn)
                for segment in each:
                    self._print_replaced(segment, replaced.get((segment.turn, segment.index)))
                    self._print_block(self._build_entry(segment, shown, "+"))

    def _print_replaced(self, segment: Segment, old: Segment | None) -> None:
        if old is None or segment.kind not in HIDING_WORDS:
            return
        title = Line(f"{name_segment(old)[0]}  {format_plural(old.tokens, 'token')}", style="bold red")
        text = old.text or (text_of_content(old.source.content) if isinstance(old.source, Observation) else "")
        self._print_block(BarredBlock(Group(title, self._folded_text(text, "red", REMOVED_ROWS)), "−", "red"))

    def _print_removed(self, shown: ViewAt, then: Sequence[Segment]) -> None:
        """What a summary written now takes the place of."""
        if shown.decided.summary is None:
            return
        stays = {_segment_identity(segment) for segment in shown.view.segments}
        lost = [each for each in then if _segment_identity(each) not in stays and each.turn <= covered_turns(shown)]
        self._print_block(Line(f"− {_describe_messages(lost)} give way to a summary", style="red"))

    def _print_quietly(self, text: str) -> None:
        self._print_block(Line(text, style=QUIET))


def _segment_identity(segment: Segment) -> int:
    """Equal where the same is sent: what the user said behind a covered turn moves, and stays what it is."""
    return id(segment.source if segment.kind == "interjection" else segment)


def build_line(cut: FoldedText, style: str = "") -> Line:
    """A folded text, with a count in place of what is left out."""
    line = Line(cut.head, style=style)
    if cut.rows:
        line.append(f"\n⋯ {cut.rows:,} more rows, {cut.letters:,} characters ⋯\n", style=f"italic {QUIET}")
        line.append(cut.tail)
    return line


def _describe_messages(segments: Sequence[Segment]) -> str:
    messages = sum(segment.kind not in ("hidden", "tools", "recall") for segment in segments)
    tokens = sum(segment.tokens for segment in segments)
    return f"{format_plural(messages, 'message')}, {format_plural(tokens, 'token')}"


def name_segment(segment: Segment) -> tuple[str, str]:
    """What a segment is called, and its colour."""
    source = segment.source
    if isinstance(source, Message):
        return source.role, COLOURS[source.role]
    if isinstance(source, Observation):
        tool = escape_controls(source.tool) or "result"
        return f"{make_handle((segment.turn, segment.index))} {tool}", COLOURS[segment.kind]
    return {"hidden": "head"}.get(segment.kind, segment.kind), COLOURS[segment.kind]


def text_of_content(parts: Content) -> str:
    """Content as text; parts that are none by name or, where they can be read, as JSON."""
    return "\n".join(part.text if isinstance(part, Text) else describe_part(part) or f"[{part.kind}]" for part in parts)


def list_tool_names(trajectory: Trajectory) -> list[str]:
    """The names in tool definitions of any dialect."""
    found = (tool.get("name") or mapping_in(tool.get("function")).get("name") for tool in trajectory.head.tools)
    return [escape_controls(name) if isinstance(name, str) else "?" for name in found]


def covered_turns(shown: ViewAt) -> int:
    """The newest turn that the view's summary covers; 0 without one."""
    if not any(segment.kind == "summary" for segment in shown.view.segments):
        return 0
    turns = (segment.turn for segment in shown.view.segments if segment.kind == "assistant")
    return min(turns, default=shown.call) - 1


def changed_segments(shown: ViewAt) -> set[tuple[int, int]]:
    """Observations that this pass hid, cut or folded."""
    return {edit.key for edit in shown.decided.edits if edit.kind != "whole"}


# -- totals -----------------------------------------------------------------------------------------------------------


def list_view_facts(shown: ViewAt) -> Iterator[tuple[str, Line]]:
    """The lines under a view: name and text."""
    yield "sent", _describe_sent_line(shown)
    yield "cache", _describe_cache_line(shown)
    yield "hidden", _describe_hidden_line(shown)
    yield "this pass", _describe_decision_line(shown)


def _describe_sent_line(shown: ViewAt) -> Line:
    rewrites = format_plural(shown.epoch - 1, "cache rewrite")
    sent = shown.bill.prompt_tokens
    total = Line.assemble((format_plural(sent, "token"), "bold"), f" · {rewrites} so far")
    if shown.raw.prompt_tokens > sent:
        share = 1 - sent / shown.raw.prompt_tokens
        total.append(f" · {format_share(share)} less than sending everything ({shown.raw.prompt_tokens:,})")
    return total


def _describe_cache_line(shown: ViewAt) -> Line:
    bill = shown.bill
    share = format_share(divide_or_zero(bill.cache_read, bill.prompt_tokens))
    fresh = bill.prompt_tokens - bill.cache_read
    return Line.assemble((f"{share} read", "bold"), f" · {bill.cache_read:,} from the cache, {fresh:,} new to it")


def _describe_hidden_line(shown: ViewAt) -> Line:
    """What became of the observations made so far."""
    seen = [segment for segment in shown.view.segments if isinstance(segment.source, Observation)]
    masked = sum(segment.kind == "placeholder" for segment in seen)
    folded = sum(segment.kind == "folded" for segment in seen)
    behind = covered_turns(shown)
    line = Line.assemble((f"{masked} of {len(seen)} observations masked", "yellow" if masked else ""))
    if folded:
        line.append(" · ").append(f"{folded} folded", style=COLOURS["folded"])
    if behind:
        line.append(" · ").append(f"turns 1-{behind} in the summary", style="magenta")
    return line


def _describe_decision_line(shown: ViewAt) -> Line:
    decided = shown.decided
    line = Line(escape_controls(decided.reason))
    counts = Counter(edit.kind for edit in decided.edits)
    if counts["mask"]:
        line.append(f" · {format_plural(counts['mask'], 'observation')} masked now", style="yellow")
    if counts["fold"]:
        line.append(f" · {counts['fold']} folded now", style=COLOURS["folded"])
    if counts["whole"]:
        line.append(f" · {counts['whole']} unfolded now", style=COLOURS["folded"])
    if decided.summary:
        line.append(
            f" · summary written now, from {format_plural(decided.summary.input_tokens, 'token')}", style="magenta"
        )
    if counts["clip"]:
        line.append(f" · {counts['clip']} cut to fit", style="red")
    return line


def _describe_rewrite_line(shown: ViewAt) -> Line:
    """The first line of a difference."""
    rewrite = shown.rewrite
    if rewrite is None or shown.before is None:
        return Line("Nothing was rewritten: what was sent before stands, byte for byte.", style="green")
    place = shown.view.segments[rewrite.place : rewrite.place + 1]
    what = name_segment(place[0])[0] if place else "its end"
    return Line.assemble(
        (f"First rewritten byte {rewrite.byte:,}", "bold red"),
        f": message {rewrite.message} ({what}), character {rewrite.character:,} · ",
        (f"{format_plural(rewrite.tokens, 'token')} kept", "bold"),
        f" · rewrite {shown.epoch - 1}",
    )


# -- what the run had cost by then: so, as it was sent, as it was billed ----------------------------------------------


def list_bill_facts(bills: ViewBills, call: int) -> Iterator[tuple[str, Line]]:
    """Yield a line for each row at `call`: its name, and its figures against what was sent."""
    names = label_sent_rows(bills.sending)
    rows = dict(bills.list_rows(call))
    sent = rows[RECORDED].usd
    for name, row in rows.items():
        line = Line.assemble((f"{format_usd(row.usd)} so far", "bold"))
        # A bill at its own model's prices compares with no other one.
        if name != RECORDED and (name != BILLED or bills.sending.own_prices):
            line.append(f" ({format_change(divide_or_none(row.usd, sent))} vs recorded)")
        share = format_share(divide_or_none(row.cached, row.tokens))
        line.append(f" · {format_plural(row.tokens, 'token')} at this call, {share} read")
        never = " (never sent)" if name == EVERYTHING and bills.is_never_sent(call) else ""
        yield f"{names.get(name, name)}{never}", line


def describe_view_bills(bills: ViewBills) -> Iterator[str]:
    """Yield how the rows came about, and what the recording lacks."""
    yield from describe_sent(bills.sending, bills.find_cost(BILLED), bills.find_cost(RECORDED), bills.prices.name)
