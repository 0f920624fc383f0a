from __future__ import annotations

import json
from pathlib import Path

import pytest

from elision.errors import PriceError
from elision.trajectory.price_lookup import find_price_set, find_prices
from elision.trajectory.price_table import load_price_table
from elision.trajectory.prices import CacheRules

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
