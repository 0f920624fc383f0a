"""Totals over a session's log."""

from __future__ import annotations

import pytest

from elision.manager.context_options import Options
from elision.manager.ledger import REMEMBERED_CALLS, Ledger
from elision.trajectory.events import Event, ObservationRecalled, PassDecided, RequestSent, UsageReported, WindowLearned
from elision.trajectory.plan import Edit
from elision.trajectory.price_lookup import find_price_set
from elision.trajectory.usage import Usage

#: 1,000 tokens in and 20 out: 0.05 and 0.40 USD a million, 1.75 and 14.
NANO_USD = (1_000 * 0.05 + 20 * 0.40) / 1e6
USD = (1_000 * 1.75 + 20 * 14) / 1e6
USAGE = Usage(input=1_000, output=20)


def called(call: int, model: str = "gpt-5.2", tokens: int = 1_000) -> RequestSent:
    return RequestSent(call=call, at=float(call), model=model, tokens=tokens)


def of_nano(options: Options | None = None) -> Ledger:
    """The totals of a session that began with gpt-5-nano."""
    options = options or Options()
    return Ledger(options.find_prices("gpt-5-nano"), options.find_prices)


@pytest.mark.parametrize(("by", "costs"), [("tool", True), ("user", False)])
def test_only_the_agent_pays_for_what_it_reads(by: str, costs: bool) -> None:
    """What a tool call read again is in the prompt and on the bill; what the caller read for himself is in neither."""
    ledger = Ledger(find_price_set("anthropic"))
    events: list[Event] = [
        ObservationRecalled(call=1, key=(1, 1), tokens=5_000, by=by),
        RequestSent(call=2, at=None, model="", tokens=900),
    ]
    ledger.fold_new(events)
    assert ledger.recalls == 1
    assert (ledger.recall_usd > 0) is costs


def of_gpt() -> Ledger:
    """The totals of a session that began with gpt-5.2."""
    return Ledger(Options().find_prices("gpt-5.2"), Options().find_prices)


def test_each_call_is_billed_at_its_own_model() -> None:
    """Whichever model the session began with; a call that names none is of that one, and a late report of its own."""
    ledger = of_nano()
    told: list[tuple[Event, float]] = [
        (called(1, "gpt-5-nano"), 0.0),
        (called(2, "gpt-5.2"), 0.0),
        (UsageReported(call=2, usage=USAGE), USD),
        (called(3, ""), USD),
        (UsageReported(call=3, usage=USAGE), USD + NANO_USD),
        (UsageReported(call=1, usage=USAGE), USD + 2 * NANO_USD),
        # Told again, it is the same call's.
        (UsageReported(call=2, usage=USAGE), USD + 2 * NANO_USD),
    ]
    for event, usd in told:
        ledger.fold_event(event)
        assert (ledger.billed_usd or 0.0) == pytest.approx(usd)


def test_given_prices_are_those_of_all_models() -> None:
    """What the settings say is not asked anew for each model; and nor is it where only one price list is known."""
    for ledger in (of_nano(Options(prices=find_price_set("anthropic"))), Ledger(find_price_set("anthropic"))):
        ledger.fold_new([called(1, "gpt-5.2"), UsageReported(call=1, usage=USAGE)])
        rates = find_price_set("anthropic").find_rates(1_000)
        assert ledger.billed_usd == pytest.approx((1_000 * rates.input + 20 * rates.output) / 1e6)


def test_what_nobody_reports_is_due() -> None:
    """A call counts as its prompt until it is reported, whatever was reported before it; as billed it never counts."""
    ledger = of_gpt()
    ledger.fold_new([called(1), UsageReported(call=1, usage=USAGE), called(2, tokens=2_000)])
    # Of 2,000 tokens the cache has those of the call before: 0.175 USD a million, and the rest is input at 1.75.
    prompt = (1_000 * 0.175 + 1_000 * 1.75) / 1e6
    assert (ledger.billed_usd, ledger.due_usd) == (pytest.approx(USD), pytest.approx(USD + prompt))
    ledger.fold_event(called(3, tokens=2_000))
    assert ledger.due_usd == pytest.approx(USD + prompt + 2_000 * 0.175 / 1e6)
    for call in (2, 3, 3):
        ledger.fold_event(UsageReported(call=call, usage=USAGE))
    assert ledger.due_usd == ledger.billed_usd == pytest.approx(3 * USD)


@pytest.mark.parametrize("between", ["gpt-5.2", "gpt-5-nano", "rewrite"])
def test_what_the_cache_may_have(between: str) -> None:
    """Nothing of another model's prompt, and nothing of one that was rewritten since."""
    ledger = of_gpt()
    ledger.fold_event(called(1))
    if between == "rewrite":
        ledger.fold_event(PassDecided(call=2, reason="", edits=(Edit((1, 1), "mask", "gone"),)))
    else:
        ledger.fold_event(called(2, between))
    before = ledger.due_usd
    ledger.fold_event(called(3))
    assert ledger.due_usd - before == pytest.approx(1_000 * (0.175 if between == "gpt-5.2" else 1.75) / 1e6)


def test_a_prompt_that_was_too_long_is_not_due() -> None:
    """The provider refused it; what was reported stays."""
    ledger = of_gpt()
    ledger.fold_new([called(1), UsageReported(call=1, usage=USAGE), called(2), WindowLearned(call=2, window=900)])
    ledger.fold_new([WindowLearned(call=1, window=900), WindowLearned(call=7, window=900)])
    assert ledger.due_usd == pytest.approx(USD)


def test_many_calls_are_not_all_held() -> None:
    """What is known of single calls is bounded, however long the session."""
    ledger = of_nano()
    for call in range(1, 10 * REMEMBERED_CALLS):
        ledger.fold_event(called(call, "gpt-5.2"))
        ledger.fold_event(UsageReported(call=call, usage=USAGE))
    assert len(ledger._calls) == REMEMBERED_CALLS
    assert ledger.billed_usd == pytest.approx((10 * REMEMBERED_CALLS - 1) * USD)
