"""Folded lines while a summary is held: they stay as they are until it is taken, and are shown again in that pass."""

from __future__ import annotations

from dataclasses import replace

from elision.engine import CallTerms, Log, LogSetup, decide, make_plain_terms, run_pass
from elision.trajectory.plan import Key, SummaryRequest
from elision.trajectory.turn import Turn
from elision.trajectory.view import Segment
from tests.properties.builders import CACHED, begin_session, call, long_text, result, turn
from tests.properties.cases import get_content

STRATEGY = "summarization(every=4, tail=2, schedule=every-turn, summary_max_tokens=400, probation=3, fold=true)"
#: The call that requests the summary of turns 1 ... 4, and the one that takes it.
DUE, TAKEN = 7, 10
#: Lines of turn 2 that turns 5 and 8 show again.
REPEATED = long_text(2, 20)
REPEATING = (5, 8)


def make_turn(index: int) -> Turn:
    shown = f"first line of {index}\n{REPEATED if index in (2, *REPEATING) else long_text(index, 20)}"
    return turn(index, (call(command=f"cat part_{index}"), result(shown)))


def write(request: SummaryRequest) -> str:
    return "The agent read " + ", ".join(f"part_{each.index}" for each in request.turns)


def make_call(log: Log, terms: CallTerms | None = None) -> dict[Key, Segment]:
    """Make the next call. Return what its view shows of results."""
    view = run_pass(decide(log, terms or make_plain_terms()), write)
    return {(segment.turn, segment.index): segment for segment in view.segments if segment.index and segment.turn}


def play_until(last: int) -> tuple[Log, dict[Key, Segment]]:
    """A session with all calls up to call `last`, and what the last view shows."""
    log = begin_session(STRATEGY)
    shown: dict[Key, Segment] = {}
    for index in range(1, last + 1):
        shown = make_call(log)
        if index < last:
            log.add_turn(make_turn(index))
    return log, shown


def test_while_a_summary_is_held_references_and_their_source_stay() -> None:
    """The view shows the lines once, where they were first, and a new result is folded on them as well."""
    log, shown = play_until(TAKEN - 1)
    assert log.state.draft is not None
    assert log.state.draft.covers == 4
    assert shown[2, 1].kind == "observation"
    assert [shown[index, 1].kind for index in REPEATING] == ["folded", "folded"]
    assert {run.source for fold in log.state.folded.values() for run in fold.runs} == {(2, 1)}


def test_with_the_summary_what_refers_to_it_is_shown_again() -> None:
    """The same pass covers the source, shows the first result with its lines whole, and has the next refer to it."""
    log, shown = play_until(TAKEN)
    assert log.state.covered_turns == 4
    assert (2, 1) not in shown
    assert log.newest_call is not None
    assert log.newest_call.decided.reason == "probation over"
    assert log.newest_call.decided.unfolded == ((5, 1),)
    assert shown[5, 1].kind == "observation"
    assert shown[8, 1].kind == "folded"
    assert {run.source for run in log.state.folded[8, 1].runs} == {(5, 1)}


def test_a_summary_that_cannot_be_taken_unfolds_nothing() -> None:
    """Thinking is bound to what it would replace: the source stays, and so does every reference, until a later one."""
    log, _ = play_until(TAKEN - 1)
    log.add_turn(make_turn(TAKEN - 1))
    shown = make_call(log, replace(make_plain_terms(), editable_from=6))
    assert log.state.covered_turns == 0
    assert log.state.draft is not None
    assert log.state.draft.covers == TAKEN - 3
    for index in range(TAKEN, TAKEN + 3):
        assert shown[2, 1].kind == "observation"
        assert [shown[repeating, 1].kind for repeating in REPEATING] == ["folded", "folded"]
        log.add_turn(make_turn(index))
        shown = make_call(log)
    assert log.state.covered_turns == TAKEN - 3
    assert (5, 1) not in shown
    assert shown[8, 1].kind == "observation"
    assert log.state.folded == {}


def test_another_process_shows_the_same() -> None:
    """A session that is read again while its summary is held takes it, and unfolds, in the same words."""
    log, _ = play_until(TAKEN - 1)
    other = Log.fold(list(log.events), LogSetup(log.setup.strategy, CACHED, log.setup.sizer))
    for each in (log, other):
        each.add_turn(make_turn(TAKEN - 1))
    ours, theirs = make_call(log), make_call(other)
    assert {key: get_content(each) for key, each in theirs.items()} == {
        key: get_content(each) for key, each in ours.items()
    }
    assert other.events == log.events
