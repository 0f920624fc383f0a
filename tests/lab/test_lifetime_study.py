"""What cache lifetimes cost in replays, against what nothing can reach and what hindsight would choose."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import accumulate

import msgspec
import pytest

from elision.lab.dialect import sizer
from elision.lab.lifetime_study import CallTokens, LifetimeCosts, add_costs, bill_known_pauses, compare_lifetimes
from elision.lab.lifetime_trial import LifetimeTrial, send_pings
from elision.lab.pause_patterns import PATTERNS, set_pauses
from elision.lab.replay import replay_run
from elision.strategies.spec import parse_strategy
from elision.trajectory.content import make_content
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.trajectory import Trajectory
from elision.trajectory.turn import Head, Message
from tests.engine.test_lifetimes import make_turn, work

PRICES = find_price_set("anthropic")
SIZER = sizer("anthropic", "estimate")
HEAD = Head(messages=(Message(role="user", content=make_content("Read the files. " * 400)),))
RUN = Trajectory(id="run", file="run", format="test", head=HEAD, turns=tuple(map(make_turn, range(1, 61))))

#: Pauses that are too rare for an hour, and when calls with them start.
RARE_PAUSES = [0.0, *[10.0] * 12, 400.0, *[10.0] * 12, 400.0, *[10.0] * 12]
RARE = list(accumulate(RARE_PAUSES, initial=1_000.0))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_no_choice_is_better_than_hindsight(pattern: str) -> None:
    """Without hiding, whoever knows all pauses pays at most what any other choice costs, and at least the bound."""
    costs = compare_lifetimes(set_pauses(RUN, pattern, 1), parse_strategy("raw"), PRICES, SIZER).costs
    assert costs.never_cold <= costs.hindsight + 1e-9
    assert costs.hindsight <= min(costs.five_minutes, costs.hour, costs.planned, costs.pinged) + 1e-9


def test_the_planner_saves_most_of_what_steady_pauses_cost() -> None:
    """A call every six minutes finds a dead entry each time, unless it is planned."""
    costs = compare_lifetimes(set_pauses(RUN, "six-minute steps", 1), parse_strategy("masking"), PRICES, SIZER).costs
    for usd in (costs.planned, costs.pinged):
        share = costs.compute_share(usd)
        assert share is not None
        assert share > 0.6


def test_the_planner_costs_nothing_where_nobody_pauses() -> None:
    """An agent on its own is billed as if nothing were planned, and nothing is said of shares."""
    costs = compare_lifetimes(set_pauses(RUN, "no pauses", 1), parse_strategy("raw"), PRICES, SIZER).costs
    assert costs.planned == pytest.approx(costs.five_minutes)
    assert costs.compute_share(costs.planned) is None


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_is_the_same_again(pattern: str) -> None:
    """The same seed gives the same pauses, time never runs backwards, and no text is lost."""
    run = set_pauses(RUN, pattern, 7)
    assert run == set_pauses(RUN, pattern, 7)
    times = [turn.at or 0.0 for turn in run.turns]
    assert times == sorted(times)
    said = [[*turn.observations, *turn.interjections] for turn in run.turns]
    assert [len(each) for each in said] == [1] * len(RUN.turns)


def test_pings_after_the_last_call_are_billed() -> None:
    """At the end of a run nobody knows that it is over: the pings of that pause count. A call ends a pause."""
    log, _ = work(LifetimeTrial("plan", 12), RARE_PAUSES)
    newest = log.newest_call
    assert newest is not None
    assert newest.lifetime is not None
    assert newest.terms.now is not None
    assert newest.lifetime.pings > 0
    before = len(log.events)
    send_pings(log, newest.terms.now + 200)
    assert len(log.events) == before
    send_pings(log, None)
    assert len(log.events) == before + newest.lifetime.pings
    run = replace(
        RUN, turns=tuple(msgspec.structs.replace(turn, at=at) for turn, at in zip(RUN.turns, RARE, strict=False))
    )
    pinged = replay_run(run, parse_strategy("raw"), PRICES, SIZER, lifetime=LifetimeTrial("plan", 12))
    assert pinged.pings.usd > 0
    assert pinged.usd == pytest.approx(pinged.bill.usd + pinged.pings.usd)


def cost_one_choice(calls: list[CallTokens], lasting: int) -> float:
    """Return what `calls` cost more with entries of an hour for the first `lasting` calls, and of five minutes then."""
    rates = PRICES.tiers[0][1]
    usd = 0.0
    for number, call in enumerate(calls):
        pause = call.pause or 0.0
        is_hour = number < lasting
        was_hour = number <= lasting and number > 0 and lasting > 0
        is_dead = bool(call.before) and pause > (3_600 if was_hour else 300)
        usd += is_dead * (rates.write_price - rates.read_price) * call.read
        written = call.tokens if is_dead or not call.before else call.tokens - call.read
        usd += is_hour * (rates.write_price_1h - rates.write_price) * written
    return usd / 1e6


def test_hindsight_is_at_most_every_single_choice() -> None:
    """An hour for a while and five minutes then, for whatever while, costs no less."""
    numbers = random.Random(3)
    for _ in range(200):
        calls = [CallTokens(None, 0, 0, 5_000)]
        for _ in range(numbers.randint(0, 15)):
            before = calls[-1].tokens
            pause = numbers.choice([5.0, 20.0, 400.0, 1_500.0, 5_000.0])
            calls.append(CallTokens(pause, before, before, before + numbers.randint(10, 3_000)))
        least = bill_known_pauses(calls, PRICES).usd
        assert least >= 0
        assert least <= min(cost_one_choice(calls, lasting) for lasting in range(len(calls) + 1)) + 1e-9


def test_costs_add_up() -> None:
    """The costs of runs are added choice by choice."""
    one = LifetimeCosts(five_minutes=2.0, hour=1.5, planned=1.25, pinged=1.1, hindsight=1.05, never_cold=1.0)
    both = add_costs([one, one])
    assert both.five_minutes == 4.0
    assert both.compute_share(both.hour) == one.compute_share(one.hour) == 0.5
