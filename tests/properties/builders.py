"""Small turns and runs, written by hand, and sessions made of them; shared by the tests of the core."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from elision.engine import Log, LogSetup, Summarizer, decide, make_plain_terms, run_pass
from elision.errors import SummaryError
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.testing.builders import call, head, long_text, result, step, steps, turn, user
from elision.trajectory.events import PassDecided
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.tokens import Sizer, make_counter
from elision.trajectory.turn import Head, Turn

__all__ = [
    "CACHED",
    "PLAIN",
    "SIZER",
    "begin_session",
    "call",
    "find_mask_calls",
    "head",
    "list_summaries",
    "long_text",
    "refuse_summary",
    "result",
    "run_session",
    "step",
    "steps",
    "turn",
    "user",
    "write_brief_summary",
    "write_endless_summary",
]

#: A provider with a cache that is worth having from the first tokens on.
CACHED = Prices(
    name="cached",
    tiers=((0, Rates(input=1.0, output=5.0, cache_write=1.25, cache_read=0.1)),),
    cache=CacheRules(kind="prefix", ttl=300, minimum=1),
)
#: No cache at all.
PLAIN = Prices(name="plain", tiers=((0, Rates(input=1.0, output=5.0)),), cache=CacheRules(kind="none"))

SIZER = Sizer(make_counter())


def write_brief_summary(request: SummaryRequest) -> str:
    """A summarizer that says little."""
    return f"Turns {request.turns[0].index} to {request.turns[-1].index} were done."


def refuse_summary(request: SummaryRequest) -> str:
    raise SummaryError("the model refused")


def write_endless_summary(request: SummaryRequest) -> str:
    """Longer than what it replaces."""
    return long_text(1, 500)


def begin_session(strategy: Strategy | str, prices: Prices = CACHED, *, start: Head | None = None) -> Log:
    session = Log.fold((), LogSetup(parse_strategy(strategy) if isinstance(strategy, str) else strategy, prices, SIZER))
    session.set_head(start or head())
    return session


def run_session(
    strategy: Strategy | str,
    turns: Iterable[Turn],
    prices: Prices = CACHED,
    *,
    start: Head | None = None,
    summarizer: Summarizer = write_brief_summary,
    watch: Callable[[Log], None] | None = None,
) -> Log:
    """A session that made a call before each of `turns`, and one behind the last."""
    session = begin_session(strategy, prices, start=start)
    for item in turns:
        run_pass(decide(session, make_plain_terms(item.at, item.model)), summarizer)
        if watch is not None:
            watch(session)
        session.add_turn(item)
    run_pass(decide(session, make_plain_terms()), summarizer)
    if watch is not None:
        watch(session)
    return session


def find_mask_calls(session: Log) -> dict[tuple[int, int], int]:
    """Observation -> the call at which it gave way to a placeholder."""
    passes = (event for event in session.events if isinstance(event, PassDecided))
    return {mask.key: event.call for event in passes for mask in event.masks}


def list_summaries(session: Log) -> list[tuple[int, int]]:
    """(call, covers) of every summary made."""
    passes = (event for event in session.events if isinstance(event, PassDecided))
    return [(event.call, event.summary.covers) for event in passes if event.summary is not None]


def lines(first: int, last: int) -> str:
    """Return numbered lines, from `first` to before `last`, of which no two are alike."""
    return "\n".join(f"line {number} says what the {number * 7919}th word of it is" for number in range(first, last))
