"""A view as a report: every message with its size, and marked what is not the recorded text.

Of a recorded run, and of a call of a stored session, with what its pass did and what it cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, Final, TypeAlias

from elision.cli.options import parse_call_number
from elision.cli.session_names import format_session_name
from elision.cli.show_report import describe_cost, describe_failure
from elision.errors import SpecError
from elision.lab.ratios import divide_or_none, divide_or_zero
from elision.lab.report.figures import format_change, format_plural, format_share, format_usd
from elision.lab.report.report import (
    Block,
    Divider,
    Facts,
    Passage,
    Provenance,
    Report,
    Section,
    Sentence,
    ViewEntry,
    Words,
)
from elision.lab.report.sent_wording import describe_sent, label_sent_rows
from elision.lab.results import BILLED, RECORDED
from elision.lab.views import EVERYTHING, ViewAt, ViewBills, build_view
from elision.manager.branch import SessionBranch
from elision.manager.session_history import CallReport, SessionLog
from elision.manager.session_json import encode_call_report
from elision.providers.provider_table import find_provider_or_default
from elision.providers.shared.base_renderer import describe_part
from elision.trajectory.events import RequestSent
from elision.trajectory.foreign_text import escape_controls
from elision.trajectory.plan import make_handle
from elision.trajectory.tokens import Sizer, TokenScale
from elision.trajectory.tool_definitions import get_tool_name, list_tools
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Content, Message, Observation, Text, Turn
from elision.trajectory.view import Segment

#: What a message is called -> its mood.
MOODS: Final[Mapping[str, str]] = {
    "hidden": "quiet",
    "tools": "quiet",
    "recall": "quiet",
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "observation": "result",
    "folded": "folded",
    "placeholder": "masked",
    "clipped": "clipped",
    "summary": "summary",
}
#: How an observation is shown as another text -> what that is called.
HIDING_WORDS: Final[Mapping[str, str]] = {"folded": "folded", "placeholder": "masked", "clipped": "cut to fit"}
#: Rows shown of a long text: from its beginning, and from its end.
Rows: TypeAlias = tuple[int, int]
USUAL_ROWS: Final[Rows] = (7, 3)
#: Of reasoning, and of the arguments of a call.
FEW_ROWS: Final[Rows] = (4, 1)
SUMMARY_ROWS: Final[Rows] = (30, 4)
REMOVED_ROWS: Final[Rows] = (2, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewReporter:
    """Makes reports of views of `trajectory`.

    label: the strategy as the user wrote it. sizer: of the views. full: show every text whole. scale: of a stored
    session: what the provider counts for tokens by the sizer. command, has_page: of the reports.
    """

    trajectory: Trajectory
    label: str
    sizer: Sizer
    full: bool
    scale: TokenScale = field(default_factory=TokenScale)
    command: str = "view"
    has_page: bool = True

    def build(
        self,
        shown: ViewAt,
        *,
        diff: bool = False,
        title: str = "",
        more: Iterable[tuple[str, Words]] = (),
        notes: Iterable[str] = (),
        data: Mapping[str, Any] | None = None,
        made_by: Provenance | None = None,
    ) -> Report:
        """Return the whole view; with `diff` only what is not as it was at the call before.

        more: facts for its foot. notes: sentences below them.
        """
        run = self.trajectory
        title = title or f"Call {shown.call} of {len(run.turns)}"
        if not diff:
            blocks = list(self._list_entries(shown.view.segments, shown))
        elif shown.before is None:
            title += ": everything is new"
            blocks = list(self._list_entries(shown.view.segments, shown, mark="+"))
        else:
            title += f", against call {shown.before.call}"
            blocks = list(self._list_changes(shown, shown.before))
        facts = [*list_view_facts(shown), *more]
        # How many tokens the figures have for one that placeholders state, where that is not one.
        rate = self.sizer.tokenizer.tokens_per_counted * self.scale.rate
        if rate != 1:
            stated = "tokens for each one that placeholders and summaries state in their own text"
            facts.append(("scale", f"{rate:.2f} {stated}"))
        names = " · ".join(filter(None, (run.file, run.id, run.format, run.model)))
        foot: list[Block] = [Facts(facts), *(Sentence(escape_controls(note), "quiet") for note in notes)]
        return Report(
            command=self.command,
            headline=f"{title} · {_describe_size(shown)}",
            scope=[Sentence(self.label, "strong"), Sentence(names)],
            sections=[Section("", blocks), Section("", foot)],
            data=data or {},
            has_page=self.has_page,
            is_paged=True,
            made_by=made_by,
        )

    def _list_entries(self, segments: Iterable[Segment], shown: ViewAt, mark: str = "▌") -> Iterator[Block]:
        for turn, group in groupby(segments, key=lambda segment: segment.turn):
            if turn:
                yield Divider(f"turn {turn}")
            yield from (self._build_entry(segment, shown, mark) for segment in group)

    # -- one segment ----------------------------------------------------------------------------------------------

    def _build_entry(self, segment: Segment, shown: ViewAt, mark: str) -> ViewEntry:
        name, mood = name_segment(segment)
        title: Words = [(name, "strong"), self._describe_segment(segment, shown)]
        return ViewEntry(
            title, mood, self._format_tokens(segment.tokens), list(self._list_passages(segment, mood)), mark
        )

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
            key = (segment.turn, segment.index)
            # This pass hid, cut or folded it.
            now = " now" if any(edit.key == key and edit.kind != "whole" for edit in shown.decided.edits) else ""
            return f"  {word}{now}, was {self._format_tokens(self.sizer.count_observation(source))}"
        return "  an error" if source.error else ""

    def _list_passages(self, segment: Segment, mood: str) -> Iterator[Passage]:
        source = segment.source
        if segment.kind == "tools":
            names = (escape_controls(get_tool_name(tool)) or "?" for tool in list_tools(self.trajectory.head))
            yield self._cut(", ".join(names), "quiet")
        elif segment.kind == "hidden":
            yield self._cut(f"[unrecorded head, {self._format_tokens(segment.tokens)}]", "thinking")
        elif segment.text:
            yield self._cut(segment.text, mood, SUMMARY_ROWS if segment.kind == "summary" else USUAL_ROWS)
        elif isinstance(source, Turn):
            yield from self._list_spoken(source)
        elif isinstance(source, Message | Observation):
            yield self._cut(text_of_content(source.content))

    def _list_spoken(self, turn: Turn) -> Iterator[Passage]:
        if turn.reasoning:
            yield self._cut(turn.reasoning, "thinking", FEW_ROWS)
        calls = [action for action in turn.actions if not action.implicit]
        if turn.content or not (calls or turn.reasoning):
            yield self._cut(text_of_content(turn.content))
        for action in calls:
            before: Words = [("→ ", "assistant"), (escape_controls(action.name), "strong"), " "]
            yield self._cut(action.arguments, rows=FEW_ROWS, before=before)

    def _cut(self, text: str, mood: str = "", rows: Rows = USUAL_ROWS, before: Words = "") -> Passage:
        return Passage(text, mood, None if self.full else rows, before)

    # -- differences ----------------------------------------------------------------------------------------------

    def _list_changes(self, shown: ViewAt, before: ViewAt) -> Iterator[Block]:
        kept = shown.view.count_common(before.view)
        now = shown.view.segments
        then = before.view.segments
        yield Sentence(_describe_rewrite(shown))
        yield Sentence(f"⋮ {_describe_messages(now[:kept])} kept", "quiet")
        yield from _list_removed(shown, then[kept:])
        old = {_segment_identity(segment) for segment in then}
        replaced = {(segment.turn, segment.index): segment for segment in then[kept:] if segment.index}
        for same, group in groupby(now[kept:], key=lambda segment: _segment_identity(segment) in old):
            segments = list(group)
            if same:
                yield Sentence(f"⋮ {_describe_messages(segments)} as before, sent again", "quiet")
                continue
            for turn, each in groupby(segments, key=lambda segment: segment.turn):
                if turn:
                    yield Divider(f"turn {turn}")
                for segment in each:
                    yield from self._list_replaced(segment, replaced.get((segment.turn, segment.index)))
                    yield self._build_entry(segment, shown, "+")

    def _list_replaced(self, segment: Segment, old: Segment | None) -> Iterator[Block]:
        if old is None or segment.kind not in HIDING_WORDS:
            return
        title = [(f"{name_segment(old)[0]}  {format_plural(old.tokens, 'token')}", "strong")]
        text = old.text or (text_of_content(old.source.content) if isinstance(old.source, Observation) else "")
        yield ViewEntry(title, "clipped", "", [self._cut(text, "clipped", REMOVED_ROWS)], "−")


def _list_removed(shown: ViewAt, then: Sequence[Segment]) -> Iterator[Block]:
    """Yield what a summary written now takes the place of."""
    if shown.decided.summary is None:
        return
    stays = {_segment_identity(segment) for segment in shown.view.segments}
    lost = [each for each in then if _segment_identity(each) not in stays and each.turn <= covered_turns(shown)]
    yield Sentence(f"− {_describe_messages(lost)} give way to a summary", "worse")


def _segment_identity(segment: Segment) -> int:
    """Equal where the same is sent: what the user said behind a covered turn moves, and stays what it is."""
    return id(segment.source if segment.kind == "interjection" else segment)


def _describe_messages(segments: Sequence[Segment]) -> str:
    messages = sum(segment.kind not in ("hidden", "tools", "recall") for segment in segments)
    tokens = sum(segment.tokens for segment in segments)
    return f"{format_plural(messages, 'message')}, {format_plural(tokens, 'token')}"


def name_segment(segment: Segment) -> tuple[str, str]:
    """What a segment is called, and its mood."""
    source = segment.source
    if isinstance(source, Message):
        return source.role, MOODS[source.role]
    if isinstance(source, Observation):
        tool = escape_controls(source.tool) or "result"
        return f"{make_handle((segment.turn, segment.index))} {tool}", MOODS[segment.kind]
    return {"hidden": "head"}.get(segment.kind, segment.kind), MOODS[segment.kind]


def text_of_content(parts: Content) -> str:
    """Content as text; parts that are none by name or, where they can be read, as JSON."""
    return "\n".join(part.text if isinstance(part, Text) else describe_part(part) or f"[{part.kind}]" for part in parts)


def covered_turns(shown: ViewAt) -> int:
    """The newest turn that the view's summary covers; 0 without one."""
    if not any(segment.kind == "summary" for segment in shown.view.segments):
        return 0
    turns = (segment.turn for segment in shown.view.segments if segment.kind == "assistant")
    return min(turns, default=shown.call) - 1


# -- totals -----------------------------------------------------------------------------------------------------------


def list_view_facts(shown: ViewAt) -> Iterator[tuple[str, Words]]:
    """Yield the lines under a view: name and text."""
    rewrites = format_plural(shown.epoch - 1, "cache rewrite")
    yield "sent", [(_describe_size(shown), "strong"), f" · {rewrites} so far"]
    bill = shown.bill
    share = format_share(divide_or_zero(bill.cache_read, bill.prompt_tokens))
    fresh = bill.prompt_tokens - bill.cache_read
    yield "cache", [(f"{share} read", "strong"), f" · {bill.cache_read:,} from the cache, {fresh:,} new to it"]
    yield "hidden", _describe_hidden(shown)
    yield "this pass", _describe_decision(shown)


def _describe_size(shown: ViewAt) -> str:
    """`8,120 tokens, 34 % less than sending everything (12,300)`."""
    sent, everything = shown.bill.prompt_tokens, shown.raw.prompt_tokens
    text = format_plural(sent, "token")
    if everything <= sent:
        return text
    return f"{text}, {format_share(1 - sent / everything)} less than sending everything ({everything:,})"


def _describe_hidden(shown: ViewAt) -> Words:
    """What became of the observations made so far."""
    seen = [segment for segment in shown.view.segments if isinstance(segment.source, Observation)]
    masked = sum(segment.kind == "placeholder" for segment in seen)
    folded = sum(segment.kind == "folded" for segment in seen)
    behind = covered_turns(shown)
    return [
        (f"{masked} of {len(seen)} observations masked", "masked" if masked else ""),
        (f" · {folded} folded" if folded else "", "folded"),
        (f" · turns 1-{behind} in the summary" if behind else "", "summary"),
    ]


def _describe_decision(shown: ViewAt) -> Words:
    decided = shown.decided
    text: list[str | tuple[str, str]] = [escape_controls(decided.reason)]
    counts = Counter(edit.kind for edit in decided.edits)
    if counts["mask"]:
        text.append((f" · {format_plural(counts['mask'], 'observation')} masked now", "masked"))
    if counts["fold"]:
        text.append((f" · {counts['fold']} folded now", "folded"))
    if counts["whole"]:
        text.append((f" · {counts['whole']} unfolded now", "folded"))
    if decided.summary:
        tokens = format_plural(decided.summary.input_tokens, "token")
        text.append((f" · summary written now, from {tokens}", "summary"))
    if counts["clip"]:
        text.append((f" · {counts['clip']} cut to fit", "clipped"))
    return text


def _describe_rewrite(shown: ViewAt) -> Words:
    """The first line of a difference."""
    rewrite = shown.rewrite
    if rewrite is None or shown.before is None:
        return [("Nothing was rewritten: what was sent before is unchanged.", "better")]
    place = shown.view.segments[rewrite.place : rewrite.place + 1]
    what = name_segment(place[0])[0] if place else "its end"
    return [
        (f"First rewritten byte {rewrite.byte:,}", "worse"),
        f": message {rewrite.message} ({what}), character {rewrite.character:,} · ",
        (f"{format_plural(rewrite.tokens, 'token')} kept", "strong"),
        f" · rewrite {shown.epoch - 1}",
    ]


# -- bills ------------------------------------------------------------------------------------------------------------


def list_bill_facts(bills: ViewBills, call: int) -> Iterator[tuple[str, Words]]:
    """Yield what the run had cost by `call`: so, as it was sent, as it was billed, against what was sent."""
    names = label_sent_rows(bills.sending)
    rows = dict(bills.list_rows(call))
    sent = rows[RECORDED].usd
    for name, row in rows.items():
        # A bill at its own model's prices compares with no other one.
        is_compared = name != RECORDED and (name != BILLED or bills.sending.own_prices)
        change = f" ({format_change(divide_or_none(row.usd, sent))} vs recorded)" if is_compared else ""
        share = format_share(divide_or_none(row.cached, row.tokens))
        never = " (never sent)" if name == EVERYTHING and bills.is_never_sent(call) else ""
        text = f"{change} · {format_plural(row.tokens, 'token')} at this call, {share} read"
        yield f"{names.get(name, name)}{never}", [(f"{format_usd(row.usd)} so far", "strong"), text]


def describe_view_bills(bills: ViewBills) -> Iterator[str]:
    """Yield how the rows came about, and what the recording lacks."""
    yield from describe_sent(bills.sending, bills.find_cost(BILLED), bills.find_cost(RECORDED), bills.prices.name)


# -- a call of a stored session ----------------------------------------------------------------------------------------

#: Share of a prompt that is named where the provider reported it and no message has it.
UNSEEN_SHARE: Final = 0.02


def build_call_report(log: SessionLog, call: str, dialect: str, *, full: bool) -> Report:
    """Return call number `call`, or the last; of a call that was made more than once the newest request.

    Raises SpecError for a call that was not made.
    """
    number, times = _parse_call_number(log, call)
    made, going, before = _go_to_call(log, number, times)
    spoken = dialect or (log.opened.dialect if log.opened else "")
    view = build_view(going.log, find_provider_or_default(spoken).make_renderer())
    calls = max(event.call for event in log.events if isinstance(event, RequestSent))
    # What the session knew at this call.
    state = going.log.state
    known = Trajectory(id=log.info.key, head=state.head, turns=tuple(state.turns), model=log.model)
    scale = going.log.reports.scale
    reporter = ViewReporter(
        trajectory=known,
        label=log.strategy,
        sizer=going.log.sizer,
        full=full,
        scale=scale,
        command="sessions show",
        has_page=False,
    )
    # The prompt is as long as everywhere else: by the provider's report, where there is one.
    billed = replace(view, bill=made.bills.ours, raw=made.bills.raw)
    facts = [*_list_call_facts(made, times, before)]
    unseen = made.sent_tokens - scale.convert_part(view.view.tokens)
    if unseen > UNSEEN_SHARE * made.sent_tokens:
        facts.append(("elsewhere", f"{unseen:,} of the tokens sent are in no message above, by the provider's report"))
    data = {**encode_call_report(made), "system": view.system, "messages": view.messages}
    return reporter.build(billed, title=f"Call {number} of {calls}", more=facts, data=data)


def _parse_call_number(log: SessionLog, call: str) -> tuple[int, int]:
    """The call that is meant, and how often it was made."""
    made = [event.call for event in log.events if isinstance(event, RequestSent)]
    if not made:
        raise SpecError(f"session {format_session_name(log.info.key)!r}: no call was made yet")
    number = parse_call_number(call, made[-1])
    if number not in made:
        raise SpecError(
            f"no call {format_session_name(call)!r}: give a number from {min(made)} to {max(made)}, or last"
        )
    return number, made.count(number)


def _go_to_call(log: SessionLog, number: int, times: int) -> tuple[CallReport, SessionBranch, list[CallReport]]:
    """The call's newest pass, the session as it was then, and the passes before it."""
    before: list[CallReport] = []
    for made, going in log.iterate_calls():
        if made is not None and made.diagnostics.call == number:
            times -= 1
            if not times:
                return made, going, before
        if made is not None:
            before.append(made)
    raise AssertionError(f"call {number} is in the log")


def _list_call_facts(made: CallReport, times: int, before: Sequence[CallReport]) -> Iterator[tuple[str, Words]]:
    """What a stored call has to say beyond what any view has."""
    told = made.diagnostics
    so_far = describe_cost(told, before)
    yield "cost", [(format_usd(made.bills.ours.usd), "strong"), " for the prompt · so far ", *so_far]
    if made.usage is not None:
        yield "reported", _describe_reported_usage(made)
    if made.recalled:
        handles = ", ".join(make_handle(each.key) for each in made.recalled)
        yield "recalled", f"{handles} after this call"
    for failed in made.failed_summaries:
        yield "failed", [(describe_failure(failed), "worse")]
    if made.head_changed:
        yield "head", [("system prompt, tools or task had changed", "note")]
    if times > 1:
        yield "requests", f"made {times} times; this is the newest"
    for name, said in (("stop", told.stop), ("hint", told.hint)):
        if said is not None:
            yield name, [(str(said), "warning")]


def _describe_reported_usage(made: CallReport) -> str:
    usage = made.usage
    assert usage is not None
    share = format_share(usage.cache_read / usage.prompt if usage.prompt else None)
    difference = usage.prompt - made.diagnostics.after
    counted = f", {abs(difference):,} {'more' if difference > 0 else 'fewer'} than counted" if difference else ""
    return f"{usage.prompt:,} tokens{counted} · {share} read from cache · {usage.output:,} answered"
