"""Which bills of a log a call and an answer are in."""

from __future__ import annotations

import pytest

from elision.engine import Log, decide, make_plain_terms, run_pass
from elision.testing.builders import call, long_text, result, turn, user
from elision.trajectory.events import SessionOpened, UsageReported
from elision.trajectory.recall_names import RECALL_TOOL
from elision.trajectory.turn import Turn
from elision.trajectory.usage import Usage
from tests.properties.builders import begin_session, write_brief_summary

RECALL = (call(RECALL_TOOL, id="r", handle="t1.1"), result(long_text(1), RECALL_TOOL, id="r"))


def send_again_after(answer: Turn, *, shadow: bool = False, output: int = 0) -> Log:
    """Return a log of two calls, the first answered with `answer`. output: tokens of it that were reported."""
    log = begin_session("masking")
    log.record_event(SessionOpened(strategy="masking", shadow=shadow))
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    if output:
        assert log.newest_call is not None
        usage = Usage(input=log.newest_call.view.tokens, output=output)
        log.record_event(UsageReported(call=1, usage=usage))
    log.add_turn(answer)
    run_pass(decide(log, make_plain_terms()), write_brief_summary)
    return log


@pytest.mark.parametrize(
    ("said", "shadow", "is_in_both"), [(False, False, False), (True, False, True), (False, True, True)]
)
def test_a_call_that_returns_a_recall_is_in_our_bill_only(said: bool, shadow: bool, is_in_both: bool) -> None:
    """Not where the user said something too, nor in shadow mode, where the client itself sends it."""
    log = send_again_after(turn(1, RECALL, said=[user("Go on.")] if said else []), shadow=shadow)
    assert log.costs.newest.ours.usd > 0
    assert (log.costs.newest.raw.usd > 0) == is_in_both
    assert (log.costs.plain_answers_usd > 0) == shadow


def test_an_answer_is_as_long_as_it_was_reported() -> None:
    """Reasoning is billed, and is not in the message."""
    log = send_again_after(turn(1, text="Done."), output=500)
    assert log.bill.answers.output == 500
    assert log.costs.plain_answers_usd == pytest.approx(log.bill.answers.usd)
    assert send_again_after(turn(1, text="Done.")).bill.answers.output < 10


def test_a_call_that_returns_a_recall_does_not_keep_the_plain_agents_cache_warm() -> None:
    """Without us there would be 400 s between two requests, which is longer than the cache keeps an entry."""
    log = begin_session("masking")
    log.record_event(SessionOpened(strategy="masking"))
    answers = turn(1, RECALL), turn(2, text="Done.", said=[user("More.")]), None
    for seconds, answer in zip((0.0, 200.0, 400.0), answers, strict=True):
        run_pass(decide(log, make_plain_terms(seconds)), write_brief_summary)
        if answer is not None:
            log.add_turn(answer)
    assert log.costs.newest.ours.cache_read > 0
    assert log.costs.newest.raw.cache_read == 0
