"""The knee of the dose curve."""

from __future__ import annotations

import pytest

from elision.lab.elongation import is_above_knee


@pytest.mark.parametrize(
    ("missing", "turns", "expected"), [(20, 561, True), (18, 561, False), (9, 99, False), (0, 0, False)]
)
def test_from_which_share_on_misses_are_too_many(missing: int, turns: int, expected: bool) -> None:
    """The published window of 27 turns is above the knee, that of 29 is below; few turns say nothing."""
    assert is_above_knee(missing, turns) is expected
