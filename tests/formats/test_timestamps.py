"""Recorded times."""

from __future__ import annotations

import pytest

from elision.formats.recorded_fields import parse_timestamp


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2026-01-20T13:17:16.237Z", 1768915036.237),
        ("2026-01-20T14:17:16.237+01:00", 1768915036.237),
        ("2026-01-20T13:17:16.237", 1768915036.237),
        (1768915036237, 1768915036.237),
    ],
)
def test_texts_and_milliseconds_are_read(value: object, seconds: float) -> None:
    """ISO 8601 with and without a zone (then UTC), and milliseconds since the epoch."""
    assert parse_timestamp(value) == seconds


@pytest.mark.parametrize("value", [None, "", "yesterday", True, [], float("nan"), float("inf"), 10**400])
def test_anything_else_is_no_time(value: object) -> None:
    """Nothing unreadable raises or becomes a time."""
    assert parse_timestamp(value) is None
