"""Call by call, what the model would be sent under a strategy, and what the run had cost by then.

The costs are those of `elision replay` up to that call: under the strategy, as it was sent, as billed, and whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile
from typing import Any, Final

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.errors import SpecError
from elision.lab.replay import Replay, model_free_summarizer, replay_run
from elision.lab.results import BILLED, RECORDED, SentSummary
from elision.lab.run_as_recorded import calls
from elision.lab.sent_rows import replay_as_sent
from elision.providers.openai_chat import render as render_openai_chat
from elision.providers.shared.base_renderer import JsonMessage, ViewRenderer
from elision.strategies.schedules import HindsightSchedule
from elision.strategies.strategy import Strategy
from elision.trajectory.events import PassDecided
from elision.trajectory.price_lookup import cost_reported_usage
from elision.trajectory.prices import Bill, Prices
from elision.trajectory.tokens import Sizer
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.view import Segment, View


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Where a view stops being the one before it.

    place:     the first segment that is another one, 0-based.
    tokens:    kept in front of it.
    message:   1-based number of the message it falls into.
    character: characters of the segment's text in front of the change; 0 where another message stands in its place.
    byte:      bytes in front of the change, of the messages as JSON text in UTF-8 (see `to_json`).
    """

    place: int
    tokens: int
    message: int
    character: int
    byte: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewAt:
    """One call of a replay, as it would be sent.

    messages: of the request. plain: the same without cache markers. system: blocks, where the dialect keeps them apart.
    decided:  what this pass did, and why. bill: of the prompt. raw: of sending everything.
    before:   the call before this one (its own `before` is None); None at the first.
    """

    call: int
    epoch: int
    view: View
    messages: list[JsonMessage] = field(repr=False)
    plain: list[JsonMessage] = field(repr=False)
    system: list[JsonMessage] = field(repr=False)
    decided: PassDecided
    bill: Bill
    raw: Bill
    before: ViewAt | None = field(default=None, repr=False)

    @property
    def keep(self) -> int:
        """How many leading messages are those of the call before, cache markers included."""
        return _count_common(self.before.messages, self.messages) if self.before else 0

    @property
    def rewrite(self) -> Rewrite | None:
        """The first thing that is not as it was at the call before; None if this view only adds to it."""
        if self.before is None:
            return None
        before = self.before.view
        place = self.view.count_common(self.before.view)
        if place == before.length:
            return None
        message = _count_common(self.before.plain, self.plain)
        return Rewrite(
            place=place,
            tokens=self.view.track.count_tokens_before(place),
            message=message + 1,
            character=_count_shared_characters(
                before.track.segments[place], self.view.track.segments[place : self.view.length]
            ),
            byte=_byte_offset(self.before.plain, self.plain, message),
        )


def list_views(
    trajectory: Trajectory, strategy: Strategy, prices: Prices, sizer: Sizer, renderer: ViewRenderer | None = None
) -> Iterator[ViewAt]:
    """Every call of `trajectory` under `strategy`, in order.

    renderer: a fresh one; OpenAI chat by default. Raises SpecError where `schedule=hindsight` cannot be worked out.
    """
    session = Log.fold((), LogSetup(resolve_schedule(strategy, trajectory, prices, sizer), prices, sizer))
    return _run_views(trajectory, session, renderer or render_openai_chat.OpenAIChatRenderer())


def _run_views(trajectory: Trajectory, session: Log, renderer: ViewRenderer) -> Iterator[ViewAt]:
    session.set_head(trajectory.head)
    summarizer = model_free_summarizer(session.sizer)
    before: ViewAt | None = None
    for turn, (now, model) in zip(trajectory.turns, calls(trajectory), strict=True):
        run_pass(decide(session, make_plain_terms(now, model)), summarizer)
        newest = build_view(session, renderer, before)
        before = replace(newest, before=None)
        yield newest
        session.add_turn(turn)


def build_view(session: Log, renderer: ViewRenderer, before: ViewAt | None = None) -> ViewAt:
    """Return the newest call of `session` as it is sent. before: the call before it."""
    newest = session.newest_call
    assert newest is not None
    return ViewAt(
        call=newest.view.call,
        epoch=newest.view.epoch,
        view=newest.view,
        messages=renderer.render_messages(newest.view),
        plain=renderer.render_unmarked(newest.view),
        system=renderer.render_system(newest.view),
        decided=newest.decided,
        bill=session.money.newest_prompt,
        raw=session.money.newest_raw_prompt,
        before=before,
    )


def resolve_schedule(strategy: Strategy, trajectory: Trajectory, prices: Prices, sizer: Sizer) -> Strategy:
    """`strategy` with its schedule worked out where it is `hindsight`. Raises SpecError saying why it cannot be."""
    if not isinstance(strategy.schedule, HindsightSchedule):
        return strategy
    # Brings numpy, which is slow to import and which no other schedule needs.
    from elision.lab.hindsight import find_cheapest_plan

    best = find_cheapest_plan(trajectory, strategy, prices, sizer)
    if best is None:
        raise SpecError(
            f"schedule=hindsight: {_explain_no_hindsight(strategy, trajectory, prices)}; choose another schedule"
        )
    return best.apply_to(strategy)


def _explain_no_hindsight(strategy: Strategy, trajectory: Trajectory, prices: Prices) -> str:
    from elision.lab.hindsight import LONGEST, has_hindsight

    if not has_hindsight(strategy):
        return f"no cheapest plan can be worked out for {strategy.name} with these options"
    if len(trajectory.turns) > LONGEST and strategy.make_trigger() is not None:
        return f"the run has {len(trajectory.turns)} turns, and with summaries {LONGEST} is the most"
    limit = "its budget" if strategy.budget is not None else f"the window of {prices.name}"
    return f"{limit} is smaller than this run, and then what may be done depends on what was done before"


def to_json(value: object) -> str:
    """JSON text, letters as they are; escaped where they are no sound Unicode."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def _count_common(before: Sequence[JsonMessage], now: Sequence[JsonMessage]) -> int:
    """How many leading messages both lists share."""
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] is pair[1] or pair[0] == pair[1], zip(before, now, strict=False))
    )


def _count_shared_characters(before: Segment, now: Sequence[Segment]) -> int:
    """Characters that the text of a rewritten segment has in common with what stood there before."""
    if not now or (before.turn, before.index) != (now[0].turn, now[0].index) or before.turn == 0:
        return 0
    return _common_prefix_length(segment_text(before), segment_text(now[0]))


def segment_text(segment: Segment) -> str:
    """The text of a segment as it is sent."""
    if segment.text or segment.source is None:
        return segment.text
    return segment.source.text


def _common_prefix_length(before: str, now: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, now, strict=False)))


def _byte_offset(before: Sequence[JsonMessage], now: Sequence[JsonMessage], message: int) -> int:
    """Bytes in front of the first difference, which falls into message `message` (0-based)."""
    front = 1 + sum(len(to_json(each).encode()) + 2 for each in now[:message])
    if message >= min(len(before), len(now)):
        return front
    old = to_json(before[message])
    new = to_json(now[message])
    return front + len(new[: _common_prefix_length(old, new)].encode())


# -- bills ------------------------------------------------------------------------------------------------------------


#: The rows beside those of what happened.
VIEW: Final = "this view"
EVERYTHING: Final = "everything"


@dataclass(frozen=True, slots=True)
class BillAt:
    """One row at one call. tokens: of its prompt. cached: of these, read from the cache. usd: of all calls up to it."""

    tokens: int
    cached: int
    usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewBills:
    """The rows of one run, call by call.

    rows: by name, those that are known. sending: how the run was sent. prices: at which. condensed_before: the calls
    before which its agent condensed its own history.
    """

    rows: dict[str, Sequence[BillAt]]
    sending: SentSummary
    prices: Prices
    condensed_before: tuple[int, ...] = ()

    def list_rows(self, call: int) -> Iterator[tuple[str, BillAt]]:
        """Yield the rows at `call`."""
        for name, bills in self.rows.items():
            yield name, bills[call - 1]

    def find_cost(self, name: str) -> float | None:
        """Return what the whole run cost by a row, in USD; None where that is not known."""
        return self.rows[name][-1].usd if name in self.rows else None

    def is_never_sent(self, call: int) -> bool:
        """Return whether sending everything up to `call` is a hypothesis."""
        return any(before <= call for before in self.condensed_before)

    def encode(self, call: int) -> dict[str, Any]:
        """Return the rows at `call` as JSON, those that are not known as null."""
        found: dict[str, Any] = dict.fromkeys((VIEW, RECORDED, BILLED, EVERYTHING))
        for name, each in self.list_rows(call):
            found[name] = {"tokens": each.tokens, "cache_read": each.cached, "usd_so_far": each.usd}
        keys = {name.replace(" ", "_"): row for name, row in found.items()}
        return {**keys, "everything_never_sent": self.is_never_sent(call)}


def bill_views(run: Trajectory, strategy: Strategy, prices: Prices, sizer: Sizer) -> ViewBills:
    """Replay `run` under `strategy`, as it was sent and whole. Raises SpecError for a schedule that cannot be known."""
    as_sent = replay_as_sent(run, prices, sizer)
    ours = replay_run(run, resolve_schedule(strategy, run, prices, sizer), prices, sizer, sent=as_sent.sent)
    rows: dict[str, Sequence[BillAt]] = {VIEW: _list_bills(ours)}
    condensing = {
        each.before: cost_reported_usage(each.usage, prices) for each in run.compactions if each.usage is not None
    }
    rows[RECORDED] = _list_bills(as_sent.replay, condensing)
    if any(row.strategy == BILLED for row, _ in as_sent.rows) and as_sent.sent.billed is not None:
        usd = 0.0
        billed = []
        for call in as_sent.sent.billed.calls:
            usd += (call.billed.usd or 0.0) + condensing.get(call.index, 0.0)
            billed.append(BillAt(call.billed.prompt, call.billed.cache_read, usd))
        rows[BILLED] = billed
    rows[EVERYTHING] = [BillAt(call.raw_tokens, call.raw_cached, call.raw_usd) for call in ours.calls]
    return ViewBills(
        rows=rows, sending=as_sent.summary, prices=prices, condensed_before=tuple(sorted(as_sent.sent.cuts))
    )


def _list_bills(replayed: Replay, condensing: dict[int, float] | None = None) -> list[BillAt]:
    """Return the calls of a replay. condensing: what the agent's own summaries cost before each call, in USD."""
    extra = condensing or {}
    costs = (call.usd + extra.get(number, 0.0) for number, call in enumerate(replayed.calls, start=1))
    return [BillAt(call.tokens, call.cached, usd) for call, usd in zip(replayed.calls, accumulate(costs), strict=True)]
