"""Sizes and spans are read and written as people do it."""

from __future__ import annotations

import pytest

from elision.cli.amounts import format_duration, format_size, parse_duration, parse_size
from elision.errors import SettingError


@pytest.mark.parametrize(
    ("text", "count"),
    [("0", 0), ("12", 12), ("5 B", 5), ("2GB", 2 * 10**9), ("1.5 mb", 1_500_000), ("1KiB", 1_024), ("3tib", 3 << 40)],
)
def test_sizes_are_read(text: str, count: int) -> None:
    """Decimal and binary units, in any case."""
    assert parse_size(text, "--max-bytes") == count


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("5min", 300), ("12h", 43_200), ("30d", 2_592_000), ("2 w", 1_209_600)]
)
def test_spans_are_read(text: str, seconds: float) -> None:
    """A number with a unit."""
    assert parse_duration(text, "--older-than") == seconds


@pytest.mark.parametrize("text", ["", "d", "-1d", "3 months", "1e3d", "30", "1d2h", "٣d", "nand"])
def test_other_spans_are_refused(text: str) -> None:
    """The option is named, with examples; a bare number could be anything."""
    with pytest.raises(SettingError, match=r"--older-than .*30d"):
        parse_duration(text, "--older-than")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (1_234, "1.2 kB"),
        (12_345, "12 kB"),
        (765_432, "765 kB"),
        (999_999, "1.0 MB"),
        (45_600_000, "46 MB"),
        (10**15, "1000 TB"),
    ],
)
def test_sizes_are_written(count: int, text: str) -> None:
    """Two or three digits and the unit that leads to them."""
    assert format_size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (7_200, "2 h"), (86_400 * 20, "20 d"), (86_400 * 70, "10 w")],
)
def test_spans_are_written(seconds: float, text: str) -> None:
    """In one unit; weeks from eight on."""
    assert format_duration(seconds) == text
