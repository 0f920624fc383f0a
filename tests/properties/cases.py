"""Every strategy x schedule, with windows and thresholds so small that everything happens; and what a run showed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from elision.engine import Log, LogSetup, Summarizer, decide, make_plain_terms, run_pass
from elision.errors import SummaryError
from elision.lab.run_as_recorded import calls
from elision.strategies.schedules import FixedSchedule
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.events import PassDecided, RequestSent, SessionOpened
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_table import load_price_table
from elision.trajectory.prices import Prices
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn
from elision.trajectory.view import Segment

RULES = (
    'rules=[rule(tool="notes", keep=true), rule(tool="sear*", after=1), rule(tool="bash", args="*make*", below=40), '
    'rule(tool="read_file", after=4)]'
)
_SUMMARY = "summary_max_tokens=60, keep_user_tokens=150"
#: Nothing is folded, and summaries are short.
_PLAIN = f"fold=false, {_SUMMARY}"

STRATEGIES = {
    "raw": "raw()",
    "masking": f"masking(window=2, gist=12, fold=false, {RULES})",
    "published": 'masking(window=1, gist=0, fold=false, placeholder="[Observation omitted for brevity]")',
    "summarization": f"summarization(every=3, tail=2, {_PLAIN}, {RULES})",
    "hybrid": f"hybrid(window=2, summarize_at=6, tail=3, gist=12, {_PLAIN}, {RULES})",
    "hybrid by tokens": f"hybrid(window=3, summarize_at=12, tail=1, summarize_tokens=300, gist=0, {_PLAIN})",
    "two-tier": (
        f"two-tier(keep_recent=3, soft=400, hard=900, after_steps=6, summarize_min_turns=2, {_PLAIN}, {RULES})"
    ),
    "soft budget": f"hybrid(window=2, summarize_at=9, tail=3, budget=budget(tokens=200000, soft=0.004), {_PLAIN})",
    "raw, fold": "raw(fold=true)",
    "masking, fold": 'masking(window=2, gist=12, fold=true, rules=[rule(tool="notes", keep=true), '
    'rule(tool="search", verbatim=true), rule(tool="bash", args="*make*", after=1)])',
    "hybrid, fold": f"hybrid(window=3, summarize_at=7, tail=3, gist=0, fold=true, {_SUMMARY})",
}
SCHEDULES = ("every-turn", "cache-aware")
#: A hybrid whose schedule is told where runs end; half of the generated ones end later.
WITH_AN_END = f"hybrid(window=2, summarize_at=6, tail=3, schedule=cache-aware(max_turns=14), gist=12, {_PLAIN})"

#: Fixed plans stand for any schedule at all: acting here and there, whether it pays or not.
PLANS = (
    FixedSchedule(mask_calls=frozenset(range(1, 100, 3)), summary_calls=frozenset(range(4, 100, 7))),
    FixedSchedule(mask_calls=frozenset({9, 10, 17}), summary_calls=frozenset({8, 9, 21, 22})),
    FixedSchedule(mask_calls=frozenset(), summary_calls=frozenset(range(1, 100))),
)


def _iterate_strategies() -> Iterator[tuple[str, Strategy]]:
    for name, text in STRATEGIES.items():
        base = parse_strategy(text)
        for schedule in SCHEDULES:
            yield (
                f"{name} x {schedule}",
                replace(base, schedule=parse_strategy(f"masking(schedule={schedule})").schedule),
            )
        for number, plan in enumerate(PLANS, start=1):
            yield f"{name} x plan {number}", replace(base, schedule=plan)
    yield "hybrid x cache-aware with an end", parse_strategy(WITH_AN_END)


#: Name -> strategy under a schedule.
CASES: dict[str, Strategy] = dict(_iterate_strategies())

#: The named sets with caches that begin at once: generated runs are far below the real minimum.
SMALL: dict[str, Prices] = {
    name: replace(prices, cache=replace(prices.cache, minimum=min(16, prices.cache.minimum), step=1))
    for name, prices in load_price_table().sets.items()
}

SIZER = Sizer(make_counter())


def write_summary(request: SummaryRequest) -> str:
    """A short summary; nothing at all, or a failure, for some requests."""
    match len(request.turns) + request.turns[-1].index:
        case number if number % 11 == 0:
            return " \n"
        case number if number % 7 == 0:
            raise SummaryError("the model refused")
    earlier = f"Before: {len(request.previous)} chars. " if request.previous else ""
    return f"{earlier}Turns {request.turns[0].index} to {request.turns[-1].index} mended part_{len(request.turns)}."


@dataclass(frozen=True, slots=True)
class SentView:
    """One call's view as it was when it was sent: what a provider would have received."""

    call: int
    epoch: int
    tokens: int
    segments: tuple[Segment, ...]
    decided: PassDecided
    covered: int


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A whole session."""

    trajectory: Trajectory
    strategy: Strategy
    session: Log
    views: tuple[SentView, ...]

    def turns_before(self, call: int) -> tuple[Turn, ...]:
        return self.trajectory.turns[: call - 1]


def get_content(segment: Segment) -> tuple[object, ...]:
    """What is sent for a segment, and as what: equal values are equal bytes."""
    return segment.kind, segment.turn, segment.index, segment.text or segment.source


def list_contents(segments: tuple[Segment, ...]) -> list[tuple[object, ...]]:
    return [get_content(segment) for segment in segments]


def play_run(
    trajectory: Trajectory,
    strategy: Strategy,
    prices: Prices,
    sizer: Sizer = SIZER,
    opened: SessionOpened | None = None,
) -> PlayedRun:
    """A session of `trajectory` under `strategy`, every view kept. opened: what its log begins with."""
    session = Log.fold((), LogSetup(strategy, prices, sizer))
    if opened is not None:
        session.record_event(opened)
    session.set_head(trajectory.head)
    seen = []
    for turn, (now, model) in zip(trajectory.turns, calls(trajectory), strict=True):
        seen.append(make_call(session, now, model))
        session.add_turn(turn)
    last = trajectory.turns[-1]
    seen.append(make_call(session, last.at, last.model))
    return PlayedRun(trajectory, strategy, session, tuple(seen))


def make_call(session: Log, now: float | None, model: str) -> SentView:
    view = run_pass(decide(session, make_plain_terms(now, model)), write_summary)
    called, decided = session.events[-1], session.events[-2]
    assert isinstance(called, RequestSent)
    assert isinstance(decided, PassDecided)
    live = [event.summary.covers for event in session.events if isinstance(event, PassDecided) and event.summary]
    return SentView(view.call, view.epoch, view.tokens, tuple(view.segments), decided, max(live, default=0))


def find_rewrites(seen: tuple[SentView, ...]) -> list[int]:
    """Calls whose view does not begin with the view before."""
    found = []
    for before, after in pairwise(seen):
        old, new = list_contents(before.segments), list_contents(after.segments)
        if new[: len(old)] != old:
            found.append(after.call)
    return found


def find_worst_ratio(
    strategy: Strategy, prices: Prices, run: Trajectory, summarizer: Summarizer, opened: SessionOpened | None = None
) -> float:
    """The highest bill so far / bill of sending everything so far, at any call."""
    session, worst = Log.fold((), LogSetup(strategy, prices, SIZER)), 0.0
    if opened is not None:
        session.record_event(opened)
    session.set_head(run.head)
    for item, (now, model) in zip(run.turns, calls(run), strict=True):
        run_pass(decide(session, make_plain_terms(now, model)), summarizer)
        raw = session.money.raw_spent_usd
        worst = max(worst, session.money.spent_usd / raw if raw else 0.0)
        session.add_turn(item)
    return worst
