from __future__ import annotations

from datetime import date

import pytest

from elision.trajectory.price_table import DATED, PROVIDERS, SOURCES, Row, folded, row_of, rows

TODAY = date.fromisoformat(DATED)


def label(row: Row) -> str:
    return f"{row.names[0]}@{row.since}" if row.since else row.names[0]


every_row = pytest.mark.parametrize("row", rows(), ids=label)


@every_row
def test_row_is_a_price_list(row: Row) -> None:
    """Every row makes a valid price list: ascending tiers, none cheaper than the tier below, cheap reads."""
    tiers = row.prices.tiers
    assert [start for start, _ in tiers] == sorted({start for start, _ in tiers})
    assert [rates.input for _, rates in tiers] == sorted(rates.input for _, rates in tiers)
    for _, rates in tiers:
        assert 0 < rates.input <= rates.output
        assert rates.read <= rates.input <= rates.write
    assert row.prices.caches == (row.read is not None)


@every_row
def test_row_says_where_it_is_from(row: Row) -> None:
    """Every row has known sources, a day, a trust and a provider."""
    assert row.refs
    assert set(row.refs) <= set(SOURCES)
    assert row.prices.source
    assert row.prices.dated == DATED
    assert row.trust in ("H", "M", "L")
    assert row.provider in PROVIDERS
    assert not row.since or date.fromisoformat(row.since)


@every_row
def test_names_are_canonical(row: Row) -> None:
    """Names are bare and lower case, and each finds its own row on the day it begins."""
    for name in row.names:
        assert name == name.lower().strip()
        assert "/" not in name
        assert row_of(name, date.fromisoformat(row.since) if row.since else date.min) == row


def test_no_two_rows_for_one_period() -> None:
    """No model has two rows that begin on the same day."""
    keys = [(folded(name), row.since) for row in rows() for name in row.names]
    assert len(keys) == len(set(keys))


def test_every_source_is_used() -> None:
    """No source stands in the list without a row (that of the regional surcharge aside)."""
    assert {ref for row in rows() for ref in row.refs} | {"aws-global"} == set(SOURCES)


def test_every_tier_has_a_window_to_reach_it() -> None:
    """A model's dearest tier begins within its window, but for Sonnet 4.5, whose tier needs a beta header."""
    unreachable = {
        row.names[0] for row in rows() if row.window is not None and row.above and row.above[-1][0] >= row.window
    }
    assert unreachable == {"claude-sonnet-4-5"}


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
    row = row_of(name, TODAY)
    assert row is not None
    rates = row.prices.rates(20_000)
    assert (rates.input, rates.output, rates.cache_read, rates.cache_write) == pytest.approx(figures)
    assert row.prices.cache.minimum == minimum


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
    row = row_of(name, TODAY)
    assert row is not None
    sides = [row.prices.rates(edge), row.prices.rates(edge + 1)]
    assert [(r.input, r.output, r.read) for r in sides] == [pytest.approx(below), pytest.approx(above)]
    assert row.prices.cliff() == edge


def test_cache_rules_differ_by_provider() -> None:
    """Claude caches at breakpoints, OpenAI writes at a price from 5.6 on, before that in steps of 128 for free."""
    found = {name: row_of(name, TODAY) for name in ("claude-opus-5", "gpt-5.6", "gpt-5.2", "deepseek-chat")}
    cache = {name: row.prices.cache for name, row in found.items() if row is not None}
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
    row = row_of(name, day)
    assert row is not None
    assert row.prices.rates(5000).cache_read == pytest.approx(read)
