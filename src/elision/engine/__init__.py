"""The loop: log + terms -> decision -> view. Read `Log`, then `decide`.

    log = Log.fold((), LogSetup(strategy, prices))
    log.set_head(head)
    for each call:
        view = run_pass(decide(log, terms), summarizer)     # a pass yields a request for each summary
        ... send the view ...
        log.add_turn(turn)                                  # raw first

The same log runs live and in a replay; nothing in it knows which. Everything that happened is in `events`, and
`Log.fold` makes the same log of them again.
"""

from elision.engine.decision import (
    SUMMARY_BEING_WRITTEN,
    NotReady,
    PassSteps,
    Summarizer,
    SummaryAnswer,
    decide,
    expect_request,
    hold_view,
    run_pass,
    write_off_attempt,
)
from elision.engine.event_log import Log, LogSetup
from elision.engine.money import CallResult, count_output_tokens
from elision.engine.terms import CallTerms, make_plain_terms, writes_for_an_hour

__all__ = [
    "SUMMARY_BEING_WRITTEN",
    "CallResult",
    "CallTerms",
    "Log",
    "LogSetup",
    "NotReady",
    "PassSteps",
    "Summarizer",
    "SummaryAnswer",
    "count_output_tokens",
    "decide",
    "expect_request",
    "hold_view",
    "make_plain_terms",
    "run_pass",
    "write_off_attempt",
    "writes_for_an_hour",
]
