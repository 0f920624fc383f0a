"""When hiding pays: tables of offers."""

from __future__ import annotations

import pytest

from elision.errors import SpecError
from elision.strategies.schedules import CAP, Batched, CacheAware, EveryTurn, Fixed, Hindsight, Offer, Schedule, Verdict


def verdicts(schedule: Schedule, *offers: Offer) -> list[Verdict]:
    """What one session's clock says to `offers`, acting as it says."""
    clock, found = schedule.start(), []
    for offer in offers:
        verdict, reason = clock.weigh(offer)
        assert reason
        clock.acted(verdict)
        found.append(verdict)
    return found


@pytest.mark.parametrize(
    ("offer", "verdict"),
    [
        (Offer(call=5), "hold"),
        (Offer(call=5, pending=True, fresh=1), "mask"),
        (Offer(call=5, summary=True), "summarize"),
        (Offer(call=5, pending=True, summary=True), "summarize"),
        (Offer(call=5, pending=True, mask=99.0), "mask"),
    ],
)
def test_every_turn(offer: Offer, verdict: Verdict) -> None:
    """Whatever is eligible, at once, whatever it costs; a summary before a mask."""
    assert verdicts(EveryTurn(), offer) == [verdict]


@pytest.mark.parametrize(("fresh", "verdict"), [(0, "hold"), (2, "hold"), (3, "mask"), (4, "mask")])
def test_batched(fresh: int, verdict: Verdict) -> None:
    """When n or more became eligible; a summary when it is due."""
    assert verdicts(Batched(3), Offer(call=9, pending=True, fresh=fresh)) == [verdict]
    assert verdicts(Batched(3), Offer(call=9, pending=True, fresh=fresh, summary=True)) == ["summarize"]


def test_fixed() -> None:
    """At the planned calls and no others, and only where there is something to do."""
    plan = Fixed(masks=frozenset({3, 5}), summaries=frozenset({5, 6}))
    offers = [Offer(call=call, pending=True, summary=call != 5) for call in range(2, 8)]
    assert verdicts(plan, *offers) == ["hold", "mask", "hold", "mask", "summarize", "hold"]
    assert verdicts(plan, Offer(call=3), Offer(call=6)) == ["hold", "hold"]


def offer(call: int, **costs: float) -> Offer:
    """A masking that saves 1 a call and takes 5 to rewrite, far below the cap."""
    amounts = {"hold": 10.0, "masked": 9.0, "mask": 14.0, "window": 12.0, "spent": 0.0, "raw": 1_000.0} | costs
    return Offer(call=call, pending=True, **amounts)  # type: ignore[arg-type]


def test_cache_aware_holds_until_it_has_paid() -> None:
    """Holding costs are summed, and the rewrite comes when they reach what waiting cannot save."""
    found = verdicts(CacheAware(), *(offer(call) for call in range(50, 56)))
    assert found == ["hold", "hold", "mask", "hold", "hold", "mask"]


def test_cache_aware_starts_again_after_acting() -> None:
    """What was held before a rewrite is not counted again."""
    clock = CacheAware().start()
    for _ in range(2):
        clock.weigh(offer(50))
        clock.acted("hold")
    clock.acted("mask")
    assert clock.weigh(offer(53))[0] == "hold"


def test_cache_aware_masks_what_is_free() -> None:
    """A rewrite no dearer than holding is done at once, as at a cold cache."""
    assert verdicts(CacheAware(), offer(2, mask=10.0)) == ["mask"]
    clock = CacheAware().start()
    cold = Offer(call=2, pending=True, hold=10.0, mask=9.0, masked=9.0, cold=True, raw=1.0)
    assert clock.weigh(cold) == ("mask", "cold cache")


def test_cache_aware_does_not_rewrite_for_a_short_rest() -> None:
    """Early in a run few calls are expected to come: a dear rewrite would not pay."""
    assert verdicts(CacheAware(), *(offer(call) for call in range(2, 8))) == ["hold"] * 6


def test_cache_aware_stays_within_the_cap() -> None:
    """However much holding has cost, a rewrite that breaks the cap is not made."""
    capped = [offer(call, spent=CAP * 100.0 - 13.9, raw=100.0) for call in range(50, 60)]
    assert verdicts(CacheAware(), *capped) == ["hold"] * 10
    assert "mask" in verdicts(
        CacheAware(), *(offer(call, spent=CAP * 100.0 - 14.0, raw=100.0) for call in range(50, 60))
    )


def test_cache_aware_says_why_it_holds() -> None:
    """A pass that does nothing records why (I4)."""
    assert CacheAware().start().weigh(Offer(call=3)) == ("hold", "nothing eligible")
    assert CacheAware().start().weigh(offer(50)) == ("hold", "rewrite not yet paid for")
    assert CacheAware().start().weigh(offer(50, window=9.0, spent=1_099.0)) == ("hold", "cap on raw")


def test_cache_aware_summary_needs_room_under_the_cap() -> None:
    """A summary, its own call included, stays within the cap, too."""
    costs = {"hold": 100.0, "mask": 100.0, "masked": 90.0, "summarize": 30.0, "summarized": 20.0, "summarizer": 50.0}
    plain = {"behind": 40, "call": 100, "summary": True}
    roomy = Offer(**plain, **costs, spent=0.0, raw=1_000.0)  # type: ignore[arg-type]
    tight = Offer(**plain, **costs, spent=1_021.0, raw=1_000.0)  # type: ignore[arg-type]
    assert verdicts(CacheAware(), roomy) == ["summarize"]
    assert verdicts(CacheAware(), tight) == ["hold"]


def test_cache_aware_without_a_summary_on_offer() -> None:
    """Nothing is summarized that is not on offer."""
    assert verdicts(CacheAware(), Offer(call=9, hold=9.0, summarized=0.0, behind=99, raw=99.0)) == ["hold"]


def test_clocks_are_apart() -> None:
    """Two sessions of one schedule do not share what they held."""
    schedule = CacheAware()
    one, other = schedule.start(), schedule.start()
    for _ in range(3):
        one.weigh(offer(50))
    assert other.weigh(offer(50))[0] == "hold"
    assert one.weigh(offer(50))[0] == "mask"


def test_hindsight_is_the_lab_s() -> None:
    """A live session knows no future."""
    with pytest.raises(SpecError, match="elision replay"):
        Hindsight().start()


@pytest.mark.parametrize("n", [0, -1])
def test_batched_needs_a_turn(n: int) -> None:
    """A batch has at least one turn."""
    with pytest.raises(SpecError, match="n must be 1 turn or more"):
        Batched(n)


def test_names() -> None:
    """A schedule prints as it is written."""
    assert [str(schedule) for schedule in (EveryTurn(), Batched(5), CacheAware(), Hindsight())] == [
        "every-turn",
        "batched(5)",
        "cache-aware",
        "hindsight",
    ]
