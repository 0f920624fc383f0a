"""No text of others raises, and what JSON allows is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elision.trajectory.foreign_text import parse_json, parse_object


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1, "a": 2}', {"a": 2}),
        (b'{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        ('{"a": "\\ud800"}', {"a": "\ud800"}),
        ('{"a": Infinity}', {"a": float("inf")}),
        ("[1]", None),
        ("", None),
        (b"\xff", None),
        ("[" * 100_000, None),
        ('{"a": ' * 100_000, None),
    ],
)
def test_objects_are_read(text: str | bytes, expected: object) -> None:
    """Anything else is None."""
    assert parse_object(text) == expected


@given(st.text() | st.binary())
def test_nothing_raises(text: str | bytes) -> None:
    """Whatever it is."""
    parse_json(text)
