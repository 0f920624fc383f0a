"""When hiding pays, and what a summarizer call costs by the cheaper of two routes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import SpecError
from elision.strategies.schedules import (
    BLOCK_TOKENS,
    INSTRUCTION_TOKENS,
    SPENDING_CAP,
    CacheAwareSchedule,
    CostEstimates,
    EveryTurnSchedule,
    FixedSchedule,
    HindsightSchedule,
    Schedule,
    SummaryCall,
    Verdict,
    choose_summary_call,
)
from elision.summarizers.prompt import build_prompt
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_table import load_price_table
from elision.trajectory.prices import Prices
from elision.trajectory.summary_block import format_summary_block
from tests.properties.builders import CACHED, PLAIN, SIZER, steps


def verdicts(schedule: Schedule, *offers: CostEstimates) -> list[Verdict]:
    """What one session's clock says to `offers`, acting as it says."""
    clock, found = schedule.start_clock(), []
    for offer in offers:
        verdict, reason = clock.choose_action(offer)
        assert reason
        clock.record_action(verdict)
        found.append(verdict)
    return found


@pytest.mark.parametrize(
    ("offer", "verdict"),
    [
        (CostEstimates(call=5), "hold"),
        (CostEstimates(call=5, can_mask=True), "mask"),
        (CostEstimates(call=5, can_summarize=True), "summarize"),
        (CostEstimates(call=5, can_mask=True, can_summarize=True), "summarize"),
        (CostEstimates(call=5, can_mask=True, cost_mask_now=99.0), "mask"),
    ],
)
def test_every_turn(offer: CostEstimates, verdict: Verdict) -> None:
    """Whatever is eligible, at once, whatever it costs; a summary before a mask."""
    assert verdicts(EveryTurnSchedule(), offer) == [verdict]


def test_fixed() -> None:
    """At the planned calls and no others, and only where there is something to do."""
    plan = FixedSchedule(mask_calls=frozenset({3, 5}), summary_calls=frozenset({5, 6}))
    offers = [CostEstimates(call=call, can_mask=True, can_summarize=call != 5) for call in range(2, 8)]
    assert verdicts(plan, *offers) == ["hold", "mask", "hold", "mask", "summarize", "hold"]
    assert verdicts(plan, CostEstimates(call=3), CostEstimates(call=6)) == ["hold", "hold"]


def offer(call: int, **costs: float) -> CostEstimates:
    """A masking that saves 1 a call and takes 5 to rewrite, far below the cap."""
    amounts = {
        "cost_hold": 10.0,
        "cost_if_masked_before": 9.0,
        "cost_mask_now": 14.0,
        "cost_floor": 12.0,
        "spent_usd": 0.0,
        "raw_usd": 1_000.0,
    } | costs
    return CostEstimates(call=call, can_mask=True, **amounts)  # type: ignore[arg-type]


def test_cache_aware_holds_until_it_has_paid() -> None:
    """Holding costs are summed, and the rewrite comes when they reach what waiting cannot save."""
    found = verdicts(CacheAwareSchedule(), *(offer(call) for call in range(50, 56)))
    assert found == ["hold", "hold", "mask", "hold", "hold", "mask"]


def test_cache_aware_starts_again_after_acting() -> None:
    """What was held before a rewrite is not counted again."""
    clock = CacheAwareSchedule().start_clock()
    for _ in range(2):
        clock.choose_action(offer(50))
        clock.record_action("hold")
    clock.record_action("mask")
    assert clock.choose_action(offer(53))[0] == "hold"


def test_cache_aware_counts_a_call_once() -> None:
    """A pass that was broken off is asked about again: what is not recorded has cost nothing."""
    clock = CacheAwareSchedule().start_clock()
    for _ in range(9):
        assert clock.choose_action(offer(50))[0] == "hold"


def test_cache_aware_masks_what_is_free() -> None:
    """A rewrite no dearer than holding is done at once, as at a cold cache."""
    assert verdicts(CacheAwareSchedule(), offer(2, cost_mask_now=10.0)) == ["mask"]
    clock = CacheAwareSchedule().start_clock()
    cold = CostEstimates(
        call=2,
        can_mask=True,
        cost_hold=10.0,
        cost_mask_now=9.0,
        cost_if_masked_before=9.0,
        is_cache_cold=True,
        raw_usd=1.0,
    )
    assert clock.choose_action(cold) == ("mask", "cold cache")


def test_cache_aware_does_not_rewrite_for_a_short_rest() -> None:
    """Early in a run few calls are expected to come: a dear rewrite would not pay."""
    assert verdicts(CacheAwareSchedule(), *(offer(call) for call in range(2, 8))) == ["hold"] * 6


def test_cache_aware_knows_the_end() -> None:
    """A rewrite of 5 that saves 1 a call is made while five calls are left, and not later."""
    schedule = CacheAwareSchedule(max_turns=60)
    assert verdicts(schedule, *(offer(call) for call in range(54, 57))) == ["hold", "hold", "mask"]
    assert verdicts(schedule, *(offer(call) for call in range(57, 61))) == ["hold"] * 4
    assert verdicts(CacheAwareSchedule(), *(offer(call) for call in range(57, 61))) == ["hold", "hold", "mask", "hold"]


def test_cache_aware_expects_no_more_calls_for_a_limit() -> None:
    """A limit far away, or one that the run has passed, changes nothing."""
    calls = [offer(call) for call in (2, 3, 4, 5, 6, 50, 51, 52, 53)]
    for limit in (1, 1_000):
        assert verdicts(CacheAwareSchedule(max_turns=limit), *calls) == verdicts(CacheAwareSchedule(), *calls)


def test_a_summary_has_to_pay_before_the_end() -> None:
    """A summary that costs what ten calls save is not made when five are left."""
    due = CostEstimates(
        call=96,
        can_summarize=True,
        turns_since_summary=40,
        cost_hold=100.0,
        cost_summarize_now=95.0,
        cost_if_summarized_before=90.0,
        cost_summarizer=95.0,
        raw_usd=10_000.0,
    )
    assert verdicts(CacheAwareSchedule(), due) == ["summarize"]
    assert verdicts(CacheAwareSchedule(max_turns=105), due) == ["summarize"]
    assert verdicts(CacheAwareSchedule(max_turns=104), due) == ["hold"]


@pytest.mark.parametrize("turns", [0, -1])
def test_an_end_is_a_turn(turns: int) -> None:
    """A run has at least one turn."""
    with pytest.raises(SpecError, match=r"cache-aware\(max_turns="):
        CacheAwareSchedule(max_turns=turns)


def test_cache_aware_stays_within_the_cap() -> None:
    """However much holding has cost, a rewrite that breaks the cap is not made."""
    capped = [offer(call, spent_usd=SPENDING_CAP * 100.0 - 13.9, raw_usd=100.0) for call in range(50, 60)]
    assert verdicts(CacheAwareSchedule(), *capped) == ["hold"] * 10
    assert "mask" in verdicts(
        CacheAwareSchedule(),
        *(offer(call, spent_usd=SPENDING_CAP * 100.0 - 14.0, raw_usd=100.0) for call in range(50, 60)),
    )


def test_cache_aware_does_not_spend_what_folding_saves() -> None:
    """Folding alone would have saved it: the cap is on what is left of sending everything."""
    bill = 100.0 * (1 - 0.2)
    for spent, masks in ((SPENDING_CAP * bill - 14.0, True), (SPENDING_CAP * bill - 13.9, False)):
        offers = [offer(call, spent_usd=spent, raw_usd=100.0, folded_share=0.2) for call in range(50, 60)]
        assert ("mask" in verdicts(CacheAwareSchedule(), *offers)) == masks


def test_cache_aware_says_why_it_holds() -> None:
    """A pass that does nothing records why (I4)."""
    assert CacheAwareSchedule().start_clock().choose_action(CostEstimates(call=3)) == ("hold", "nothing eligible")
    assert CacheAwareSchedule().start_clock().choose_action(offer(50)) == ("hold", "rewrite not yet paid for")
    assert CacheAwareSchedule().start_clock().choose_action(offer(50, cost_floor=9.0, spent_usd=1_099.0)) == (
        "hold",
        "cap on raw",
    )


def test_cache_aware_summary_needs_room_under_the_cap() -> None:
    """A summary, its own call included, stays within the cap, too."""
    costs = {
        "cost_hold": 100.0,
        "cost_mask_now": 100.0,
        "cost_if_masked_before": 90.0,
        "cost_summarize_now": 30.0,
        "cost_if_summarized_before": 20.0,
        "cost_summarizer": 50.0,
    }
    plain = {"turns_since_summary": 40, "call": 100, "can_summarize": True}
    roomy = CostEstimates(**plain, **costs, spent_usd=0.0, raw_usd=1_000.0)  # type: ignore[arg-type]
    tight = CostEstimates(**plain, **costs, spent_usd=1_021.0, raw_usd=1_000.0)  # type: ignore[arg-type]
    assert verdicts(CacheAwareSchedule(), roomy) == ["summarize"]
    assert verdicts(CacheAwareSchedule(), tight) == ["hold"]


def test_cache_aware_without_a_summary_on_offer() -> None:
    """Nothing is summarized that is not on offer."""
    assert verdicts(
        CacheAwareSchedule(),
        CostEstimates(call=9, cost_hold=9.0, cost_if_summarized_before=0.0, turns_since_summary=99, raw_usd=99.0),
    ) == ["hold"]


def test_clocks_are_apart() -> None:
    """Two sessions of one schedule do not share what they held."""
    schedule = CacheAwareSchedule()
    one, other = schedule.start_clock(), schedule.start_clock()
    for _ in range(2):
        one.choose_action(offer(50))
        one.record_action("hold")
    assert other.choose_action(offer(50))[0] == "hold"
    assert one.choose_action(offer(50))[0] == "mask"


def test_hindsight_is_the_lab_s() -> None:
    """A live session knows no future."""
    with pytest.raises(SpecError, match="elision replay"):
        HindsightSchedule().start_clock()


def test_names() -> None:
    """A schedule prints as it is written."""
    assert [str(schedule) for schedule in (EveryTurnSchedule(), CacheAwareSchedule(), HindsightSchedule())] == [
        "every-turn",
        "cache-aware",
        "hindsight",
    ]


def cost(prices: Prices, **sizes: int) -> SummaryCall:
    defaults = {"covered": 5_000, "previous": 100, "live": 8_000, "live_cached": 0, "hidden": 0, "output": 500}
    return choose_summary_call(prices, **(defaults | sizes))


def test_fresh_without_a_cache() -> None:
    """Where nothing is cached, only what is covered is sent."""
    call = cost(PLAIN)
    assert (call.route, call.input, call.cached) == ("fresh", INSTRUCTION_TOKENS + 100 + 5_000, 0)


def test_extending_a_warm_prefix() -> None:
    """Where the live prefix is cheap to read, the request extends it, and carries what is hidden there again."""
    call = cost(CACHED, live_cached=8_000, hidden=300)
    assert (call.route, call.input, call.cached) == ("extend", INSTRUCTION_TOKENS + 8_000 + 300, 8_000)


def test_too_much_hidden() -> None:
    """Unmasked turns that the prefix no longer holds can make the fresh prompt cheaper."""
    assert cost(CACHED, live_cached=8_000, hidden=5_000).route == "fresh"


@given(st.sampled_from(sorted(load_price_table().sets)), *[st.integers(0, 50_000)] * 5)
def test_the_cheaper_route(name: str, covered: int, previous: int, live: int, hidden: int, output: int) -> None:
    """The route taken is never the dearer one, its bill is the price list's, and the fixed part is part of it."""
    prices = load_price_table().sets[name]
    call = cost(prices, covered=covered, previous=previous, live=live, live_cached=live, hidden=hidden, output=output)
    fresh = prices.bill_call(INSTRUCTION_TOKENS + previous + covered, 0, output).usd
    extend = prices.bill_call(INSTRUCTION_TOKENS + live + hidden, live, output).usd
    assert call.usd == min(fresh, extend) == prices.bill_call(call.input, call.cached, call.output).usd
    assert 0 <= call.fixed_usd <= call.usd


def test_the_frame_is_what_it_is_taken_for() -> None:
    """A block's label and frame are within what they are counted as."""
    assert SIZER.count_text(format_summary_block("x", 123, [], [])) - SIZER.count("x") <= BLOCK_TOKENS


def test_the_instructions_are_what_they_are_taken_for() -> None:
    """The prompt around the turns is within what it is counted as."""
    request = SummaryRequest(previous="", task="Mend it.", turns=steps(2), max_tokens=1_000)
    said = sum(
        SIZER.count_assistant(turn) + sum(map(SIZER.count_observation, turn.observations)) for turn in request.turns
    )
    assert SIZER.count(build_prompt(request)) - said <= INSTRUCTION_TOKENS
