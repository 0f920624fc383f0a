from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version

import pytest

from elision.errors import PriceError
from elision.trajectory.price_lookup import (
    _find_listed_prices,
    find_close_models,
    find_genai_prices,
    find_prices,
    list_models,
)
from elision.trajectory.price_table import PriceEntry, load_price_table
from elision.trajectory.prices import CacheRules, Prices, Rates

TABLE = load_price_table()
TODAY = TABLE.dated
OPENAI = TABLE.providers["openai"]


@pytest.fixture
def genai() -> None:
    pytest.importorskip("genai_prices", reason="the optional package genai-prices is not installed")


@pytest.fixture
def no_genai(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the extra were not installed: None in sys.modules makes the import fail."""
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    monkeypatch.setitem(sys.modules, "genai_prices.data_snapshot", None)


@pytest.mark.parametrize(
    "name",
    [
        "claude-opus-4-5",
        "claude-opus-4-5-20251101",
        "claude-opus-4-5-latest",
        "Claude-Opus-4.5",
        "anthropic/claude-opus-4-5-20251101",
        "litellm_proxy/anthropic/claude-opus-4-5-20251101",
        "litellm_proxy/claude-opus-4-5",
        "openhands/claude-opus-4-5-20251101",
        "openrouter/anthropic/claude-opus-4.5",
        "openrouter/anthropic/claude-opus-4.5:thinking",
        "vertex_ai/claude-opus-4-5@20251101",
        "claude-opus-4-5@default",
        "claude-opus-4-5[1m]",
        "bedrock/global.anthropic.claude-opus-4-5-20251101-v1:0",
        "bedrock/converse/global.anthropic.claude-opus-4-5-20251101-v1:0",
        " claude-opus-4-5 ",
    ],
)
@pytest.mark.usefixtures("no_genai")
def test_spellings(name: str) -> None:
    """Hosts that sell at list price, routers, dates, tags and dots for dashes all lead to the same price list."""
    found, plain = find_prices(name, TODAY), find_prices("claude-opus-4-5", TODAY)
    assert (found.tiers, found.cache, found.window) == (plain.tiers, plain.cache, plain.window)


@pytest.mark.parametrize(
    "name",
    [
        "bedrock/us.anthropic.claude-opus-4-5-20251101-v1:0",
        "bedrock/eu-west-1/anthropic.claude-opus-4-5-20251101-v1:0",
        "arn:aws:bedrock:us-east-1:111122223333:inference-profile/us.anthropic.claude-opus-4-5-20251101-v1:0",
    ],
)
def test_bedrock_region_costs_more(name: str) -> None:
    """A region-bound Bedrock profile costs 10 % more than the list price, and the source says where that is from."""
    prices = find_prices(name, TODAY)
    rates = Rates(input=5.5, output=27.5, cache_write=6.875, cache_read=0.55, cache_write_1h=11.0)
    assert prices.tiers == ((0, rates),)
    assert "docs.aws.amazon.com" in prices.source


def test_early_claude_costs_the_same_in_a_region() -> None:
    """Up to Claude 4.1 a region-bound profile costs the list price."""
    assert find_prices("bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0", TODAY).find_rates(0).input == 3.0


@pytest.mark.parametrize(
    ("name", "model", "input"),
    [
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13", 5.0),
        ("gpt-4o-2024-11-20", "gpt-4o", 2.5),
        ("openai/gpt-4o", "gpt-4o", 2.5),
    ],
)
def test_a_dated_name_with_its_own_price(name: str, model: str, input: float) -> None:
    """A dated name that has its own row keeps its price; any other date is dropped."""
    prices = find_prices(name, TODAY)
    assert (prices.name, prices.find_rates(0).input) == (model, input)


@pytest.mark.usefixtures("genai")
def test_open_weights_elsewhere_are_not_the_vendors_price() -> None:
    """A model that another host sells is priced as that host sells it, never at the maker's list price."""
    there, vendor = (
        find_prices("openrouter/deepseek/deepseek-v3.2", TODAY),
        find_prices("deepseek/deepseek-v3.2", TODAY),
    )
    assert "genai-prices" in there.source
    assert there.find_rates(0) != vendor.find_rates(0)


@pytest.mark.parametrize("name", ["nowhere-1", "", "/", "foo/", "openai/some-local-llama", "text-embedding-3-small"])
def test_unknown_model(name: str) -> None:
    """A model that nobody prices by the token is a PriceError that says how to give a price and names the sets."""
    with pytest.raises(PriceError) as caught:
        find_prices(name)
    text = str(caught.value)
    assert repr(name) in text
    assert "--price input=3,cache_write=3.75,cache_read=0.3,output=15" in text
    assert all(name in text for name in TABLE.sets)


def test_a_slip_of_the_pen() -> None:
    """A misspelt model is answered with the names close to it."""
    with pytest.raises(PriceError, match="close names: claude-sonnet-4-5, "):
        find_prices("anthropic/claude-sonet-4-5")


def test_unknown_seller() -> None:
    """A known model under an unknown seller is no guess: the message says to give the bare name."""
    with pytest.raises(PriceError, match="not as sold by 'myproxy': give the bare name if you pay the list price"):
        find_prices("myproxy/claude-opus-4-5")


@pytest.mark.usefixtures("no_genai")
def test_without_genai_prices() -> None:
    """Without genai-prices our own table still serves, and a model beyond it is a PriceError that names the extra."""
    assert find_prices("claude-opus-5").find_rates(0).input == 5.0
    assert set(list_models()) == {name for entry in TABLE.entries for name in entry.names}
    with pytest.raises(PriceError, match=r"genai-prices, which is not installed.*\[lab\]"):
        find_prices("claude-3-opus-20240229")


@pytest.mark.usefixtures("genai")
def test_from_genai_prices() -> None:
    """A model beyond our table comes from genai-prices, with our cache rules of its vendor and its own name."""
    prices = find_prices("claude-3-opus-20240229", TODAY)
    assert prices.tiers == ((0, Rates(input=15, output=75, cache_write=18.75, cache_read=1.5, cache_write_1h=30)),)
    assert prices.cache == TABLE.providers["anthropic"].cache
    assert prices.window == 200_000
    assert prices.source.startswith("genai-prices ")
    assert prices.source.endswith("anthropic/claude-3-opus-latest")
    assert prices.dated == TODAY.isoformat()


@pytest.mark.usefixtures("genai")
@pytest.mark.parametrize(
    ("name", "cache"),
    [
        ("gpt-4-turbo", CacheRules(kind="none")),
        ("gpt-5.4-mini", OPENAI.cache),
        ("gpt-6-cyber", OPENAI.cache_with_write_price),
        ("azure/gpt-5.4-mini", OPENAI.cache),
        ("glm-4.6", TABLE.providers["zai"].cache),
        ("groq/openai/gpt-oss-120b", CacheRules()),
    ],
)
def test_cache_rules_of_genai_models(name: str, cache: CacheRules) -> None:
    """Cache rules follow the vendor; no read price means no cache, and open weights elsewhere get the usual rules."""
    assert find_prices(name, TODAY).cache == cache


@pytest.mark.usefixtures("genai")
def test_tiers_of_genai_models() -> None:
    """Its tiers become ours: input, output and read price change together at the edge."""
    tiers = find_prices("gemini-1.5-flash", TODAY).tiers
    assert tiers == (
        (0, Rates(input=0.075, output=0.3, cache_read=0.01875)),
        (128_000, Rates(input=0.15, output=0.6, cache_read=0.0375)),
    )


@pytest.mark.usefixtures("genai")
def test_dates_of_genai_models() -> None:
    """Its dated prices are taken by the day."""
    assert find_prices("gemini-3.7-flash", TODAY).find_rates(0).input == 0.75
    assert find_prices("gemini-3.7-flash", date(2027, 1, 1)).find_rates(0).input == 1.5


@pytest.mark.usefixtures("genai")
def test_every_known_model_is_found() -> None:
    """Every name that `list_models` lists has a price, and the list is sorted and without repeats."""
    names = list_models()
    assert list(names) == sorted(set(names))
    assert "claude-opus-5-5" in names
    for name in names:
        assert find_prices(name, TODAY).tiers


COMPARED = "0.2.3"
_V32 = "genai-prices lists V3 and R1 of early 2025 under this name; ours is V3.2 (roo-deepseek)"
_EDGE = "genai-prices puts the edge at 199,999; litellm and our notes say above 200,000"

# Where our table and genai-prices differ on the table's day, and why ours stands.
DIFFERENCES = {
    "deepseek-chat": _V32,
    "deepseek-reasoner": _V32,
    "deepseek-v3.2": "genai-prices lists the cheapest other host, without a cache; ours is the vendor (roo-deepseek)",
    "grok-4.3": _EDGE,
    "grok-4.5": _EDGE,
    "grok-4.6": _EDGE,
    "grok-4.7": _EDGE,
}
# What genai-prices does not have: our table alone answers for these.
OURS_ALONE = {
    "claude-mythos-5",
    "claude-mythos-5-1",
    "claude-opus-4-6-fast",
    "claude-opus-4-8-fast",
    "claude-opus-5-fast",
    "gemini-3-flash",
    "gemini-3-pro",
    "gemini-3.1-pro",
    "qwen3-coder-plus",
}


def compared() -> Iterator[tuple[str, PriceEntry, date]]:
    """Every name of the table with a day on which its entry holds."""
    for entry in TABLE.entries:
        day = entry.since if entry.since is not None and entry.since > TODAY else TODAY
        for name in entry.names:
            yield name, entry, day


def figures(prices: Prices) -> list[tuple[float, ...]]:
    return [
        (start, *(round(price, 6) for price in (rates.input, rates.output, rates.read_price, rates.write_price)))
        for start, rates in prices.tiers
    ]


@pytest.mark.usefixtures("genai")
def test_table_against_genai_prices() -> None:
    """On its day our table says what genai-prices says, but for the differences listed with their reasons."""
    if version("genai-prices") != COMPARED:
        pytest.skip(f"compared with genai-prices {COMPARED}; compare anew, then raise COMPARED")
    differing, alone = set(), set()
    for name, entry, day in compared():
        if TABLE.find_entry(name, day) != entry:
            continue
        theirs = find_genai_prices(name, entry.provider, day)
        if theirs is None:
            alone.add(name)
        elif figures(theirs) != figures(entry.prices) or theirs.window != entry.prices.window:
            differing.add(name)
    assert differing == set(DIFFERENCES)
    assert alone == OURS_ALONE


def test_a_longer_number_is_another_model() -> None:
    """genai-prices matches by prefix; a typing error is not priced as its neighbour."""
    with pytest.raises(PriceError, match="claude-sonnet-4-5"):
        find_prices("claude-sonnet-4-51")


@pytest.mark.parametrize(
    ("name", "usual", "factor"),
    [
        ("claude-opus-4.8-fast", "claude-opus-4-8", 2),
        ("anthropic/claude-opus-4.8-fast", "claude-opus-4-8", 2),
        ("openrouter/anthropic/claude-opus-4.6-fast", "claude-opus-4-6", 6),
        ("claude-opus-5-fast-20260723", "claude-opus-5", 2),
    ],
)
def test_a_faster_model_is_dearer(name: str, usual: str, factor: int) -> None:
    """Fast mode multiplies every price of the model."""
    found, base = find_prices(name).find_rates(1_000), find_prices(usual).find_rates(1_000)
    assert (found.input, found.output) == (factor * base.input, factor * base.output)
    assert found.read_price == pytest.approx(factor * base.read_price)
    assert found.write_price_1h == pytest.approx(factor * base.write_price_1h)


@pytest.mark.parametrize(
    "name", ["claude-opus-5-5-fast", "claude-sonnet-4-5-fast", "gpt-5-priority", "gpt-5.5-flex", "openai/gpt-5-batch"]
)
def test_a_speed_without_a_known_price_is_not_the_usual_one(name: str, genai: None) -> None:
    """It is unpriced rather than billed as the usual speed."""
    with pytest.raises(PriceError, match="no price for model"):
        find_prices(name)


def test_models_that_are_called_fast(genai: None) -> None:
    """The word is part of some names."""
    assert "fast" in find_prices("x-ai/grok-4-fast").name


def test_lists_are_read_once_for_all_unknown_names() -> None:
    """What models there are is worked out once: a gateway meets names that nobody knows at every session."""
    with pytest.raises(PriceError):
        find_prices("house-model-0")
    known = list_models()
    with pytest.raises(PriceError, match="no price for model 'house-model-1'"):
        find_prices("house-model-1")
    assert list_models() is known


def test_names_that_no_model_has() -> None:
    """A name of any length may come from whoever can send a request: it is neither held nor compared."""
    before = _find_listed_prices.cache_info().currsize
    with pytest.raises(PriceError, match=r"a name of 1,000,000 characters$"):
        find_prices("x" * 1_000_000)
    assert _find_listed_prices.cache_info().currsize == before


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("gtp-5", "gpt-5"), ("claude_opus_4_5x", "claude-opus-4-5"), ("Claude Opus 4.55", "claude-opus-4-5")],
)
def test_close_names_ignore_punctuation(typed: str, meant: str) -> None:
    """What is typed with other separators is as near as with ours."""
    assert meant in find_close_models(typed)[:3]


def test_separators_do_not_matter() -> None:
    """claude_opus_4.5 is claude-opus-4-5, at its price."""
    assert find_prices("claude_opus_4.5").tiers == find_prices("claude-opus-4-5").tiers
