"""Which bills of a log a call and an answer are in, and how long they are as the provider counts."""

from __future__ import annotations

import pytest

from elision.engine import Log, decide, make_plain_terms, run_pass
from elision.engine.money import CountedCall, CountedPrompt, Money
from elision.testing.builders import call, long_text, result, turn, user
from elision.trajectory.events import SessionOpened, UsageReported
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.tokens import Sizer, TokenScale, make_counter
from elision.trajectory.tool_definitions import RECALL_TOOL
from elision.trajectory.turn import Turn
from elision.trajectory.usage import Usage
from tests.properties.builders import begin_session, write_brief_summary

PRICES = find_price_set("anthropic")

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
    assert log.money.newest.ours.usd > 0
    assert (log.money.newest.raw.usd > 0) == is_in_both
    assert (log.money.plain_answers_usd > 0) == shadow


def test_an_answer_is_as_long_as_it_was_reported() -> None:
    """Reasoning is billed, and is not in the message."""
    log = send_again_after(turn(1, text="Done."), output=500)
    assert log.money.answers.output == 500
    assert log.money.plain_answers_usd == pytest.approx(log.money.answers.usd)
    assert send_again_after(turn(1, text="Done.")).money.answers.output < 10


def test_a_call_that_returns_a_recall_does_not_keep_the_plain_agents_cache_warm() -> None:
    """Without us there would be 400 s between two requests, which is longer than the cache keeps an entry."""
    log = begin_session("masking")
    log.record_event(SessionOpened(strategy="masking"))
    answers = turn(1, RECALL), turn(2, text="Done.", said=[user("More.")]), None
    for seconds, answer in zip((0.0, 200.0, 400.0), answers, strict=True):
        run_pass(decide(log, make_plain_terms(seconds)), write_brief_summary)
        if answer is not None:
            log.add_turn(answer)
    assert log.money.newest.ours.cache_read > 0
    assert log.money.newest.raw.cache_read == 0


class Session:
    """Calls that add to each other, and what the provider reports of them."""

    def __init__(self) -> None:
        self.scale = TokenScale()
        self.money = Money(PRICES, self.scale, Sizer(make_counter()))
        self._calls = 0

    def add_call(self, ours: int, raw: int, billed: int, *, cached: int = 0, usage: Usage | None = None) -> None:
        """Book a call of `ours` and `raw` tokens by our count, for which the provider counts `billed`."""
        self._calls += 1
        self.money.add_counted_call(
            CountedCall(
                number=self._calls,
                ours=CountedPrompt(tokens=ours, cached_tokens=cached),
                raw=CountedPrompt(tokens=raw, cached_tokens=cached),
                has_client_marks=True,
                is_shadow=False,
                is_extra=False,
                extends=self._calls > 1,
            )
        )
        self.scale.add_report(ours, billed, extends=self._calls > 1)
        self.money.confirm_newest(usage)


def test_a_recall_s_share_of_what_is_new_is_ours_alone() -> None:
    """Of 3,000 billed tokens that are new, 400 of 1,000 by our count would be there without us."""
    session = Session()
    session.add_call(1_000, 1_000, 1_000)
    session.add_call(2_000, 2_000, 2_000)
    session.add_call(3_000, 2_400, 5_000)
    assert session.money.count_newest() == (5_000, 2_000 + 1_200)


def test_what_is_folded_as_it_arrives_is_longer_without_us() -> None:
    """The raw prompt grows by what was billed, and by what folding left out at the rate that is expected."""
    session = Session()
    session.add_call(1_000, 1_000, 1_000)
    session.add_call(1_400, 2_000, 1_800)
    assert session.money.count_newest() == (1_800, 1_000 + 800 + 600)


def test_a_prompt_is_found_in_the_cache_as_long_as_it_was_billed() -> None:
    """Not in proportion to the whole new prompt, of which the new part may be counted otherwise."""
    session = Session()
    session.add_call(10_000, 10_000, 15_000)
    session.add_call(11_000, 11_000, 20_000, cached=PRICES.cache.count_usable(10_000))
    found = PRICES.cache.count_usable(15_000)
    assert session.money.newest.ours.cache_read == found
    assert session.money.newest.raw.cache_read == found


@pytest.mark.parametrize("read", [0, 19_000])
def test_where_nothing_is_hidden_nothing_is_saved(read: int) -> None:
    """Both bills are the reported one, whatever the cache was expected to hold."""
    session = Session()
    session.add_call(10_000, 10_000, 15_000)
    usage = Usage(input=20_000 - read, cache_read=read, cache_write=0, output=10)
    session.add_call(11_000, 11_000, 20_000, cached=PRICES.cache.count_usable(10_000), usage=usage)
    assert session.money.newest.ours.cache_read == read
    assert session.money.newest.raw == session.money.newest.ours
