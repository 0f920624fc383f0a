"""`elision doctor --prices` at the terminal."""

from __future__ import annotations

import pytest

from elision.errors import PriceError
from elision.trajectory.price_table import load_price_table
from tests.cli.in_process import Command

COMMAND = Command("doctor", "--prices", width=80)
run, printed = COMMAND.run, COMMAND.print


def line_of(text: str, name: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [name])


@pytest.mark.parametrize("width", [80, 120])
def test_everything_is_listed(width: int) -> None:
    """Every row of the table and every named set is there, uncut, within the width."""
    text = printed(width=width)
    for name in [*(entry.names[0] for entry in load_price_table().entries), *load_price_table().sets]:
        assert line_of(text, name)
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width


def test_a_row() -> None:
    """A row holds USD per million tokens, the first dearer tier, the minimum, the lifetime and our trust."""
    cells = line_of(printed(), "claude-haiku-5-5")
    assert cells == ["claude-haiku-5-5", "0.1", "0.01", "0.125", "0.5", "100k", "×5", "512"]


def test_periods_are_told_apart() -> None:
    """A model whose price changed has a row for each period, with the day it began."""
    text = printed()
    assert text.count("claude-sonnet-5-5") == 2
    assert "from 2026-10-07" in text


def test_one_model() -> None:
    """A model, however a router writes it, is shown with tiers, cache rules, window, trust and sources."""
    text = printed("litellm_proxy/anthropic/claude-haiku-5-5-20261007")
    for told in (
        "up to 100,000",
        "above 100,000",
        "0.125",
        "from 512 tokens",
        "5 min",
        "H: vendor's page",
        "2026-11-20",
    ):
        assert told in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_a_set() -> None:
    """A named set is shown like a model."""
    text = printed("qwen3-coder")
    assert "32,001 to 128,000" in text
    assert load_price_table().sets["qwen3-coder"].dated in text


def test_a_model_that_only_genai_prices_knows() -> None:
    """What our table lacks is looked up, and its source says so."""
    text = printed("claude-3-opus-latest")
    assert "genai-prices" in text


def test_unknown_model() -> None:
    """An unknown model is an error with close names."""
    error = run("claude-sonet-4-5").exception
    assert isinstance(error, PriceError)
    assert "claude-sonnet-4-5" in str(error)
