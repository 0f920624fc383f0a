"""From a name to its prices, the sets of prices, and what reported tokens cost."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path

import pytest

from elision.errors import PriceError
from elision.trajectory.price_lookup import (
    _find_listed_prices,
    cost_reported_usage,
    find_close_models,
    find_genai_prices,
    find_price_set,
    find_prices,
    list_models,
)
from elision.trajectory.price_table import PriceEntry, load_price_table
from elision.trajectory.prices import CacheRules, Prices, Rates
from elision.trajectory.usage import ModelUsage, Usage

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


SETS = load_price_table().sets
DOCS = Path(__file__).parents[2] / "docs" / "concepts" / "schedules.md"
FACTS = Path(__file__).parents[3] / "shared" / "facts" / "complexity-trap" / "facts.json"


def test_unknown_set_lists_the_others() -> None:
    """An unknown set is a PriceError that lists the sets there are."""
    with pytest.raises(PriceError, match="no price set 'antropic'; there are: anthropic, fable, openai, qwen3-coder"):
        find_price_set("antropic")


@pytest.mark.parametrize("name", sorted(SETS))
def test_set_is_complete(name: str) -> None:
    """Every set goes by its own name and says where it is from and when it was read."""
    prices = find_price_set(name)
    assert prices.name == name
    assert prices.source
    assert prices.dated == "2026-11-20"


@pytest.mark.parametrize(
    ("name", "rates", "cache"),
    [
        ("anthropic", (3, 3.75, 0.3, 15), CacheRules(kind="breakpoints", ttl=300, minimum=1024)),
        ("fable", (10, 12.5, 0.25, 50), CacheRules(kind="breakpoints", ttl=300, minimum=512)),
        ("openai", (1.25, None, 0.125, 6.25), CacheRules(kind="prefix", ttl=1800, minimum=1024, step=128)),
        ("uncached", (1, None, None, 5), CacheRules(kind="none")),
    ],
)
def test_one_tier_sets(name: str, rates: tuple[float | None, ...], cache: CacheRules) -> None:
    """The one-tier sets have the documented prices (input, write, read, output) and cache rules."""
    ((start, found),) = find_price_set(name).tiers
    assert start == 0
    assert (found.input, found.cache_write, found.cache_read, found.output) == pytest.approx(rates)
    assert find_price_set(name).cache == cache


def test_caching_sets_cache() -> None:
    """Every set but `uncached` has reads that are cheaper than input."""
    assert [name for name in SETS if not find_price_set(name).has_cache] == ["uncached"]


def test_qwen3_coder_tiers() -> None:
    """Input, output and read price of Qwen3-Coder at 32k, 128k and 256k, the edge belonging to the cheaper side."""
    prices = find_price_set("qwen3-coder")
    edges = (32_000, 32_001, 128_000, 128_001, 256_000, 256_001)
    assert [prices.find_rates(prompt).input for prompt in edges] == [1.0, 1.8, 1.8, 3.0, 3.0, 6.0]
    assert [prices.find_rates(prompt).output for prompt in edges] == [5.0, 9.0, 9.0, 15.0, 15.0, 60.0]
    assert prices.cache == CacheRules(kind="prefix", ttl=300, minimum=256, step=1)


@pytest.mark.skipif(not FACTS.exists(), reason="the paper's recorded prices are not beside this checkout")
def test_qwen3_coder_is_the_papers() -> None:
    """The set's figures are those that the paper's runs were billed at."""
    recorded = json.loads(FACTS.read_text())["qwen_prices_usd_per_1M"]["coder(tier by raw_input+cached_input per call)"]
    ours = [rates for _, rates in find_price_set("qwen3-coder").tiers]
    assert [(r.input, r.output, r.cache_read) for r in ours] == [
        (tier["input"], tier["output"], tier["cached_input"]) for tier in recorded.values()
    ]
    assert all(rates.cache_write is None for rates in ours)


@pytest.mark.parametrize(("name", "model"), [("fable", "claude-fable-5-1"), ("anthropic", "claude-sonnet-4-5")])
def test_set_agrees_with_its_model(name: str, model: str) -> None:
    """A set that is named after a vendor bills as a model of it in the table does."""
    assert find_price_set(name).cache == find_prices(model).cache
    bills = [
        prices.bill_call(50_000, cached=40_000, output=500).usd for prices in (find_price_set(name), find_prices(model))
    ]
    assert bills[0] == pytest.approx(bills[1])


def test_openai_set_is_gpt_5_on_the_prompt_side() -> None:
    """The `openai` set has gpt-5's cache rules and prompt prices; its output is 5 x input like every set's."""
    gpt = find_prices("gpt-5")
    assert find_price_set("openai").cache == gpt.cache
    assert find_price_set("openai").cost_prompt(50_000, 40_000) == pytest.approx(gpt.cost_prompt(50_000, 40_000))


def test_docs_show_the_sets() -> None:
    """The table of docs/concepts/schedules.md has every set, in order, with its input prices and shortest prefix."""
    cells = [
        line.strip("| ").split(" | ")
        for line in DOCS.read_text().partition("### Price sets")[2].partition("### ")[0].splitlines()
        if line.startswith("| `")
    ]
    assert [row[0].strip("`") for row in cells] == list(SETS)
    for row, prices in zip(cells, SETS.values(), strict=True):
        assert row[1] == " / ".join(f"{rates.input:g}" for _, rates in prices.tiers)
        assert prices.cache.kind == "none" or f"from {prices.cache.minimum:,} tokens" in row[5]


SONNET = find_prices("claude-sonnet-4-6")


def test_what_the_provider_stated_is_taken() -> None:
    """A cost that was stated goes before the price list."""
    assert cost_reported_usage(Usage(input=1_000_000, usd=0.25), SONNET) == 0.25


def test_each_count_has_its_price() -> None:
    """Plain, read, written for five minutes, written for an hour (2 x input), answered."""
    usage = Usage(input=1, cache_read=10, cache_write=500, cache_write_1h=400, output=7)
    paid = (1 * 3 + 10 * 0.3 + 100 * 3.75 + 400 * 6 + 7 * 15) / 1e6
    assert cost_reported_usage(usage, SONNET) == pytest.approx(paid)


def test_a_model_without_a_price_costs_what_the_asked_one_does() -> None:
    """Where nobody knows an advisor's prices the usual ones stand in."""
    part = Usage(input=100, output=10)
    usage = Usage(input=300, output=30, others=(ModelUsage("nobody-knows-it", part),))
    assert cost_reported_usage(usage, SONNET) == pytest.approx((300 * 3 + 30 * 15) / 1e6)
