"""How families of models count tokens: what the table has, how a name finds its family, what a wrong entry says."""

from __future__ import annotations

from datetime import date

import pytest

from elision.errors import PriceError
from elision.trajectory.price_lookup import LONGEST_NAME, find_price_set, find_prices, find_tokenizer
from elision.trajectory.price_table import load_price_table, parse_price_table
from elision.trajectory.tokens import OURS, Tokenizer

DAY = date(2026, 11, 20)


@pytest.mark.parametrize(
    ("name", "tokens", "sent_again"),
    [
        ("claude-sonnet-4", 1.20, True),
        ("litellm_proxy/anthropic/claude-sonnet-4-20250514", 1.20, True),
        ("claude-3-5-sonnet", 1.20, True),
        ("claude-opus-4-5-20251101", 1.25, True),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 1.25, True),
        ("claude-sonnet-4.5", 1.25, True),
        ("claude-opus-4-7", 1.60, True),
        ("claude-opus-4-8-fast", 1.60, True),
        ("claude-sonnet-5", 1.60, True),
        ("deepseek/deepseek-chat", 1.08, True),
        ("gpt-5-mini", 1.0, False),
        ("kimi-k3", 1.0, True),
        ("claude-opus-5", 1.60, True),
        ("claude-opus-5-5", 1.60, True),
        ("claude_opus_4_5", 1.25, True),
        ("databricks-claude-sonnet-4-5", 1.25, True),
        ("cluade-opus-4-5", 1.25, True),
        ("gtp-5", 1.0, False),
        ("gemini-3-pro-preview", 1.0, False),
        ("a-model-that-nobody-knows", 1.0, False),
    ],
)
def test_a_name_finds_its_family(name: str, tokens: float, sent_again: bool) -> None:
    """Hosts, dates and dots in a name do not matter, nor a typing error; a model of no known family counts as we do."""
    found = find_tokenizer(name)
    assert (found.tokens_per_counted, found.output_sent_again) == (tokens, sent_again)


def test_a_name_without_end_counts_as_we_do() -> None:
    """A name of any length is answered, without work that grows with it."""
    assert find_tokenizer("claude-opus-4-5" * LONGEST_NAME) is OURS


def test_prices_know_their_tokenizer() -> None:
    """A model's price list counts as its model does; a set stands for no model."""
    assert find_prices("anthropic/claude-opus-4-8", on=DAY).tokenizer.name == "claude-4-7"
    assert find_prices("gpt-5", on=DAY).tokenizer.name == "gpt"
    assert {prices.tokenizer for prices in load_price_table().sets.values()} == {OURS}
    assert find_price_set("anthropic").tokenizer is OURS


def test_the_longest_beginning_decides() -> None:
    """claude-sonnet-4-5 is of the family that names it, not of claude-sonnet-4."""
    short, long = Tokenizer(name="a", models=("claude-sonnet-4",)), Tokenizer(name="b", models=("claude-sonnet-4-5",))
    assert long.measure_fit("claude-sonnet-4-5") > short.measure_fit("claude-sonnet-4-5") > 0
    assert long.measure_fit("claude-sonnet-4") == 0


def test_every_family_says_where_it_is_from() -> None:
    """Each has a source and a day, and no two of them have a name or a beginning in common."""
    families = load_price_table().tokenizers
    assert all(family.source and family.dated for family in families)
    assert len({family.name for family in families}) == len(families)
    starts = [start for family in families for start in family.models]
    assert len(set(starts)) == len(starts)


SMALL = """
dated = 2026-11-20
[sources]
fit = "a fit"
[providers]
[[tokenizer]]
name = "one"
models = ["One.5"]
tokens_per_counted = 1.5
output_sent_again = true
dated = 2026-11-23
sources = ["fit"]
"""


def test_a_family_is_read() -> None:
    """Names are folded as models' names are."""
    table = parse_price_table(SMALL)
    (family,) = table.tokenizers
    assert family == Tokenizer(
        name="one",
        models=("one-5",),
        tokens_per_counted=1.5,
        output_sent_again=True,
        source="a fit",
        dated="2026-11-23",
    )
    assert table.find_tokenizer("one.5-large") is family
    assert table.find_tokenizer("two") is OURS


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("= 1.5", "= 0", "tokenizer one: tokens_per_counted is 0.0; give a number from 0.25 to 4"),
        ("= 1.5", "= nan", "tokenizer one: tokens_per_counted is nan; give a number"),
        ("= 1.5", "= 1.5\nfactor = 2", "tokenizer one: `factor`: nothing has this name"),
        ("= true", "= 1", "tokenizer one: `output_sent_again`: 1 is of the wrong type; give true or false"),
        ('["fit"]', '["fits"]', "tokenizer one: `sources`: 'fits' is not known; give one of fit"),
    ],
)
def test_a_wrong_family_is_named(old: str, new: str, message: str) -> None:
    """An error names the family, and what to write instead."""
    assert old in SMALL
    with pytest.raises(PriceError) as caught:
        parse_price_table(SMALL.replace(old, new, 1))
    assert message in str(caught.value)
