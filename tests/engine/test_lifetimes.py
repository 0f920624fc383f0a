"""Lifetimes of cache entries in the log: decided once, recorded with the call, the same when it is read again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elision.engine import Log, LogSetup, decide, make_plain_terms, run_pass
from elision.lab.dialect import sizer
from elision.lab.lifetime_trial import LifetimeTrial, send_pings
from elision.lab.replay import model_free_summarizer
from elision.strategies.lifetime_planner import LifetimeOffer, LifetimePlanner
from elision.strategies.spec import parse_strategy
from elision.trajectory.content import make_content
from elision.trajectory.event_json import decode_event, encode_event
from elision.trajectory.events import CachePinged, PassDecided, RequestSent
from elision.trajectory.lifetimes import CacheLifetime
from elision.trajectory.price_lookup import find_prices
from elision.trajectory.prices import Bill
from elision.trajectory.turn import Action, Head, Message, Observation, Turn
from elision.trajectory.usage import Usage

SETUP = LogSetup(parse_strategy("masking(window=3)"), find_prices("claude-sonnet-4-5"), sizer("anthropic", "estimate"))
#: Seconds before each call: work with pauses of six minutes, one of two hours.
PAUSES = [0.0, *[20.0, 360.0, 15.0] * 8, 7_200.0, 20.0, 360.0]


def make_turn(index: int) -> Turn:
    action = Action(id=f"c{index}", name="read", arguments=f'{{"file": {index}}}')
    lines = "\n".join(f"{index}:{line} some text of a file" for line in range(120))
    result = Observation(tool="read", action_id=f"c{index}", content=make_content(lines))
    return Turn(index=index, content=make_content("I read."), actions=(action,), observations=(result,))


def work(trial: LifetimeTrial, pauses: Sequence[float] = PAUSES) -> tuple[Log, list[tuple[int, int]]]:
    """Return a log under `trial`, and for each call the tokens read from the cache and those kept for an hour."""
    log = Log.fold((), SETUP)
    log.set_head(Head(messages=(Message(role="user", content=make_content("Read the files. " * 400)),)))
    now, seen = 1_700_000_000.0, []
    for index, pause in enumerate(pauses, start=1):
        now += pause
        send_pings(log, now)
        terms = replace(make_plain_terms(now, "m"), lifetime=trial.choice, most_pings=trial.most_pings)
        view = run_pass(decide(log, terms), model_free_summarizer(SETUP.sizer or sizer("anthropic", "estimate")))
        assert log.newest_call is not None
        seen.append((log.bill.newest_prompt.cache_read, log.newest_call.view.hour_tokens))
        assert view.tokens == log.newest_call.view.tokens
        log.add_turn(make_turn(index))
    return log, seen


def test_the_planner_goes_over_to_an_hour() -> None:
    """After pauses that the entries did not outlast, the prompt is written for an hour, and read after the next."""
    _, seen = work(LifetimeTrial("plan"))
    assert seen[0][1] == 0
    first = next(call for call, (_, hour) in enumerate(seen) if hour)
    assert seen[first][0] == 0
    later = [read for call, (read, _) in enumerate(seen) if call > first and PAUSES[call] == 360.0]
    assert all(later)


@pytest.mark.parametrize(
    "trial", [LifetimeTrial("plan"), LifetimeTrial("plan", 6), LifetimeTrial("1h"), LifetimeTrial("5m")]
)
def test_the_log_read_again_is_the_same(trial: LifetimeTrial) -> None:
    """Decisions and pings are events: a log that is read again, as JSON too, has the same bills and the same plans."""
    log, _ = work(trial)
    events = [decode_event(json.loads(json.dumps(encode_event(event)))) for event in log.events]
    again = Log.fold(events, SETUP)
    assert again.bill.spent_usd == log.bill.spent_usd
    assert again.bill.raw_spent_usd == log.bill.raw_spent_usd
    assert again.costs.total == log.costs.total
    assert again.newest_call is not None
    assert log.newest_call is not None
    assert again.newest_call.lifetime == log.newest_call.lifetime
    assert again.newest_call.view.hour_length == log.newest_call.view.hour_length
    assert [event.lifetime for event in again.events if isinstance(event, RequestSent)] == [
        event.lifetime for event in log.events if isinstance(event, RequestSent)
    ]


def test_the_client_decides_unless_told_otherwise() -> None:
    """By default nothing is decided, and nothing of it is in the record."""
    log, seen = work(LifetimeTrial())
    assert {hour for _, hour in seen} == {0}
    sent = [event for event in log.events if isinstance(event, RequestSent)]
    assert {event.lifetime for event in sent} == {None}
    assert "lifetime" not in encode_event(sent[0])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(0, 3_600), min_size=5, max_size=14))
def test_a_pause_within_the_hour_is_never_a_cold_cache(pauses: list[float]) -> None:
    """Whatever the pauses, entries that live an hour are taken for dead only after an hour; others after minutes."""
    log, seen = work(LifetimeTrial("1h"), [0.0, *pauses])
    reasons = [event.reason for event in log.events if isinstance(event, PassDecided)]
    assert "cold cache" not in reasons
    assert all(read for read, _ in seen[1:])
    short, _ = work(LifetimeTrial("5m"), [*[10.0] * 8, 1_000.0])
    assert [event.reason for event in short.events if isinstance(event, PassDecided)][-1] == "cold cache"


def test_pings_are_billed_and_keep_the_cache_warm() -> None:
    """A ping reads the prompt once more, and the next call reads it too, where it would have found nothing."""
    log, _ = work(LifetimeTrial("5m"))
    newest = log.newest_call
    assert newest is not None
    assert newest.terms.now is not None
    before = log.bill.spent_usd
    log.record_event(CachePinged(call=newest.decided.call, at=newest.terms.now + 285))
    assert log.bill.pings.cache_read == newest.view.tokens
    assert log.bill.pings.output == 1
    assert log.bill.spent_usd == pytest.approx(before + log.bill.pings.usd)
    assert (log.costs.pings, log.costs.ping_count) == (log.bill.pings, 1)
    assert log.bill.cache.count_cached(newest.view, newest.terms.now + 500, "m") == newest.view.tokens


def test_the_pause_that_has_just_ended_counts() -> None:
    """A request is planned with the pause before it: that one found the cache cold, so its prompt is written again."""
    _, seen = work(LifetimeTrial("plan"), [0.0, *[360.0] * 8])
    first = next(call for call, (_, hour) in enumerate(seen) if hour)
    planner = LifetimePlanner(SETUP.prices)
    for call in range(first):
        planner.record_call(call * 360.0, "m", follows_words=False)
    offer = LifetimeOffer(
        turns=first, stable_turn=0, tokens=9_000, lasting_tokens=0, may_last=True, calls=first, rewrites=0
    )
    assert planner.choose_lifetime("plan", 0, offer) == CacheLifetime(planned=True)
    planner.record_call(first * 360.0, "m", follows_words=False)
    assert planner.choose_lifetime("plan", 0, offer) == CacheLifetime(hour_turn=first, planned=True)


def test_a_ping_whose_usage_was_reported_is_billed_by_it() -> None:
    """What the provider reported is what the session pays, also where the response came after the next call."""
    log, _ = work(LifetimeTrial("5m"))
    newest = log.newest_call
    assert newest is not None
    usage = Usage(cache_read=1_000, cache_write=200, cache_write_1h=200, input=3, output=1)
    log.record_event(CachePinged(call=newest.decided.call, at=1.0, usage=usage))
    expected = SETUP.prices.cost_usage(usage)
    assert log.costs.pings == Bill(
        input=3, cache_read=1_000, cache_write=200, cache_write_1h=200, output=1, usd=pytest.approx(expected)
    )
    spent = log.bill.spent_usd
    log.record_event(CachePinged(call=newest.decided.call - 1, at=1.0, usage=usage))
    assert log.costs.pings.usd == pytest.approx(2 * expected)
    assert log.costs.ping_count == 2
    assert log.bill.spent_usd == spent, "the cache is as it was"
    again = Log.fold(log.events, log.setup)
    assert (again.costs.pings, again.costs.ping_count) == (log.costs.pings, 2)


def test_pings_of_older_logs_are_read() -> None:
    """They have no usage; those of today have it in the same place as calls."""
    old = {"v": 1, "e": "pinged", "call": 3, "at": 5.0}
    assert decode_event(old) == CachePinged(call=3, at=5.0)
    assert encode_event(CachePinged(call=3, at=5.0)) == old
    new = CachePinged(call=3, at=5.0, usage=Usage(cache_read=7, output=1))
    assert decode_event(encode_event(new)) == new


def test_a_setting_holds_for_everything() -> None:
    """`1h` writes each prompt for an hour, and what sending everything would cost is billed so as well."""
    log, seen = work(LifetimeTrial("1h"))
    assert all(hour for _, hour in seen)
    assert log.bill.raw_prompts.cache_write_1h == log.bill.raw_prompts.cache_write > 0
    planned, _ = work(LifetimeTrial("plan"))
    assert planned.bill.raw_prompts.cache_write_1h == 0
    assert {event.lifetime for event in log.events if isinstance(event, RequestSent)} == {
        CacheLifetime(hour_turn=turn) for turn in range(len(PAUSES))
    }
