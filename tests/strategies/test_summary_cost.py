"""What a summarizer call costs, by the cheaper of two routes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from elision.strategies.cost_estimation import BLOCK_TOKENS, INSTRUCTION_TOKENS, SummaryCall, choose_summary_call
from elision.summarizers.prompt import build_prompt
from elision.trajectory.plan import SummaryRequest
from elision.trajectory.price_table import load_price_table
from elision.trajectory.prices import Prices
from elision.trajectory.summary_block import format_summary_block
from tests.properties.builders import CACHED, PLAIN, SIZER, steps


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
