"""How numbers look."""

from __future__ import annotations

import math

import pytest

from elision.lab.report import figures


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "$1,234"),
        (12.345, "$12.35"),
        (1, "$1.00"),
        (0.1234, "$0.123"),
        (0.01234, "$0.0123"),
        (0.00001, "<$0.0001"),
        (0, "$0.00"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_usd(value: float | None, text: str) -> None:
    """An amount has as many digits as it takes to compare it, no more."""
    assert figures.format_usd(value) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.964, "96 %"),
        (1.0, "100 %"),
        (0.998, "99.8 %"),
        (0.9999, "99.9 %"),
        (0.004, "0.4 %"),
        (0.0002, "<0.1 %"),
        (0.0, "0 %"),
        (None, "–"),
    ],
)
def test_percent(share: float | None, text: str) -> None:
    """A share is never rounded to all or to nothing unless it is that."""
    assert figures.format_share(share) == text


@pytest.mark.parametrize(
    ("to_raw", "text"),
    [
        (0.53, "−47 %"),
        (1.07, "+7 %"),
        (0.995, "−0.5 %"),
        (1.001, "+0.1 %"),
        (1.0001, "±0 %"),
        (12.0, "+1,100 %"),
        (None, "–"),
    ],
)
def test_change(to_raw: float | None, text: str) -> None:
    """A multiple is said as what it adds or takes away."""
    assert figures.format_change(to_raw) == text


@pytest.mark.parametrize(
    ("value", "text"), [(3.0, "$3"), (3.75, "$3.75"), (0.3, "$0.30"), (0.125, "$0.125"), (0.025, "$0.025"), (0.0, "$0")]
)
def test_rate(value: float, text: str) -> None:
    """USD per million tokens: cents, and a tenth of a cent where it matters."""
    assert figures.format_rate(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1_000, "1.0k"),
        (54_321, "54.3k"),
        (99_960, "100k"),
        (999_400, "999k"),
        (1_250_000, "1.2M"),
    ],
)
def test_tokens(value: int, text: str) -> None:
    """Token counts have three digits and a unit."""
    assert figures.format_tokens(value) == text


def test_turns() -> None:
    """A fraction of a turn is shown as such only where it matters."""
    assert [figures.format_turns(value) for value in (0.44, 14.2, 1240.0)] == ["0.4", "14", "1,240"]


@pytest.mark.parametrize("width", range(12, 60))
def test_no_line_ends_between_a_number_and_its_unit(width: int) -> None:
    """Whatever the width; nothing is lost, and blanks stay plain ones."""
    text = "Masking costs 61 % of it (−39 % vs raw), and × hindsight 4 % more in 100 % of runs."
    lines = figures.wrap_text(text, width)
    assert " ".join(lines) == text
    assert not any(line.startswith("%") or line.endswith("×") for line in lines)
    assert max(map(len, lines)) <= width


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
    assert figures.format_size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59, "59 s"), (60, "1 min"), (7_200, "2 h"), (86_400 * 20, "20 d"), (86_400 * 70, "10 w")],
)
def test_spans_are_written(seconds: float, text: str) -> None:
    """In one unit; weeks from eight on."""
    assert figures.format_duration(seconds) == text
