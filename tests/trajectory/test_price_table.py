from __future__ import annotations

import subprocess
import sys
import tomllib
from datetime import date
from importlib.resources import files

import pytest

from elision.errors import PriceError
from elision.trajectory.price_table import FILE, PriceEntry, fold_model_name, load_price_table, parse_price_table

TABLE = load_price_table()
TODAY = TABLE.dated
TEXT = files("elision.trajectory").joinpath(FILE).read_text(encoding="utf-8")


def label(entry: PriceEntry) -> str:
    return f"{entry.names[0]}@{entry.since}" if entry.since else entry.names[0]


def test_each_row_is_a_price_list(subtests: pytest.Subtests) -> None:
    """Every entry makes a valid price list: ascending tiers, none cheaper than the tier below, cheap reads."""
    for entry in TABLE.entries:
        with subtests.test(label(entry)):
            tiers = entry.prices.tiers
            assert [start for start, _ in tiers] == sorted({start for start, _ in tiers})
            assert [rates.input for _, rates in tiers] == sorted(rates.input for _, rates in tiers)
            for _, rates in tiers:
                assert 0 < rates.input <= rates.output
                assert rates.read_price <= rates.input <= rates.write_price
            assert entry.prices.has_cache == (tiers[0][1].cache_read is not None)


def test_cache_prices_are_the_same_multiples_in_every_tier(subtests: pytest.Subtests) -> None:
    """A dearer tier raises cache prices as it raises the input price, so a slip of a digit in one of them shows."""
    for entry in TABLE.entries:
        _, first = entry.prices.tiers[0]
        for _, rates in entry.prices.tiers[1:]:
            with subtests.test(label(entry)):
                assert rates.read_price / rates.input == pytest.approx(first.read_price / first.input)
                assert rates.write_price / rates.input == pytest.approx(first.write_price / first.input)


def test_claude_has_one_price_rule(subtests: pytest.Subtests) -> None:
    """Every Claude model asks 5 x input for output, 1.25 x for a cache write, 2 x for an entry that lives an hour."""
    for entry in TABLE.entries:
        if entry.provider != "anthropic":
            continue
        with subtests.test(label(entry)):
            _, rates = entry.prices.tiers[0]
            assert rates.output == pytest.approx(5 * rates.input)
            for _, rates in entry.prices.tiers:
                assert (rates.cache_write, rates.cache_write_1h) == pytest.approx((1.25 * rates.input, 2 * rates.input))


def test_each_row_says_where_it_is_from() -> None:
    """Every entry has a source and a day."""
    for entry in TABLE.entries:
        assert entry.prices.source, label(entry)
        assert entry.prices.dated == "2026-11-20", label(entry)


def test_names_are_canonical() -> None:
    """Names are bare and lower case, and each finds its own entry on the day it begins."""
    for entry in TABLE.entries:
        for name in entry.names:
            assert name == name.lower().strip()
            assert "/" not in name
            assert TABLE.find_entry(name, entry.since or date.min) == entry


def test_no_two_rows_for_one_period() -> None:
    """No model has two entries that begin on the same day."""
    keys = [(fold_model_name(name), entry.since) for entry in TABLE.entries for name in entry.names]
    assert len(keys) == len(set(keys))


def test_every_source_is_used() -> None:
    """No source is in the list without an entry (that of the regional surcharge aside)."""
    document = tomllib.loads(TEXT)
    listed = [*document["model"], *document["tokenizer"]]
    used = {key for each in listed for key in each["sources"]} | {"aws-global"}
    for provider in document["providers"].values():
        used |= set(provider.get("cache_with_write_price", {}).get("look_back", {}))
    assert used == set(document["sources"])


def test_every_tier_has_a_window_to_reach_it() -> None:
    """A model's dearest tier begins within its window, but for Sonnet 4.5, whose tier needs a beta header."""
    unreachable = {
        entry.names[0]
        for entry in TABLE.entries
        if entry.prices.window is not None and entry.prices.tiers[-1][0] >= entry.prices.window
    }
    assert unreachable == {"claude-sonnet-4-5"}


def test_the_file_is_read_when_a_price_is_asked_for() -> None:
    """Importing what needs prices does not read the file; the first question does, and only the first."""
    program = (
        "from elision.trajectory.price_lookup import find_prices\n"
        "from elision.trajectory.price_table import load_price_table\n"
        "import elision.manager.context, elision.cli.app\n"
        "assert load_price_table.cache_info().currsize == 0\n"
        "find_prices('claude-opus-5'); find_prices('gpt-5')\n"
        "assert load_price_table.cache_info().misses == 1\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


MODEL = """
[[model]]
names = ["glm-5"]
provider = "zai"
prices = { input = 1, cache_read = 0.2, output = 3.2 }
dearer = [{ above = 32_000, input = 2, cache_read = 0.4, output = 6.4 }]
cache = { minimum = 512 }
trust = "L"
sources = ["zai-pricing"]
"""
SMALL = f"""
dated = 2026-11-20
[sources]
zai-pricing = "docs.z.ai"
[providers.zai]
hosts = ["zai"]
cache = {{ kind = "prefix", ttl = 300, minimum = 1024 }}
{MODEL}
[[set]]
name = "uncached"
prices = {{ input = 1, output = 5 }}
cache = {{ kind = "none" }}
source = "none"
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("dated = 2026", "dated: 2026", "prices.toml is not valid TOML: "),
        ("dated = 2026-11-20", "", "prices.toml: `dated`: None is no date; give a day without quotes: 2026-11-20"),
        ("2026-11-20", "'2026-11-20'", "prices.toml: `dated`: '2026-11-20' is no date; give a day without quotes"),
        (
            "input = 1, c",
            "c",
            "prices.toml, model glm-5, prices: `input`: it is missing; give a number",
        ),
        ("output = 3.2", "output = '3.2'", "model glm-5, prices: `output`: '3.2' is of the wrong type; give a number"),
        ("output = 3.2", "output = true", "model glm-5, prices: `output`: True is of the wrong type; give a number"),
        ("output = 3.2", "output = -1", "model glm-5, prices: output price -1.0 is not a price; give USD per million"),
        (
            "cache_read = 0.2",
            "read = 0.2",
            "model glm-5, prices: `read`: nothing has this name; there are: input",
        ),
        (
            "above = 32_000",
            "above = 0",
            "model glm-5, dearer 0: `above`: 0 does not ascend; list the tiers",
        ),
        ("minimum = 512", "minimum = -1", "model glm-5, cache: cache rules need ttl >= 0 seconds"),
        (
            '"prefix"',
            '"suffix"',
            "providers, zai, cache: `kind`: 'suffix' is not known; give one of prefix",
        ),
        ('trust = "L"', 'trust = "X"', "model glm-5: `trust`: 'X' is not known; give one of H, M, L"),
        ('provider = "zai"', 'provider = "z"', "model glm-5: `provider`: 'z' is not known; give one of zai"),
        ('["zai-pricing"]', '["zai"]', "model glm-5: `sources`: 'zai' is not known; give one of zai-pricing"),
        ('["zai-pricing"]', "[]", "model glm-5: `sources`: [] is not a list of texts; give at least one"),
        ('trust = "L"', 'trust = "L"\nsinse = 1', "model glm-5: `sinse`: nothing has this name; there are: names, "),
        (MODEL, MODEL + MODEL, "prices.toml, model glm-5: two entries begin on one day; give each period its `since`"),
        ("[[set]]", "[[sets]]", "prices.toml: `sets`: nothing has this name; there are: dated, sources, providers, "),
        ("source = ", "from = ", "prices.toml, set uncached: `source`: it is missing; give a text in quotes"),
    ],
)
def test_a_wrong_entry_is_named(old: str, new: str, message: str) -> None:
    """An error says in which file and entry it is, and what to write instead."""
    assert parse_price_table(SMALL).sets
    assert old in SMALL
    with pytest.raises(PriceError) as caught:
        parse_price_table(SMALL.replace(old, new, 1))
    assert message in str(caught.value)


def test_an_entry_changes_only_the_cache_rules_that_it_names() -> None:
    """An entry's cache rules are its provider's, but for those that it gives."""
    (entry,) = parse_price_table(SMALL).entries
    assert (entry.prices.cache.kind, entry.prices.cache.ttl, entry.prices.cache.minimum) == ("prefix", 300, 512)


@pytest.mark.parametrize(
    ("name", "figures", "minimum"),
    [
        # input, output, read, write in USD per million tokens, at 50,000 prompt tokens
        ("claude-fable-5-2", (8, 40, 0.2, 10), 512),
        ("claude-fable-5-1", (10, 50, 0.25, 12.5), 512),
        ("claude-fable-5", (10, 50, 1.0, 12.5), 512),
        ("claude-opus-5-5", (4, 20, 0.2, 5), 512),
        ("claude-opus-5", (5, 25, 0.5, 6.25), 512),
        ("claude-opus-4-8", (5, 25, 0.5, 6.25), 1024),
        ("claude-opus-4-7", (5, 25, 0.5, 6.25), 2048),
        ("claude-opus-4-5", (5, 25, 0.5, 6.25), 4096),
        ("claude-sonnet-5-5", (2, 10, 0.1, 2.5), 512),
        ("claude-sonnet-5", (2, 10, 0.2, 2.5), 1024),
        ("claude-haiku-5-5", (0.1, 0.5, 0.01, 0.125), 512),
        ("claude-haiku-4-5", (1, 5, 0.1, 1.25), 4096),
        ("gpt-5.1", (1.25, 10, 0.125, None), 1024),
        ("gpt-5.2", (1.75, 14, 0.175, None), 1024),
        ("gpt-5.6", (4, 20, 0.4, 5), 1024),
        ("gpt-6-luna", (0.1, 0.5, 0.01, 0.125), 1024),
        ("gpt-6.1-sol", (2, 10, 0.1, 2.5), 1024),
        ("gemini-2.5-pro", (1.25, 10, 0.125, None), 4096),
        ("gemini-2.5-flash", (0.3, 2.5, 0.03, None), 1024),
        ("gemini-4-argon", (2, 10, 0.1, None), 4096),
        ("deepseek-chat", (0.28, 0.42, 0.028, None), 64),
        ("deepseek-v4-flash", (0.3, 1.2, 0.006, None), 64),
        ("deepseek-v4-pro", (1.32, 3.96, 0.044, None), 64),
        ("grok-4.3", (1.25, 2.5, 0.2, None), 1024),
        ("grok-4.7", (2, 6, 0.5, None), 1024),
    ],
)
def test_figures(name: str, figures: tuple[float | None, ...], minimum: int) -> None:
    """The table says what the vendors' pages say."""
    entry = TABLE.find_entry(name, TODAY)
    assert entry is not None
    rates = entry.prices.find_rates(20_000)
    assert (rates.input, rates.output, rates.cache_read, rates.cache_write) == pytest.approx(figures)
    assert entry.prices.cache.minimum == minimum


@pytest.mark.parametrize(
    ("name", "edge", "below", "above"),
    [
        # (input, output, read) on both sides of the edge
        ("claude-haiku-5-5", 100_000, (0.1, 0.5, 0.01), (0.5, 2.5, 0.05)),
        ("claude-sonnet-4-5", 200_000, (3, 15, 0.3), (6, 22.5, 0.6)),
        ("gpt-5.4", 272_000, (2.5, 15, 0.25), (5, 22.5, 0.5)),
        ("gpt-5.6", 272_000, (4, 20, 0.4), (8, 30, 0.8)),
        ("gemini-3.1-pro", 200_000, (2, 12, 0.2), (4, 18, 0.4)),
        ("grok-4.5", 200_000, (2, 6, 0.3), (4, 12, 0.6)),
    ],
)
def test_cliffs(name: str, edge: int, below: tuple[float, ...], above: tuple[float, ...]) -> None:
    """Price cliffs lie where the vendors put them; the edge itself is still cheap, and cache prices jump along."""
    entry = TABLE.find_entry(name, TODAY)
    assert entry is not None
    sides = [entry.prices.find_rates(edge), entry.prices.find_rates(edge + 1)]
    assert [(r.input, r.output, r.read_price) for r in sides] == [pytest.approx(below), pytest.approx(above)]
    assert entry.prices.find_cliff() == edge


def test_cache_rules_differ_by_provider() -> None:
    """Claude caches at breakpoints, OpenAI writes at a price from 5.6 on, before that in steps of 128 for free."""
    found = {name: TABLE.find_entry(name, TODAY) for name in ("claude-opus-5", "gpt-5.6", "gpt-5.2", "deepseek-chat")}
    cache = {name: entry.prices.cache for name, entry in found.items() if entry is not None}
    assert (cache["claude-opus-5"].kind, cache["claude-opus-5"].ttl) == ("breakpoints", 300)
    assert (cache["gpt-5.6"].kind, cache["gpt-5.6"].ttl, cache["gpt-5.6"].step) == ("prefix", 1800, 1)
    assert (cache["gpt-5.2"].kind, cache["gpt-5.2"].step) == ("prefix", 128)
    assert (cache["deepseek-chat"].minimum, cache["deepseek-chat"].step) == (64, 64)


@pytest.mark.parametrize(
    ("name", "day", "read"),
    [
        ("claude-sonnet-5-5", date(2026, 9, 1), 0.2),
        ("claude-sonnet-5-5", date(2026, 10, 6), 0.2),
        ("claude-sonnet-5-5", date(2026, 10, 7), 0.1),
        ("gemini-3.8-flash", date(2026, 12, 31), 0.075),
        ("gemini-3.8-flash", date(2027, 1, 1), 0.15),
        ("gemini-4-argon", date(2026, 12, 1), 0.2),
    ],
)
def test_prices_change_on_their_day(name: str, day: date, read: float) -> None:
    """A model whose price changed is priced by the day; a day before the first period takes the first."""
    entry = TABLE.find_entry(name, day)
    assert entry is not None
    assert entry.prices.find_rates(5000).cache_read == pytest.approx(read)
