"""A log that is folded from its events is the log that was there, at every event."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.engine import Log, LogSetup, decide, hold_view, make_plain_terms, run_pass
from elision.lab.run_as_recorded import calls
from elision.trajectory.events import Event, PassDecided, SummaryFailed, TurnAmended, UsageReported, WindowLearned
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Turn
from elision.trajectory.usage import Usage
from tests.properties.cases import CASES, SIZER, SMALL, get_content, write_summary
from tests.properties.test_invariants import PATIENCE
from tests.properties.trajectories import trajectories

#: What may happen beside the turns and the passes.
BESIDE = ("nothing", "reported", "hour", "window", "held", "made again", "amended", "reworded", "shadow terms")


def describe_log(log: Log) -> dict[str, Any]:
    """Everything that later calls go by."""
    state, newest = log.state, log.newest_call
    assert state.folded_tokens == sum(
        state.count_own_tokens(key) - state.find_segment(key).tokens for key in state.folded
    )
    return {
        "view": [get_content(segment) for segment in state.track.segments],
        "raw": [get_content(segment) for segment in state.raw_track.segments],
        "hidden": dict(state.hidden),
        "folded": (list(state.folded.items()), log.policy.folding.ledger.leaving_tokens),
        "waiting": {key: candidate.saved_tokens for key, candidate in log.policy.candidates.waiting.items()},
        "turns": list(state.turns),
        "epoch": (state.epoch, state.calls, state.has_recall_tools, state.shadow),
        "pending": {key: candidate.text for key, candidate in log.policy.candidates.pending.items()},
        "retry": (log.breaker.retry_at, log.breaker.failures),
        "clock": str(log.policy.clock),
        "bill": (log.money.spent_usd, log.money.raw_spent_usd, log.money.summaries),
        "costs": log.money.total,
        "scale": (str(log.reports.scale), log.reports.hour_turn),
        "limit": (log.view_limit, log.prices.window),
        "newest": None
        if newest is None
        else (newest.decided, log.money.newest_prompt, log.money.newest_raw_prompt, newest.view.marks),
    }


def play(log: Log, turn: Turn, now: float | None, model: str, beside: str) -> Log:
    """One call, its turn, and what happens beside them."""
    terms = make_plain_terms(now, model)
    if beside == "shadow terms":
        terms = msgspec.structs.replace(terms, no_cache_marks=True, breakpoints="always", hour_turn=0, hides_all=True)
    if beside == "held":
        hold_view(log, "the store is gone", terms)
    else:
        run_pass(decide(log, terms), write_summary)
    if beside == "made again":
        run_pass(decide(log, terms), write_summary)
    call = log.state.calls
    counted = log.newest_call.view.tokens if log.newest_call else 0
    if beside == "reported":
        log.record_event(UsageReported(call=call, usage=Usage(input=counted + 90, output=5)))
    if beside == "hour":
        usage = Usage(cache_write=counted + 1, cache_write_1h=counted + 1)
        log.record_event(UsageReported(call=call, usage=usage))
    if beside == "window":
        log.record_event(WindowLearned(call=call, window=60_000, tokens=2 * counted))
    log.add_turn(turn)
    if beside == "amended" and turn.observations:
        log = log.extend([TurnAmended(msgspec.structs.replace(turn, observations=turn.observations[:-1]))])
    if beside == "reworded":
        log = log.extend([TurnAmended(msgspec.structs.replace(turn, interjections=()))])
    return log


@settings(max_examples=PATIENCE)
@given(
    run=trajectories(),
    case=st.sampled_from(sorted(CASES)),
    prices=st.sampled_from(sorted(SMALL)),
    beside=st.lists(st.sampled_from(BESIDE), min_size=1, max_size=30),
)
def test_the_fold_of_the_events_is_the_log(run: Trajectory, case: str, prices: str, beside: list[str]) -> None:
    """Whatever happened: states, bills, what may be hidden next, when a summary may be asked for again."""
    setup = LogSetup(CASES[case], SMALL[prices], SIZER)
    log = Log.fold((), setup)
    log.set_head(run.head)
    known: list[tuple[list[Event], dict[str, Any]]] = []
    for place, (turn, (now, model)) in enumerate(zip(run.turns, calls(run), strict=True)):
        log = play(log, turn, now, model, beside[place % len(beside)])
        known.append((list(log.events), describe_log(log)))
    for events, described in known:
        assert describe_log(Log.fold(events, setup)) == described


@settings(max_examples=PATIENCE)
@given(run=trajectories(), case=st.sampled_from(sorted(CASES)), data=st.data())
def test_a_log_that_is_extended_is_the_log_that_is_folded(run: Trajectory, case: str, data: st.DataObject) -> None:
    """Cut anywhere, in the middle of a pass as well: events read in two parts make the same log as all at once."""
    setup = LogSetup(CASES[case], SMALL["anthropic"], SIZER)
    log = Log.fold((), setup)
    log.set_head(run.head)
    for turn, (now, model) in zip(run.turns, calls(run), strict=True):
        log = play(log, turn, now, model, "reported")
    cut = data.draw(st.integers(0, len(log.events)))
    parted = Log.fold(log.events[:cut], setup).extend(log.events[cut:])
    assert parted.events == log.events
    assert describe_log(parted) == describe_log(log)


@settings(max_examples=PATIENCE)
@given(run=trajectories(), case=st.sampled_from(sorted(CASES)), data=st.data())
def test_a_decision_without_its_request_counts_for_nothing(run: Trajectory, case: str, data: st.DataObject) -> None:
    """A log that ends in the middle of a pass, as after a repair, goes on with the next one."""
    setup = LogSetup(CASES[case], SMALL["anthropic"], SIZER)
    log = Log.fold((), setup)
    log.set_head(run.head)
    for turn, (now, model) in zip(run.turns, calls(run), strict=True):
        log = play(log, turn, now, model, "nothing")
    ends = [place for place, event in enumerate(log.events, start=1) if isinstance(event, SummaryFailed | PassDecided)]
    events = log.events[: data.draw(st.sampled_from(ends))]
    going = Log.fold(events, setup)
    assert going.events == events
    run_pass(decide(going, make_plain_terms()), write_summary)
    again = Log.fold(going.events, setup)
    assert describe_log(again)["view"] == describe_log(going)["view"]
    assert again.newest_call is not None
    assert going.newest_call is not None
    assert again.newest_call.decided == going.newest_call.decided


@pytest.mark.parametrize("case", ["raw, fold x cache-aware", "masking, fold x plan 1", "hybrid, fold x plan 2"])
@settings(max_examples=PATIENCE)
@given(run=trajectories(), beside=st.lists(st.sampled_from(BESIDE), min_size=1, max_size=30), data=st.data())
def test_a_log_that_is_read_again_decides_as_the_one_that_goes_on(
    case: str, run: Trajectory, beside: list[str], data: st.DataObject
) -> None:
    """Killed after any call and resumed: what is folded and unfolded later is the same, in the same words."""
    setup = LogSetup(CASES[case], SMALL["anthropic"], SIZER)
    steps = list(enumerate(zip(run.turns, calls(run), strict=True)))
    cut = data.draw(st.integers(0, len(steps)))
    log = Log.fold((), setup)
    log.set_head(run.head)
    for place, (turn, (now, model)) in steps[:cut]:
        log = play(log, turn, now, model, beside[place % len(beside)])
    resumed = Log.fold(list(log.events), setup)
    for place, (turn, (now, model)) in steps[cut:]:
        log = play(log, turn, now, model, beside[place % len(beside)])
        resumed = play(resumed, turn, now, model, beside[place % len(beside)])
    assert resumed.events == log.events
    assert describe_log(resumed) == describe_log(log)
