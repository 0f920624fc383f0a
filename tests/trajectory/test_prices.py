from __future__ import annotations

import math
from typing import Any, Literal, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.errors import PriceError
from elision.trajectory.prices import Bill, CacheRules, Prices, Rates, parse_prices

BREAKPOINTS = CacheRules(kind="breakpoints", ttl=300, minimum=1000)
WRITING = Prices(
    name="writing",
    tiers=((0, Rates(input=3.0, output=15.0, cache_write=3.75, cache_read=0.3)),),
    cache=BREAKPOINTS,
)
TIERED = Prices(
    name="tiered",
    tiers=((0, Rates(input=1.0, output=4.0, cache_read=0.1)), (10_000, Rates(input=2.0, output=6.0, cache_read=0.2))),
    cache=CacheRules(minimum=1000),
)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.01])
@pytest.mark.parametrize("field", ["input", "output", "cache_write", "cache_read"])
def test_rate_that_is_no_price(field: str, value: float) -> None:
    """A rate that is not finite or is negative is refused, and the message names the rate and the unit."""
    given_rates = {"input": 1.0, "output": 1.0, field: value}
    with pytest.raises(PriceError, match=rf"{field} price .* is not a price; give USD per million tokens"):
        Rates(**given_rates)


def test_free_is_a_price() -> None:
    """Zero is allowed everywhere: local and free models exist."""
    free = Rates(input=0.0, output=0.0, cache_write=0.0, cache_read=0.0)
    assert free.read_price == free.write_price == 0.0


def test_missing_cache_prices_are_plain_input() -> None:
    """Without cache prices, reading and writing cost what input costs."""
    rates = Rates(input=2.0, output=5.0)
    assert (rates.read_price, rates.write_price) == (2.0, 2.0)


@pytest.mark.parametrize("starts", [(), (5,), (0, 0), (0, 20, 10), (10, 0)])
def test_tiers_that_do_not_ascend(starts: tuple[int, ...]) -> None:
    """Tiers must begin at 0 and ascend strictly."""
    with pytest.raises(PriceError, match="must ascend and begin at 0"):
        Prices(name="x", tiers=tuple((start, Rates(input=1.0, output=1.0)) for start in starts))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("input=3,output=15,reading=1", "no price 'reading'; there are: input, cache_write, cache_read, output"),
        ("input=3", "input and output are needed"),
        ("output=3", "input and output are needed"),
        ("input=3,output=cheap", "output='cheap' is not a number"),
        ("input,output=3", "input='' is not a number"),
        ("", "no price ''"),
        ("input=nan,output=1", "input price nan is not a price"),
        ("input=inf,output=1", "input price inf is not a price"),
        ("input=-1,output=1", "input price -1.0 is not a price"),
    ],
)
def test_price_text_that_is_none(text: str, message: str) -> None:
    """A --price that does not parse is a PriceError that says what is wrong with it."""
    with pytest.raises(PriceError) as caught:
        parse_prices(text)
    assert message in str(caught.value)


def test_price_text() -> None:
    """A full --price text gives its four rates and a prefix cache of five minutes and 1,024 tokens."""
    prices = parse_prices(" input=3, cache_write=3.75 ,cache_read=0.3,output=15")
    assert prices.tiers == ((0, Rates(input=3, cache_write=3.75, cache_read=0.3, output=15)),)
    assert prices.cache == CacheRules(kind="prefix", ttl=300, minimum=1024, step=1)
    assert prices.has_cache


def test_price_text_without_read_has_no_cache() -> None:
    """Without a cache_read price there is no cache."""
    prices = parse_prices("input=3,output=15")
    assert prices.cache.kind == "none"
    assert not prices.has_cache


def test_whole_call_is_billed_at_its_tier() -> None:
    """At the edge the lower tier holds; one token more and every token of the call costs the upper one."""
    at, above = TIERED.bill_call(10_000, output=1000), TIERED.bill_call(10_001, output=1000)
    assert at.usd == pytest.approx((10_000 * 1.0 + 1000 * 4.0) / 1e6)
    assert above.usd == pytest.approx((10_001 * 2.0 + 1000 * 6.0) / 1e6)


def test_cached_tokens_count_towards_the_tier() -> None:
    """The tier goes by all prompt tokens, those read from cache included."""
    assert TIERED.bill_call(12_000, cached=11_000).usd == pytest.approx((11_000 * 0.2 + 1000 * 2.0) / 1e6)


def test_below_the_minimum_is_plain_input() -> None:
    """A prompt shorter than the cache's minimum is not written: it is plain input at the plain price."""
    assert WRITING.bill_call(999) == Bill(input=999, usd=999 * 3.0 / 1e6)
    assert WRITING.bill_call(1000).cache_write == 1000


def test_no_write_price_is_input() -> None:
    """Where the provider has no write price, what is not read from cache is plain input."""
    bill = TIERED.bill_call(5000, cached=3000, output=10)
    assert (bill.input, bill.cache_write, bill.cache_read, bill.output) == (2000, 0, 3000, 10)


def test_uncached_is_all_input() -> None:
    """Without a cache the whole prompt is input, whatever the caller believes to be cached."""
    plain = Prices(name="p", tiers=((0, Rates(input=1, output=5)),), cache=CacheRules(kind="none"))
    assert plain.bill_call(5000, cached=3000, output=10) == Bill(input=5000, output=10, usd=(5000 + 10 * 5) / 1e6)


def test_usable_prefix_is_whole_steps() -> None:
    """Beyond the minimum a cached prefix is read in whole steps; below it, or without a cache, not at all."""
    rules = CacheRules(minimum=1024, step=128)
    assert [rules.count_usable(n) for n in (1023, 1024, 1151, 1152, 1300)] == [0, 1024, 1024, 1152, 1280]
    assert CacheRules(kind="none").count_usable(10_000) == 0


def test_cliff() -> None:
    """The cliff is where the input price doubles; a gentler step is none."""
    assert TIERED.find_cliff() == 10_000
    assert TIERED.find_cliff(factor=2.5) is None
    assert WRITING.find_cliff() is None


Kind = Literal["prefix", "breakpoints", "none"]
RATE = st.floats(min_value=0, max_value=200)
MAYBE = st.none() | RATE
COUNT = st.integers(min_value=0, max_value=2_000_000)


@st.composite
def price_lists(draw: st.DrawFn) -> Prices:
    starts = [0, *sorted(draw(st.sets(st.integers(min_value=1, max_value=1_000_000), max_size=3)))]
    read, write = draw(st.booleans()), draw(st.booleans())
    rates = [
        Rates(
            input=draw(RATE),
            output=draw(RATE),
            cache_write=draw(RATE) if write else None,
            cache_read=draw(RATE) if read else None,
        )
        for _ in starts
    ]
    kind: Kind = draw(st.sampled_from(get_args(Kind)))
    cache = CacheRules(kind=kind, minimum=draw(st.integers(min_value=0, max_value=5000)))
    return Prices(name="drawn", tiers=tuple(zip(starts, rates, strict=True)), cache=cache)


@given(prices=price_lists(), prompt=COUNT, share=st.floats(min_value=0, max_value=1), output=COUNT)
def test_bill_adds_up(prices: Prices, prompt: int, share: float, output: int) -> None:
    """usd is the sum of the billed tokens times their rates, and no prompt token is billed twice or not at all."""
    bill = prices.bill_call(prompt, cached=int(prompt * share), output=output)
    rates = prices.find_rates(prompt)
    expected = (
        bill.input * rates.input
        + bill.cache_write * rates.write_price
        + bill.cache_read * rates.read_price
        + bill.output * rates.output
    ) / 1e6
    assert bill.usd == pytest.approx(expected, rel=1e-9, abs=1e-12)
    assert bill.prompt_tokens == prompt
    assert bill.output == output
    assert min(bill.input, bill.cache_write, bill.cache_read) >= 0


@given(prices=price_lists(), first=COUNT, second=COUNT)
def test_bills_add(prices: Prices, first: int, second: int) -> None:
    """The sum of two bills has the tokens and the cost of both."""
    both = prices.bill_call(first) + prices.bill_call(second)
    assert both.prompt_tokens == first + second
    assert both.usd == pytest.approx(prices.bill_call(first).usd + prices.bill_call(second).usd)


@given(prices=price_lists(), prompt=COUNT, factor=st.floats(min_value=0.01, max_value=100))
def test_scaled(prices: Prices, prompt: int, factor: float) -> None:
    """Scaling every price scales every bill."""
    scaled = prices.scale(factor).bill_call(prompt, cached=prompt // 2, output=7)
    assert scaled.usd == pytest.approx(factor * prices.bill_call(prompt, cached=prompt // 2, output=7).usd, rel=1e-9)


@pytest.mark.parametrize("bad", [{"ttl": -1.0}, {"minimum": -1}, {"step": 0}, {"ttl": float("nan")}])
def test_cache_rules_that_make_no_sense_are_errors(bad: dict[str, Any]) -> None:
    """A step of nothing would divide by zero; a negative lifetime would never hit."""
    with pytest.raises(PriceError, match="cache rules"):
        CacheRules(**bad)


@pytest.mark.parametrize(
    "text", ["input=1,output=5,input=2", "input=1,output=5,cache_write=2"], ids=["twice", "write without read"]
)
def test_contradictions_in_a_price_are_errors(text: str) -> None:
    """Nothing the user wrote is silently dropped."""
    with pytest.raises(PriceError, match="--price"):
        parse_prices(text)


def test_more_cached_than_sent_is_an_error() -> None:
    """A bill is never negative."""
    with pytest.raises(ValueError, match="cached"):
        Prices(name="p", tiers=((0, Rates(input=1, output=5, cache_read=0.1)),)).bill_call(10, cached=20)
