"""A session that another process resumes decides as one that was never interrupted: bytes, breakpoints, events."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.engine import Log, LogSetup
from elision.formats.registry import read_runs
from elision.lab.run_as_recorded import calls
from elision.manager.recall_tools import RECALL_TOOL_DEFINITIONS
from elision.strategies.decision_context import Budget
from elision.strategies.spec import parse_strategy
from elision.strategies.strategy import Strategy
from elision.trajectory.events import SessionOpened
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.trajectory import Trajectory
from tests.properties.cases import CASES, SIZER, SMALL
from tests.properties.odd_calls import BESIDE, describe_view, make_odd_call
from tests.properties.test_invariants import PATIENCE
from tests.properties.trajectories import trajectories

RECORDED = Path(__file__).parents[2] / "examples" / "runs" / "swe-agent-sympy-20801.traj.gz"
#: Turns of it that are played.
TURNS = 40


def budgeted(strategy: Strategy, tokens: int, soft: float | None = None) -> Strategy:
    """The strategy with a view of at most `tokens` tokens; 0 for its own budget."""
    if not tokens:
        return strategy
    return replace(strategy, budget=Budget(tokens=tokens, max_context_pct=1, reserved=0, soft=soft))


def begin(setup: LogSetup, run: Trajectory, offer: str = "") -> Log:
    log = Log.fold((), setup)
    if offer:
        log.record_event(SessionOpened(strategy="any", offer=offer, tools=RECALL_TOOL_DEFINITIONS))
    log.set_head(run.head)
    return log


@pytest.mark.parametrize("tokens", [0, 600, 1_200, 2_500])
@settings(max_examples=PATIENCE * 3)
@given(
    run=trajectories(most=30),
    case=st.sampled_from(sorted(CASES)),
    prices=st.sampled_from(sorted(SMALL)),
    soft=st.sampled_from([None, 0.6]),
    offer=st.sampled_from(["", "first", "start"]),
    beside=st.lists(st.sampled_from(BESIDE), min_size=1, max_size=30),
    resumed=st.integers(0, 2**30 - 1),
)
def test_a_resumed_session_decides_as_the_one_that_goes_on(
    tokens: int,
    run: Trajectory,
    case: str,
    prices: str,
    soft: float | None,
    offer: str,
    beside: list[str],
    resumed: int,
) -> None:
    """One session stays in its process, the other is read again before some calls, whatever happens beside them."""
    setup = LogSetup(budgeted(CASES[case], tokens, soft), SMALL[prices], SIZER)
    live = begin(setup, run, offer)
    other = begin(setup, run, offer)
    for place, (turn, (now, model)) in enumerate(zip(run.turns, calls(run), strict=True)):
        if resumed >> place & 1:
            other = Log.fold(list(other.events), setup)
        live, ours = make_odd_call(live, turn, now, model, beside[place % len(beside)])
        other, theirs = make_odd_call(other, turn, now, model, beside[place % len(beside)])
        assert describe_view(theirs) == describe_view(ours)
        assert other.events == live.events


@pytest.mark.parametrize(
    "strategy",
    [
        "masking(window=10)",
        "masking(window=5, fold=true, gist=80)",
        "hybrid(window=10, summarize_at=24, tail=6)",
        "hybrid(window=4, summarize_at=12, tail=4, fold=true)",
    ],
)
def test_a_recorded_run_is_resumed_at_every_call(strategy: str) -> None:
    """Under a budget that presses often, the next call is the same in a process that knows the events alone."""
    found = next(each for each in read_runs(RECORDED) if isinstance(each, Trajectory))
    setup = LogSetup(budgeted(parse_strategy(strategy), 9_000), find_price_set("anthropic"), SIZER)
    log = begin(setup, found)
    pressed = 0
    for turn, (now, model) in zip(found.turns[:TURNS], calls(found), strict=False):
        resumed = Log.fold(list(log.events), setup)
        log, ours = make_odd_call(log, turn, now, model, "nothing")
        resumed, theirs = make_odd_call(resumed, turn, now, model, "nothing")
        assert describe_view(theirs) == describe_view(ours)
        assert resumed.events == log.events
        newest = log.newest_call
        assert newest is not None
        pressed += newest.decided.reason == "over budget"
    assert pressed
