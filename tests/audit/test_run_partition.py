"""Every billed dollar has one cause, and it is the one that was planted."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import date

import msgspec
import pytest

from elision.audit.audit_wording import describe_finding
from elision.audit.cause_table import CAUSES, Cause
from elision.audit.run_partition import AuditedRun, CallSignature, partition_run
from elision.testing import builders
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.trajectory import PromptChange, Trajectory
from elision.trajectory.usage import ModelUsage, Usage
from tests.audit.planted_runs import PRICES, RATES, SIZER, PlantedRun


def price(model: str, on: date | None) -> Prices:
    return PRICES


def audited(run: Trajectory, prices: Prices = PRICES) -> AuditedRun:
    found = partition_run(run, SIZER, price=lambda model, on: prices)
    assert found is not None
    return found


def usd(run: AuditedRun, cause: Cause) -> float:
    return run.causes[cause].usd if cause in run.causes else 0.0


@pytest.mark.parametrize("hour", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_planted_causes_are_found(seed: int, hour: bool) -> None:
    """Each cause has at least 99 % of the dollars that were planted, and no more than 101 %."""
    planted = PlantedRun(seed, hour=hour)
    found = audited(planted.build())
    assert planted.planted.total() >= 3
    for cause in CAUSES:
        assert usd(found, cause) == pytest.approx(planted.expected[cause], rel=0.01, abs=1e-5), cause


@pytest.mark.parametrize("hour", [False, True])
def test_causes_sum_to_the_bill(hour: bool) -> None:
    """To the last digit that a sum of floats keeps."""
    run = PlantedRun(99, hour=hour).build()
    found = audited(run)
    bill = sum(PRICES.cost_usage(turn.usage) for turn in run.turns if turn.usage is not None)
    assert found.usd == pytest.approx(bill, rel=1e-12)
    assert sum(total.usd for total in found.causes.values()) == pytest.approx(bill, rel=1e-12)


def test_avoidable_is_at_most_the_cause() -> None:
    found = audited(PlantedRun(3).build())
    assert all(0 <= total.avoidable_usd <= total.usd + 1e-12 for total in found.causes.values())
    expired = found.causes.get("expired-5m") or found.causes["prefix-changed"]
    # Read instead of written: 0.5 for 6.25.
    assert expired.avoidable_usd == pytest.approx(expired.usd * (1 - 0.5 / 6.25))


def run_of(*usages: Usage, pause: float = 10.0, models: tuple[str, ...] = ()) -> Trajectory:
    """A run whose calls have these bills, `pause` seconds apart."""
    turns = [
        msgspec.structs.replace(
            builders.step(index), usage=usage, at=1000.0 + pause * index, model=models[index - 1] if models else "m"
        )
        for index, usage in enumerate(usages, start=1)
    ]
    return replace(builders.trajectory(*turns), model="m")


def test_a_place_is_named() -> None:
    """A finding says from which token on old text was sent again, and where that is."""
    first, second = Usage(cache_write=5000), Usage(cache_read=1000, cache_write=4500)
    [finding] = audited(run_of(first, second)).findings
    assert (finding.call, finding.cause, finding.tokens, finding.first_token) == (2, "prefix-changed", 4000, 1000)
    assert finding.place == "system prompt, tools or task"
    assert finding.seconds == 10.0
    assert describe_finding(finding) == (
        "prefix changed: 4.0k tokens, from token 1,000 on: system prompt, tools or task; changed by the agent, or by a "
        "proxy in between; 10 s since the call before"
    )


def test_what_the_log_says_was_changed_is_named() -> None:
    run = replace(
        run_of(Usage(cache_write=5000), Usage(cache_read=1000, cache_write=4500)),
        changes=(PromptChange(before=1, what="the tools"), PromptChange(before=2, what="the thinking level")),
    )
    [finding] = audited(run).findings
    assert finding.changed == ("the thinking level",)
    assert "system prompt, tools or task; the thinking level changed before this call; " in describe_finding(finding)


def test_the_byte_of_a_result_is_named() -> None:
    """Where the cache ends within a result: its tool, the byte, and that the log keeps it as it was."""
    usages = (
        Usage(cache_write=200),
        Usage(cache_read=200, cache_write=8_000),
        Usage(cache_read=5_000, cache_write=4_000),
    )
    [finding] = audited(run_of(*usages)).findings
    assert (finding.call, finding.first_token) == (3, 5_000)
    length = len(builders.step(1).observations[0].text.encode())
    found = re.fullmatch(r"turn 1, result 1 \(bash\), near byte (\d+)", finding.place)
    assert found is not None
    assert 0 < int(found[1]) < length
    assert "whole in the log, so edited on its way" in describe_finding(finding)


def test_an_automatic_cache_that_finds_nothing_missed() -> None:
    rates = Rates(input=1, output=8, cache_read=0.1)
    prices = Prices(name="auto", tiers=((0, rates),), cache=CacheRules(kind="prefix"))
    found = audited(run_of(Usage(input=5000), Usage(input=200, cache_read=5000), Usage(input=5400)), prices)
    assert found.causes["missed"].tokens == 5200


def test_a_model_with_a_cache_that_was_not_used() -> None:
    found = audited(run_of(Usage(input=5000), Usage(input=5200), Usage(input=5400)))
    assert found.causes["not-cached"].tokens == 10200
    assert not found.is_cached


def test_a_provider_without_a_cache_sends_context_again() -> None:
    prices = Prices(name="plain", tiers=((0, Rates(input=1, output=8)),), cache=CacheRules(kind="none"))
    found = audited(run_of(Usage(input=5000), Usage(input=5200)), prices)
    assert "not-cached" not in found.causes
    assert found.usd == pytest.approx(0.0102)


def test_a_prompt_too_short_for_a_cache_is_no_waste() -> None:
    """Below the provider's minimum nothing is cached, so nothing could have been avoided."""
    prices = replace(PRICES, cache=replace(PRICES.cache, minimum=4096))
    found = audited(run_of(Usage(input=3000), Usage(input=3500), Usage(cache_write=5000)), prices)
    assert "not-cached" not in found.causes
    assert not found.findings


def test_another_model_writes_the_prompt_anew() -> None:
    bills = (Usage(cache_write=5000), Usage(cache_write=5100), Usage(cache_read=5000, cache_write=300))
    found = audited(run_of(*bills, models=("m", "other", "m")))
    assert found.causes["model-switch"].tokens == 5000


def test_a_fallen_prompt_is_an_inferred_compaction() -> None:
    found = audited(run_of(Usage(cache_write=9000), Usage(cache_read=1000, cache_write=2000)))
    [finding] = found.findings
    assert finding.cause == "compaction"
    assert finding.is_inferred


def test_helpers_are_apart() -> None:
    """What another model did within a call has its own cause, and the sum is the bill."""
    helper = ModelUsage("helper", Usage(input=700, output=100))
    usage = Usage(input=700, cache_write=5000, output=150, others=(helper,))
    found = audited(run_of(usage))
    assert found.causes["other-model"].tokens == 800
    assert found.usd == pytest.approx((700 * RATES.input + 5000 * RATES.write_price + 150 * RATES.output) / 1e6)


def test_a_copied_call_is_counted_once() -> None:
    """A resumed session repeats the calls of the one before in its own log."""
    run = run_of(Usage(cache_write=5000), Usage(cache_read=5000, cache_write=100))
    known: set[CallSignature] = set()
    first = partition_run(run, SIZER, price=price, known=known)
    again = partition_run(run, SIZER, price=price, known=known)
    assert first is not None
    assert again is not None
    assert (first.calls, first.copied_calls) == (2, 0)
    assert (again.calls, again.copied_calls, again.usd) == (0, 2, 0.0)


def test_a_model_without_a_price_is_left_out() -> None:
    found = partition_run(run_of(Usage(input=5000, output=7)), SIZER, price=lambda model, on: None)
    assert found is not None
    assert (found.calls, found.unpriced_calls, found.unpriced_tokens) == (0, 1, 5007)


def test_a_stated_bill_stands_beside_the_causes() -> None:
    found = audited(run_of(Usage(cache_write=1_000_000, usd=6.0)))
    assert found.stated_usd == 6.0
    assert found.stated_list_usd == pytest.approx(6.25)


def test_a_run_without_usage_has_no_bill() -> None:
    assert partition_run(builders.trajectory(builders.step(1)), SIZER, price=price) is None
