"""One call of a session, and what may happen in it and beside it: reports, failures, other terms, passes broken off."""

from __future__ import annotations

import sys
from typing import Any

from msgspec.structs import replace as change

from elision.engine import CallTerms, Log, NotReady, decide, hold_view, make_plain_terms, run_pass, write_off_attempt
from elision.errors import BudgetError
from elision.summarizers.summary_checks import SummaryResult
from elision.trajectory.events import SummaryFailed, TurnAmended, UsageReported, WindowLearned
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.turn import Turn
from elision.trajectory.usage import Usage
from elision.trajectory.view import View
from tests.properties.cases import get_content, write_summary

#: Terms of a call that restrict it, or ask for more. `bound_turns`: newest turns that may be edited.
TERMS: dict[str, dict[str, Any]] = {
    "marks": {"no_cache_marks": True, "breakpoints": "always", "hour_turn": 0},
    "forced": {"hides_all": True},
    "summarized": {"hides_all": True, "summarizes_all": True},
    "native": {"may_summarize": False},
    "blocked": {"recall_blocked": True},
    "for an hour": {"hour_turn": sys.maxsize},
}
#: What happens in the pass, before its turn, or after it.
ELSE = (
    *("not ready", "held", "broken off", "no view fits", "made again", "written off", "bound"),
    *("reported", "hour", "window", "amended", "reworded", "new head"),
)
BESIDE = (*("nothing",) * 5, *TERMS, *ELSE)
#: Newest turns that may be edited where thinking is bound.
EDITABLE = 4


def make_odd_call(log: Log, turn: Turn, now: float | None, model: str, beside: str) -> tuple[Log, View]:
    """Make the call before `turn`, add the turn, and do what `beside` says. Return the log, and the view as sent."""
    terms = change(make_plain_terms(now, model), is_strict=False, **TERMS.get(beside, {}))
    if beside == "bound":
        terms = change(terms, editable_from=max(1, len(log.state.turns) + 1 - EDITABLE))
    _prepare(log, terms, beside)
    newest = log.newest_call
    assert newest is not None
    view = newest.view
    _record_reports(log, view, now, beside)
    log.add_turn(turn)
    return _change_newest(log, turn, beside), view


def _prepare(log: Log, terms: CallTerms, beside: str) -> None:
    def summarize(request: SummaryRequest) -> str | SummaryResult:
        return write_summary(request)

    match beside:
        case "held":
            hold_view(log, "the store is gone", terms)
            return
        case "not ready":
            _run_without_answer(log, terms)
            return
        case "written off":
            call = len(log.state.turns) + 1
            write_off_attempt(log, SummaryFailed(call=call, cause="other", reason="not stored", input=90, output=9))
        case "broken off":
            steps = decide(log, terms)
            if next(steps, None) is None:
                # No summary was wanted, so the pass is recorded already.
                return
            steps.close()
        case "no view fits":
            try:
                run_pass(decide(log, change(terms, is_strict=True)), summarize)
            except BudgetError:
                pass
            else:
                return
        case "made again":
            run_pass(decide(log, terms), summarize)
    run_pass(decide(log, terms), summarize)


def _run_without_answer(log: Log, terms: CallTerms) -> None:
    """Make a pass whose summary is still being written."""
    steps = decide(log, terms)
    try:
        next(steps)
        while True:
            steps.send(NotReady())
    except StopIteration:
        return


def _record_reports(log: Log, view: View, now: float | None, beside: str) -> None:
    call = log.state.calls
    match beside:
        case "reported":
            log.record_event(UsageReported(call=call, usage=Usage(input=view.tokens + 90, output=5)))
        case "hour":
            written = view.tokens + 1
            usage = Usage(cache_write=written, cache_write_1h=written)
            log.record_event(UsageReported(call=call, usage=usage))
        case "window":
            log.record_event(WindowLearned(call=call, window=2_500, tokens=2 * view.tokens))
        case "new head":
            log.set_head(change(log.state.head, messages=log.state.head.messages[:1]))


def _change_newest(log: Log, turn: Turn, beside: str) -> Log:
    """Have the newest turn come again with another ending."""
    if beside == "amended" and turn.observations:
        return log.extend([TurnAmended(change(turn, observations=turn.observations[:-1]))])
    if beside == "reworded":
        return log.extend([TurnAmended(change(turn, interjections=()))])
    return log


def describe_view(view: View) -> tuple[object, ...]:
    """What a provider is sent: bytes, breakpoints, and how long cache entries live."""
    contents = [get_content(segment) for segment in view.segments]
    return view.call, view.epoch, contents, view.marks, view.hour_length
