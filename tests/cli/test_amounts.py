"""Sizes and spans are read as people write them."""

from __future__ import annotations

import pytest

from elision.cli.store import SIZES, SPANS, parse_amount
from elision.errors import SettingError


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("12", 12), ("5 B", 5), ("2GB", 2 * 10**9), ("1.5 mb", 1_500_000), ("1KiB", 1_024), ("3tib", 3 << 40)],
)
def test_sizes_are_read(text: str, count: int) -> None:
    """Decimal and binary units, in any case."""
    assert parse_amount(text, "--max-bytes", SIZES) == count


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5min", 300), ("12h", 43_200), ("30d", 2_592_000), ("2 w", 1_209_600)]
)
def test_spans_are_read(text: str, seconds: float) -> None:
    """A number with a unit."""
    assert parse_amount(text, "--older-than", SPANS) == seconds


@pytest.mark.parametrize("text", ["", "d", "-1d", "3 months", "1e3d", "30", "1d2h", "٣d", "nand"])
def test_other_spans_are_refused(text: str) -> None:
    """The option is named, with examples; a bare number could be anything."""
    with pytest.raises(SettingError, match=r"--older-than .*30d"):
        parse_amount(text, "--older-than", SPANS)
