"""The table of what models take."""

from __future__ import annotations

import pytest

from elision.providers.shared.capabilities import TABLE, UNKNOWN, find_capabilities, normalize_model
from elision.trajectory.price_table import load_price_table


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("arn:aws:bedrock:us-east-1:1:inference-profile/eu.anthropic.claude-haiku-4-5-v1:0", "claude-haiku-4-5"),
        ("openrouter/anthropic/Claude-Opus-5.5:thinking", "claude-opus-5-5"),
        ("vertex_ai/claude-opus-5@20260601", "claude-opus-5"),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-3-5-sonnet-20241022", "claude-3-5"),
        ("azure/gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-mini", "gpt-5"),
        ("gpt-5.6-sol", "gpt-5-6"),
        ("gpt-4o-mini", "gpt-4o"),
        ("gpt-4-32k", "gpt-4"),
        ("qwen3-coder-plus", "qwen"),
        ("gemini-2.5-pro", "gemini"),
        ("o3-mini", "o3"),
    ],
)
def test_names_as_they_are_written(name: str, row: str) -> None:
    """Hosts, regions, dates and tags change nothing."""
    assert find_capabilities(name).model == row


def test_a_router_that_does_not_check_is_believed() -> None:
    """OpenRouter documents that it does not enforce prefix-bound thinking; nothing is asked of its upstreams."""
    sold = find_capabilities("openrouter/anthropic/claude-opus-5.5")
    assert (sold.model, sold.binds_thinking, sold.clears_results, sold.max_breakpoints) == (
        "claude-opus-5-5",
        False,
        False,
        4,
    )
    assert find_capabilities("anthropic/claude-opus-5.5").binds_thinking


@pytest.mark.parametrize("name", ["claude-fable-6", "claude-opus-5-6", "claude-sonnet-5.7", "claude-opus-4-9"])
def test_a_claude_that_is_not_in_the_table_is_taken_for_strict(name: str) -> None:
    """A newer model is not its older namesake: thinking is taken for bound, and nothing new is asked of it."""
    row = find_capabilities(name)
    assert (row.model, row.binds_thinking, row.clears_results, row.can_drop_block, row.takes_temperature) == (
        "claude",
        True,
        False,
        False,
        False,
    )


@pytest.mark.parametrize("name", ["", "my-model", "gpts", "o31", "claudette", "//", "@x", "[1m]"])
def test_an_unknown_name_gets_the_careful_default(name: str) -> None:
    """Nothing is asked of a model that may be any, and its signed thinking is left alone."""
    assert find_capabilities(name) is UNKNOWN


def test_rows_are_sound() -> None:
    """One row a name, each found by its own name."""
    assert len({row.model for row in TABLE}) == len(TABLE)
    for row in TABLE:
        assert find_capabilities(row.model) is row
        assert normalize_model(row.model) == row.model
        assert row.binds_thinking >= row.can_drop_block
        assert (row.max_breakpoints > 0) is bool(row.mark_field)


def test_every_priced_claude_and_gpt_has_a_row_of_its_own() -> None:
    """What the price table knows by name is not left to a catch-all here."""
    entries = [entry for entry in load_price_table().entries if entry.provider in ("anthropic", "openai")]
    names = [name for entry in entries for name in entry.names]
    assert names
    assert [name for name in names if find_capabilities(name).model in ("", "claude", "gpt")] == []
